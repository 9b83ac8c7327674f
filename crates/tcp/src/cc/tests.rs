//! What every algorithm has to put up with: halving without a loss, a cap, and a reduction that is taken back.

use super::*;

const MSS: u32 = 1_000;

/// Congestion avoidance with a window of so many bytes, and something delivered.
fn avoiding(algorithm: Algorithm, cwnd: u32) -> Congestion {
    let mut cc = Congestion::new(algorithm, MSS, 10);
    cc.window.set_ssthresh(cwnd);
    cc.window.set_cwnd(cwnd);
    for step in 0..20 {
        cc.observe(&ack(step), false);
        cc.on_ack(&ack(step), &GroupView::ALONE);
    }
    cc.window.set_cwnd(cwnd);
    cc
}

/// An acknowledgement of a segment in a window that is used, of a path of 20 ms, 2 ms after the last one.
fn ack(step: u64) -> AckSample {
    let rtt = Duration::from_millis(20);
    AckSample {
        now: Instant::from_millis(1_000 + 2 * step),
        acked: MSS,
        inflight_before: 20 * MSS,
        inflight_after: 19 * MSS,
        max_inflight: 20 * MSS,
        cwnd_limited: true,
        rtt: Some(rtt),
        srtt: rtt,
        min_rtt: rtt,
        acked_total: (step + 1) * u64::from(MSS),
        sent_total: (step + 21) * u64::from(MSS),
        delivered_total: (step + 1) * u64::from(MSS),
        lost: 0,
        rate: Some(Rate::from_bytes_per_sec(1_000_000)),
        rate_app_limited: false,
    }
}

#[test]
fn a_penalty_halves_window_and_threshold_and_is_no_loss() {
    for &algorithm in Algorithm::ALL {
        for (cwnd, half) in [(20_500, 10_250), (20_000, 10_000), (3_000, 2_000)] {
            let mut cc = avoiding(algorithm, cwnd);
            let (interloss, window) = (cc.algorithm.interloss(), cc.window.clone());
            cc.penalise();
            assert_eq!((cc.cwnd(), cc.ssthresh()), (half, half), "{algorithm}");
            assert_eq!(
                cc.algorithm.interloss(),
                interloss,
                "{algorithm} knows of no loss"
            );
            let mut expected = window;
            expected.set_ssthresh(half);
            expected.set_cwnd(half);
            assert_eq!(cc.window, expected, "{algorithm} earns nothing by it");
            cc.on_undo();
            assert_eq!(cc.cwnd(), half, "{algorithm}: nothing to take back");
        }
    }
}

#[test]
fn undoing_penalties_restores_what_they_took_and_no_loss() {
    for &algorithm in Algorithm::ALL {
        let mut cc = avoiding(algorithm, 20_000);
        let before = cc.ssthresh();
        cc.penalise();
        cc.penalise();
        assert!(cc.is_penalised() && cc.cwnd() == 5_000, "{algorithm}");
        cc.undo_penalties();
        let now = (cc.ssthresh(), cc.cwnd(), cc.is_penalised());
        assert_eq!(now, (before, 5_000, false), "{algorithm}: slow start");
        // What a loss took stays taken.
        cc.penalise();
        cc.on_loss(Instant::from_millis(2_000), cc.cwnd());
        let after = cc.ssthresh();
        cc.undo_penalties();
        assert_eq!(cc.ssthresh(), after, "{algorithm}");
    }
}

#[test]
fn a_reduction_that_is_taken_back_leaves_nothing() {
    for &algorithm in Algorithm::ALL {
        let mut cc = avoiding(algorithm, 20_500);
        let window = cc.window.clone();
        cc.on_loss(Instant::from_millis(2_000), 20_500);
        cc.on_undo();
        assert_eq!(cc.window, window, "{algorithm}");
    }
}

#[test]
fn the_time_of_a_cap_does_not_count_for_the_curve() {
    // A loss, then avoidance, with ten capped seconds between or without.
    let window_after = |capped: u64| {
        let mut cc = avoiding(Algorithm::Cubic, 20_000);
        cc.on_loss(Instant::from_millis(1_100), 20_000);
        cc.on_recovered();
        let later = |cc: &mut Congestion, step: u64, held: bool| {
            let sample = ack(100 + step);
            match held {
                true => cc.on_capped(&sample, &GroupView::ALONE),
                false => cc.on_ack(&sample, &GroupView::ALONE),
            }
        };
        later(&mut cc, 0, false);
        for step in 0..capped {
            later(&mut cc, 1 + step, true);
        }
        for step in 0..100 {
            later(&mut cc, 1 + capped + step, false);
        }
        cc.cwnd()
    };
    assert_eq!(window_after(5_000), window_after(0));
}

#[test]
fn growth_begins_flat_where_a_cap_has_cut() {
    for &algorithm in Algorithm::ALL {
        // A loss far above, so that there is a curve to return to.
        let mut cc = avoiding(algorithm, 200_000);
        cc.on_loss(Instant::from_millis(1_040), 200_000);
        cc.on_recovered();
        cc.on_ack(&ack(20), &GroupView::ALONE);
        cc.on_ack(&ack(21), &GroupView::ALONE);
        cc.cap_to(20_000);
        assert_eq!((cc.cwnd(), cc.in_slow_start()), (20_000, false));
        // BBR's model says how large the window is.
        if algorithm == Algorithm::Bbr {
            continue;
        }
        for round in 1..=10 {
            for step in 0..20 {
                cc.on_ack(&ack(2 + 20 * round + step), &GroupView::ALONE);
            }
            let most = 20_000 + (round as u32 + 1) * MSS;
            assert!(cc.cwnd() <= most, "{algorithm}, {round}: {}", cc.cwnd());
        }
    }
}

#[test]
fn a_loss_that_leaves_two_segments_earns_nothing() {
    for algorithm in [Algorithm::Lia, Algorithm::Balia] {
        let mut cc = avoiding(algorithm, 3_000);
        let mut expected = cc.window.clone();
        expected.set_ssthresh(2_000);
        expected.set_cwnd(2_000);
        cc.on_loss(Instant::from_millis(2_000), 3_000);
        cc.on_recovered();
        assert_eq!(cc.window, expected, "{algorithm}");
    }
}

#[test]
fn balia_judges_the_loss_that_ends_slow_start_by_the_other_paths() {
    let path = |cwnd| PathSample {
        cwnd,
        srtt: Duration::from_millis(20),
        mss: MSS,
        usable: true,
        interloss: 0,
    };
    let after = |other, capped| {
        let mut cc = Congestion::new(Algorithm::Balia, MSS, 20);
        let paths = [path(20_000), path(other)];
        let group = GroupView {
            paths: &paths,
            me: 0,
        };
        let idle = AckSample {
            max_inflight: 0,
            ..ack(0)
        };
        match capped {
            true => cc.on_capped(&idle, &group),
            false => cc.on_ack(&idle, &group),
        }
        assert!(cc.in_slow_start());
        cc.on_loss(Instant::from_millis(2_000), 20_000);
        cc.ssthresh()
    };
    for capped in [false, true] {
        assert_eq!(after(10_000, capped), 10_000);
        assert_eq!(after(100_000, capped), 5_000);
    }
}

/// BBR that knows its path: a megabyte a second and 20 ms, after so many acknowledgements.
fn bbr_after(steps: u64) -> Congestion {
    let mut cc = Congestion::new(Algorithm::Bbr, MSS, 10);
    for step in 0..steps {
        cc.observe(&ack(step), false);
        cc.on_ack(&ack(step), &GroupView::ALONE);
    }
    cc
}

#[test]
fn bbr_starts_again_at_its_bandwidth_after_a_pause() {
    let (known, rtt) = (
        Rate::from_bytes_per_sec(1_000_000),
        Duration::from_millis(20),
    );
    assert!(bbr_after(200).pacing_rate(rtt) > known, "it probes");
    let mut cc = bbr_after(200);
    let window = cc.cwnd();
    let last = ack(200).now;
    let again = last + Duration::from_secs(12);
    cc.on_idle(again, last, Duration::from_millis(200));
    // Section 4.3.4.4: window as it is, and exactly the bandwidth.
    assert_eq!((cc.pacing_rate(rtt), cc.cwnd()), (known, window));
    let first = AckSample {
        now: again + rtt,
        ..ack(200)
    };
    cc.on_ack(&first, &GroupView::ALONE);
    assert!(
        cc.cwnd() >= window,
        "section 4.3.5: the pause was the probe"
    );
    // Without a pause it is not.
    let later = AckSample {
        now: again + rtt + Duration::from_secs(12),
        ..ack(201)
    };
    cc.on_ack(&later, &GroupView::ALONE);
    assert_eq!(cc.cwnd(), 4 * MSS);
}

/// An acknowledgement so many round trips of 20 ms after the first, each with its own round trip, of a window that is used.
fn in_round(round: u64, step: u64, rtt_ms: u64) -> AckSample {
    let rtt = Duration::from_millis(rtt_ms);
    let total = round * 20 * u64::from(MSS);
    AckSample {
        rtt: Some(rtt),
        srtt: rtt,
        max_inflight: 1 << 30,
        acked_total: total + step * u64::from(MSS),
        sent_total: total + 20 * u64::from(MSS),
        ..ack(round * 20 + step)
    }
}

#[test]
fn a_path_that_is_forgotten_has_a_first_slow_start_again() {
    for algorithm in [Algorithm::Cubic, Algorithm::Reno, Algorithm::Lia] {
        let mut cc = Congestion::new(algorithm, MSS, 10);
        // A queue ends the first one (RFC 9406).
        for round in 0..10 {
            for step in 0..20 {
                let rtt = if round == 0 { 20 } else { 40 };
                cc.on_ack(&in_round(round, step, rtt), &GroupView::ALONE);
            }
        }
        assert!(!cc.in_slow_start() && !cc.is_unproven(), "{algorithm}");
        cc.forget_path();
        cc.on_ack(&in_round(11, 0, 20), &GroupView::ALONE);
        let now = (cc.cwnd(), cc.in_slow_start(), cc.is_unproven());
        assert_eq!(now, (11 * MSS, true, true), "{algorithm}");
    }
}

#[test]
fn the_curve_of_before_a_slow_start_is_over() {
    let mut cc = avoiding(Algorithm::Cubic, 200_000);
    cc.on_loss(Instant::from_millis(1_040), 200_000);
    cc.on_recovered();
    cc.on_ack(&ack(21), &GroupView::ALONE);
    let last = ack(21).now;
    // Ten seconds of silence, then half a minute in slow start in which the application uses little of the window.
    cc.on_idle(
        last + Duration::from_secs(10),
        last,
        Duration::from_millis(200),
    );
    assert!(cc.in_slow_start());
    for second in 0..30 {
        let little = AckSample {
            max_inflight: MSS,
            cwnd_limited: false,
            ..ack(6_000 + second * 500)
        };
        cc.on_ack(&little, &GroupView::ALONE);
    }
    let threshold = cc.ssthresh();
    let mut step = 21_000;
    while cc.in_slow_start() {
        let full = AckSample {
            max_inflight: cc.cwnd(),
            ..ack(step)
        };
        cc.on_ack(&full, &GroupView::ALONE);
        step += 1;
    }
    // A round trip later a curve that begins here is still below its plateau, not at the limit of half as much again.
    for _ in 0..threshold / MSS {
        cc.on_ack(&ack(step), &GroupView::ALONE);
    }
    assert!(
        cc.cwnd() < threshold + threshold / 8,
        "{} of {threshold}",
        cc.cwnd()
    );
}

#[test]
fn a_reduction_can_be_taken_back_when_its_recovery_has_ended() {
    for &algorithm in Algorithm::ALL {
        let mut cc = avoiding(algorithm, 20_500);
        let before = (cc.cwnd(), cc.ssthresh());
        cc.on_loss(Instant::from_millis(2_000), 20_500);
        cc.on_recovered();
        cc.on_undo();
        assert_eq!((cc.cwnd(), cc.ssthresh()), before, "{algorithm}");
    }
}

#[test]
fn what_is_taken_back_leaves_a_penalty_as_it_was() {
    let mut cc = Congestion::new(Algorithm::Cubic, MSS, 20);
    cc.penalise();
    cc.on_loss(Instant::from_millis(2_000), cc.cwnd());
    assert!(!cc.is_unproven());
    cc.on_undo();
    assert!(
        cc.is_unproven() && cc.is_penalised(),
        "the loss was none: nothing but a penalty has ended slow start"
    );
}

#[test]
fn an_excessive_queue_proves_a_path_that_was_penalised() {
    let mut cc = Congestion::new(Algorithm::Cubic, MSS, 20);
    cc.penalise();
    assert!(cc.is_unproven());
    cc.cap_to(5_000);
    assert!(!cc.is_unproven());
    cc.undo_penalties();
    assert!(!cc.in_slow_start(), "not into that queue again");
}

#[test]
fn bbr_has_its_window_again_after_a_probe_within_a_recovery() {
    for loss_first in [true, false] {
        let mut cc = bbr_after(200);
        let window = cc.cwnd();
        let at = |seconds| ack(200).now + Duration::from_secs(seconds);
        let probing = |now, step| AckSample {
            now,
            inflight_after: MSS,
            rtt: None,
            ..ack(step)
        };
        if loss_first {
            cc.on_loss(at(11), window);
            // Proportional rate reduction lets out what was delivered.
            cc.set_cwnd(4 * MSS);
            cc.observe(&probing(at(12), 200), true);
        } else {
            cc.on_ack(&probing(at(12), 200), &GroupView::ALONE);
            assert_eq!(cc.cwnd(), 4 * MSS);
            cc.on_loss(at(12), 4 * MSS);
            cc.set_cwnd(3 * MSS);
        }
        for step in 201..260 {
            cc.observe(&probing(at(12 + (step - 200) / 5), step), true);
            cc.set_cwnd(4 * MSS);
        }
        cc.on_recovered();
        assert!(
            cc.cwnd() >= window,
            "{loss_first}: {} of {window}",
            cc.cwnd()
        );
    }
}
