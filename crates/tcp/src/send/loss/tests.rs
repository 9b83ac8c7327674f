//! The sender against a path and a receiver in virtual time.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proptest::prelude::*;

use super::*;
use crate::cc::GroupView;
use crate::ranges::Ranges;
use crate::recovery::pmtu::Report;
use crate::recovery::rtt::Echo;

const MSS: u32 = 1_000;
const ISN: SeqNum = SeqNum::new(u32::MAX - 5_000);
const ONE_WAY: Duration = Duration::from_millis(20);

/// What the path does to the n-th packet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Pass,
    Drop,
    Late(Duration),
    Mark,
}

enum Event {
    Data {
        seq: SeqNum,
        len: u32,
        sent_at: Instant,
        marked: bool,
    },
    Ack {
        ack: SeqNum,
        sack: Vec<(SeqNum, SeqNum)>,
        echo: Instant,
        ece: bool,
    },
}

/// A sender with `total` bytes, a path with a rate and a delay, and a receiver.
struct World {
    now: Instant,
    sender: LossRecovery,
    left: u32,
    sack: bool,
    /// A firewall shifts the numbers of what is sent, and not those in what selects them.
    sack_shift: u32,
    stamps: bool,
    one_way: Duration,
    /// Time one segment takes at the bottleneck.
    per_segment: Duration,
    link_free: Instant,
    fates: Box<dyn Fn(u32, Instant) -> Fate>,
    /// Largest segment that the path carries; it is silent about larger ones.
    path_mtu: u32,
    events: BTreeMap<(Instant, u64), Event>,
    serial: u64,
    packets: u32,
    retransmissions: u32,
    rtos: u32,
    recoveries: u32,
    undos: u32,
    cwrs: u32,
    next_expected: SeqNum,
    held: Ranges<SeqNum>,
    recent: Vec<SeqNum>,
}

fn setup(algorithm: Algorithm, sack: bool) -> Setup {
    Setup {
        mss: MSS,
        sack,
        algorithm,
        initial_window: 10,
        min_rto: Duration::from_millis(200),
        max_rto: Duration::from_secs(60),
        paced: false,
    }
}

impl World {
    fn new(total: u32, fates: impl Fn(u32, Instant) -> Fate + 'static) -> World {
        let mut sender = LossRecovery::new(ISN, &setup(Algorithm::Reno, true));
        sender.negotiated(true, MSS);
        World {
            now: Instant::from_secs(1),
            sender,
            left: total,
            sack: true,
            sack_shift: 0,
            stamps: true,
            one_way: ONE_WAY,
            per_segment: Duration::from_micros(500),
            link_free: Instant::ZERO,
            fates: Box::new(fates),
            path_mtu: u32::MAX,
            events: BTreeMap::new(),
            serial: 0,
            packets: 0,
            retransmissions: 0,
            rtos: 0,
            recoveries: 0,
            undos: 0,
            cwrs: 0,
            next_expected: ISN,
            held: Ranges::new(),
            recent: Vec::new(),
        }
    }

    fn without_sack(mut self) -> World {
        self.sack = false;
        self.sender = LossRecovery::new(ISN, &setup(Algorithm::Reno, false));
        self.sender.negotiated(false, MSS);
        self
    }

    fn at(&mut self, when: Instant, event: Event) {
        self.serial += 1;
        self.events.insert((when, self.serial), event);
    }

    /// Puts numbers on the wire, one packet a segment.
    fn transmit(&mut self, seq: SeqNum, len: u32, how: Sent) {
        let segment = if how == Sent::MtuProbe {
            len
        } else {
            self.sender.mss()
        };
        if !matches!(how, Sent::New | Sent::MtuProbe) {
            self.retransmissions += 1;
        }
        self.sender
            .sent(self.now, seq, len, Control::default(), how);
        let mut at = 0;
        while at < len {
            let part = (len - at).min(segment);
            let fate = if part > self.path_mtu {
                Fate::Drop
            } else {
                (self.fates)(self.packets, self.now)
            };
            self.packets += 1;
            self.link_free = self.link_free.max(self.now) + self.per_segment;
            let arrival = self.link_free + self.one_way;
            let data = Event::Data {
                seq: seq + at,
                len: part,
                sent_at: self.now,
                marked: fate == Fate::Mark,
            };
            match fate {
                Fate::Pass | Fate::Mark => self.at(arrival, data),
                Fate::Late(by) => self.at(arrival + by, data),
                Fate::Drop => {}
            }
            at += part;
        }
    }

    fn send_all(&mut self) {
        loop {
            let mss = self.sender.mss();
            let prefers_new = self.sender.prefers_new() && self.left > 0;
            let lost = self.sender.next_retransmit(mss, 4 * mss);
            if let Some(again) = lost.filter(|_| !prefers_new) {
                self.transmit(again.seq, again.len, Sent::Retransmit);
            } else if let Some(probe) = self.sender.tail_probe(mss) {
                if self.left > 0 {
                    self.transmit_new(mss, Sent::Probe);
                } else {
                    self.transmit(probe.seq, probe.len, Sent::Probe);
                }
            } else if let Some(size) = self
                .sender
                .mtu_probe(self.now)
                .filter(|size| *size <= self.left)
            {
                self.transmit_new(size, Sent::MtuProbe);
            } else if self.left > 0 && self.sender.allowance() >= mss.min(self.left) {
                self.transmit_new(
                    (self.sender.allowance() / mss * mss).clamp(mss, 4 * mss),
                    Sent::New,
                );
            } else {
                return;
            }
        }
    }

    fn transmit_new(&mut self, len: u32, how: Sent) {
        let len = len.min(self.left);
        self.left -= len;
        self.transmit(self.sender.flight().nxt(), len, how);
    }

    /// The receiver: acknowledges every packet, newest block first, duplicates reported.
    fn receive(&mut self, seq: SeqNum, len: u32, sent_at: Instant, marked: bool) {
        let end = seq + len;
        let fresh =
            end.after(self.next_expected) && !self.held.covers(seq.max(self.next_expected), end);
        let mut sack = Vec::new();
        if !fresh {
            sack.push((seq, end));
        } else {
            self.held.insert(seq.max(self.next_expected), end);
            self.recent.retain(|at| *at != seq);
            self.recent.insert(0, seq);
            if let Some(first) = self
                .held
                .first()
                .filter(|first| first.start == self.next_expected)
            {
                self.next_expected = first.end;
                self.held.remove_before(first.end);
            }
        }
        for at in &self.recent {
            if let Some(span) = self.held.span_at(*at) {
                if !sack.contains(&(span.start, span.end)) && sack.len() < 3 {
                    sack.push((span.start, span.end));
                }
            }
        }
        if !self.sack {
            sack.clear();
        }
        for block in &mut sack {
            *block = (block.0 + self.sack_shift, block.1 + self.sack_shift);
        }
        let ack = Event::Ack {
            ack: self.next_expected,
            sack,
            echo: sent_at,
            ece: marked,
        };
        self.at(self.now + self.one_way, ack);
    }

    fn acknowledge(&mut self, ack: SeqNum, sack: &[(SeqNum, SeqNum)], echo: Instant, ece: bool) {
        if ack.before(self.sender.flight().una()) {
            return;
        }
        let tick = Instant::from_millis(echo.as_millis());
        let sack = if self.sender.uses_sack() { sack } else { &[] };
        let effect = self.sender.on_ack(
            self.now,
            &AckIn {
                ack,
                sack,
                echo: self.stamps.then(|| Echo {
                    before: tick + Duration::from_millis(1),
                    rtt: self.now.since(tick),
                }),
                duplicate: ack == self.sender.flight().una() && self.sender.outstanding(),
                ece,
                app_limited: self.left == 0,
            },
            &GroupView::ALONE,
        );
        self.recoveries += u32::from(effect.reduced == Some(Reduction::Loss));
        self.undos += u32::from(effect.undone);
        self.cwrs += u32::from(effect.reduced == Some(Reduction::Ecn));
    }

    /// One step; false when everything is acknowledged.
    fn step(&mut self) -> bool {
        self.send_all();
        if self.left == 0 && !self.sender.outstanding() {
            assert_eq!(
                self.sender.deadline(),
                None,
                "nothing outstanding, nothing to wait for"
            );
            return false;
        }
        let event_at = self.events.keys().next().map(|key| key.0);
        let deadline = self.sender.deadline();
        assert!(
            deadline.is_some(),
            "outstanding data without a timer: {:?}",
            self.sender
        );
        assert!(
            deadline.unwrap() > self.now,
            "a deadline that has passed: {:?}",
            self.sender
        );
        self.now = event_at.into_iter().chain(deadline).min().unwrap();
        if event_at == Some(self.now) {
            match self.events.pop_first().unwrap().1 {
                Event::Data {
                    seq,
                    len,
                    sent_at,
                    marked,
                } => self.receive(seq, len, sent_at, marked),
                Event::Ack {
                    ack,
                    sack,
                    echo,
                    ece,
                } => self.acknowledge(ack, &sack, echo, ece),
            }
        }
        if self.sender.deadline().is_some_and(|at| at <= self.now) {
            self.rtos += u32::from(self.sender.on_timeout(self.now).rto_fired);
        }
        true
    }

    /// What just left with this number never arrives.
    fn drop_on_the_wire(&mut self, number: SeqNum) {
        let lost = |event: &Event| matches!(event, Event::Data { seq, .. } if *seq == number);
        let key = self.events.iter().find(|(_, event)| lost(event));
        let key = *key.expect("it is under way").0;
        self.events.remove(&key);
    }

    fn run(&mut self) {
        let end = self.now + Duration::from_secs(3_600);
        while self.step() {
            assert!(self.now < end, "no end in sight: {:?}", self.sender);
        }
    }
}

fn drops(which: &'static [u32]) -> impl Fn(u32, Instant) -> Fate + 'static {
    move |n, _| {
        if which.contains(&n) {
            Fate::Drop
        } else {
            Fate::Pass
        }
    }
}

/// Before, each loss cost a timeout.
#[test]
fn blocks_that_name_what_was_never_sent_are_not_believed() {
    for shift in [0x1234_5678, 0x8765_4321, 0xf000_0000] {
        let mut world = World::new(500 * MSS, drops(&[60, 150, 240, 330]));
        world.sack_shift = shift;
        world.run();
        assert_eq!((world.rtos, world.recoveries), (0, 4), "{shift:x}");
        assert_eq!(world.undos, 0, "{shift:x}");
    }
}

#[test]
fn without_loss_nothing_is_sent_twice() {
    let mut world = World::new(500 * MSS, drops(&[]));
    world.run();
    assert_eq!(
        (
            world.packets,
            world.retransmissions,
            world.rtos,
            world.recoveries
        ),
        (500, 0, 0, 0)
    );
}

#[test]
fn one_loss_is_repaired_in_a_round_trip_and_halves_the_window() {
    let mut world = World::new(300 * MSS, drops(&[40]));
    world.run();
    assert_eq!(
        (
            world.retransmissions,
            world.rtos,
            world.recoveries,
            world.undos
        ),
        (1, 0, 1, 0)
    );
    assert!(world.sender.cc().ssthresh() < 40 * MSS);
}

#[test]
fn many_losses_of_one_window_are_one_recovery() {
    let mut world = World::new(300 * MSS, drops(&[40, 42, 44, 46, 48, 50, 52]));
    world.run();
    assert_eq!((world.packets, world.rtos, world.recoveries), (307, 0, 1));
}

#[test]
fn a_lost_retransmission_is_found_without_the_timer() {
    let mut world = World::new(400 * MSS, drops(&[40]));
    while world.retransmissions == 0 {
        world.step();
    }
    world.drop_on_the_wire(ISN + 40 * MSS);
    world.run();
    assert_eq!((world.retransmissions, world.rtos), (2, 0));
}

#[test]
fn each_repetition_of_the_head_has_a_timeout_of_its_own() {
    let mut world = World::new(400 * MSS, drops(&[40]));
    let mut timer = None;
    for repetition in 1..=4 {
        let mut expires = world.now;
        while world.retransmissions < repetition {
            expires = world.now + world.sender.rto();
            world.step();
        }
        // Not for ever: a path may let everything through but this.
        let begins = repetition <= 3;
        let before = timer;
        timer = world.sender.rto_timer.deadline();
        assert_eq!(timer == Some(expires), begins, "{repetition}");
        assert_eq!(timer == before, !begins, "{repetition}");
        world.drop_on_the_wire(ISN + 40 * MSS);
    }
}

#[test]
fn a_lost_tail_is_probed_and_not_waited_for() {
    let mut world = World::new(30 * MSS, drops(&[28, 29]));
    world.run();
    assert_eq!(world.rtos, 0);
    assert!(world.retransmissions <= 3);
    let took = world.now.since(Instant::from_secs(1));
    assert!(took < Duration::from_millis(400), "took {took}");
}

#[test]
fn a_probe_that_repairs_a_loss_reduces_the_window() {
    let mut world = World::new(30 * MSS, drops(&[29]));
    while world.sender.flight().una() != ISN + 30 * MSS {
        assert!(world.step());
    }
    assert_eq!(
        (world.rtos, world.retransmissions, world.recoveries),
        (0, 1, 0)
    );
    // The next data after the probe shows that one copy alone arrived.
    world.left = 5 * MSS;
    world.run();
    assert!(
        world.sender.cc().ssthresh() < u32::MAX,
        "the loss was a congestion signal"
    );
}

#[test]
fn an_outage_is_survived_by_the_timer() {
    let outage = |_, now: Instant| {
        let dark = now >= Instant::from_millis(1_100) && now < Instant::from_millis(3_000);
        if dark { Fate::Drop } else { Fate::Pass }
    };
    let mut world = World::new(600 * MSS, outage);
    world.run();
    assert!((2..6).contains(&world.rtos), "{} timeouts", world.rtos);
    assert_eq!(world.undos, 0);
    assert!(
        world.now < Instant::from_secs(6),
        "ended at {:?}",
        world.now
    );
}

#[test]
fn a_retransmission_that_is_lost_lowers_the_threshold_from_where_it_was() {
    // Of a hundred segments five arrive, and nothing that is sent afterwards.
    let fates = |n, _| {
        if n < 30 || (120..125).contains(&n) {
            Fate::Pass
        } else {
            Fate::Drop
        }
    };
    let mut world = World::new(300 * MSS, fates);
    world.sender.cc.restart_initial(100);
    while world.recoveries == 0 {
        assert!(world.step());
    }
    let first = world.sender.cc().ssthresh();
    assert!(first >= 50 * MSS, "{first}");
    while world.rtos == 0 {
        assert!(world.step());
    }
    assert_eq!(world.sender.cc().ssthresh(), first / 2);
}

#[test]
fn the_head_leaves_after_a_timeout_even_if_the_window_is_full() {
    let mut world = World::new(
        100 * MSS,
        |n, _| if n == 10 { Fate::Drop } else { Fate::Pass },
    );
    while world.recoveries == 0 {
        world.step();
    }
    // In recovery; everything from here on is lost, and the round trip is longer than what the timer adds to it.
    world.events.clear();
    let fired = world.sender.rto_timer.deadline().unwrap();
    world
        .sender
        .timing
        .rtt_mut()
        .sample(fired, Duration::from_secs(60), 1);
    world
        .sender
        .timing
        .rtt_mut()
        .sample(fired, Duration::from_secs(60), 1);
    world.now = fired;
    world.transmit_new(5 * MSS, Sent::New);
    assert!(world.sender.on_timeout(fired).rto_fired);
    assert!(world.sender.inflight() > world.sender.cc().cwnd());
    let head = world
        .sender
        .next_retransmit(MSS, 65_536)
        .expect("the head is due");
    assert_eq!((head.seq, head.len), (world.sender.flight().una(), MSS));
    world.sender.sent(
        fired,
        head.seq,
        head.len,
        Control::default(),
        Sent::Retransmit,
    );
    assert_eq!(world.sender.next_retransmit(MSS, 65_536), None);
}

/// The path stands still for 600 ms and then delivers everything in order.
fn delay_spike(_: u32, now: Instant) -> Fate {
    let (from, until) = (Instant::from_millis(1_080), Instant::from_millis(1_680));
    if (from..until).contains(&now) {
        Fate::Late(until.since(now))
    } else {
        Fate::Pass
    }
}

#[test]
fn a_delay_spike_is_not_taken_for_loss() {
    for stamps in [true, false] {
        let mut world = World::new(1_000 * MSS, delay_spike);
        world.stamps = stamps;
        world.run();
        assert!(world.rtos >= 1, "the spike is longer than the timeout");
        assert!(world.undos >= 1, "with timestamps {stamps}");
        assert!(
            world.retransmissions <= 4,
            "{} retransmissions, timestamps {stamps}",
            world.retransmissions
        );
        assert_eq!(
            world.sender.cc().ssthresh(),
            u32::MAX,
            "the reduction was taken back"
        );
    }
}

#[test]
fn reordering_within_a_quarter_round_trip_costs_nothing_once_it_is_known() {
    let late = |n, _| {
        if n % 10 == 3 {
            Fate::Late(Duration::from_millis(8))
        } else {
            Fate::Pass
        }
    };
    let mut world = World::new(600 * MSS, late);
    world.run();
    assert!(world.recoveries <= 1, "{} recoveries", world.recoveries);
    assert_eq!(
        (world.recoveries, world.rtos),
        (world.undos, 0),
        "the first misjudgement was taken back"
    );
}

#[test]
fn without_sack_every_partial_acknowledgement_shows_the_next_hole() {
    let mut world = World::new(300 * MSS, drops(&[40, 42, 44])).without_sack();
    world.run();
    assert_eq!(
        (world.retransmissions, world.rtos, world.recoveries),
        (3, 0, 1)
    );
}

#[test]
fn what_waited_behind_a_hole_is_no_round_trip() {
    // Two acknowledgements, as a proxy makes of one: of what was sent again, and of what had arrived long before.
    let mut sender = LossRecovery::new(ISN, &setup(Algorithm::Reno, false));
    sender.negotiated(false, MSS);
    let at = Instant::from_millis;
    let none = Control::default();
    sender.sent(at(1_000), ISN, MSS, none, Sent::New);
    sender.sent(at(1_000), ISN + MSS, MSS, none, Sent::New);
    let fired = sender.deadline().unwrap();
    assert!(sender.on_timeout(fired).rto_fired);
    sender.next_retransmit(MSS, 0).unwrap();
    sender.sent(at(9_000), ISN, MSS, none, Sent::Retransmit);
    for (ack, millis) in [(ISN + MSS, 9_020), (ISN + 2 * MSS, 9_021)] {
        let ack = AckIn {
            ack,
            sack: &[],
            echo: Some(Echo {
                before: at(9_001),
                rtt: at(millis).since(at(9_000)),
            }),
            duplicate: false,
            ece: false,
            app_limited: true,
        };
        sender.on_ack(at(millis), &ack, &GroupView::ALONE);
    }
    assert!(
        sender.rto() < Duration::from_millis(300),
        "{:?}",
        sender.rto()
    );
}

#[test]
fn without_sack_many_holes_do_not_take_a_round_trip_each() {
    // Every other segment from the eightieth on. A round trip takes 40 ms, and the timer 240.
    for (holes, rtos, within) in [(8, 0, 500), (20, 1, 700), (30, 1, 750)] {
        let fates = move |n: u32, _: Instant| match (80..80 + 2 * holes).contains(&n) {
            true if n % 2 == 0 => Fate::Drop,
            _ => Fate::Pass,
        };
        let mut world = World::new(300 * MSS, fates).without_sack();
        let began = world.now;
        world.run();
        assert_eq!((world.rtos, world.recoveries), (rtos, 1), "{holes}");
        assert!(world.retransmissions <= holes + 1, "{holes}");
        let took = world.now.since(began).as_millis();
        assert!(took < within, "{took} ms for {holes}");
    }
}

#[test]
fn without_sack_limited_transmit_makes_small_windows_recover() {
    // Three segments out, the first lost: two duplicates let two more out, which bring the third.
    let mut world = World::new(6 * MSS, drops(&[0])).without_sack();
    world.sender.cc.restart_initial(3);
    world.run();
    assert_eq!((world.retransmissions, world.rtos), (1, 0));
}

#[test]
fn an_option_bearing_duplicate_is_no_congestion_signal() {
    // rfc8684:G1
    let mut world = World::new(10 * MSS, drops(&[])).without_sack();
    world.send_all();
    let (cwnd, now) = (world.sender.cc().cwnd(), world.now + ONE_WAY);
    for _ in 0..5 {
        let ack = AckIn {
            ack: ISN,
            sack: &[],
            echo: None,
            duplicate: false,
            ece: false,
            app_limited: false,
        };
        let effect = world.sender.on_ack(now, &ack, &GroupView::ALONE);
        assert_eq!(effect, AckEffect::default());
    }
    assert_eq!(
        (
            world.sender.cc().cwnd(),
            world.sender.next_retransmit(MSS, MSS)
        ),
        (cwnd, None)
    );
}

#[test]
fn congestion_marks_reduce_once_a_window() {
    let mut world = World::new(600 * MSS, |n, _| {
        if (100..130).contains(&n) {
            Fate::Mark
        } else {
            Fate::Pass
        }
    });
    world.run();
    assert_eq!(
        (world.retransmissions, world.recoveries, world.cwrs),
        (0, 0, 1)
    );
    assert!(world.sender.cc().ssthresh() < u32::MAX);
}

#[test]
fn packet_too_big_is_no_congestion() {
    let mut world = World::new(40 * MSS, drops(&[]));
    world.send_all();
    let cwnd = world.sender.cc().cwnd();
    let report = Report::Size(900);
    assert!(
        !world.sender.on_icmp_too_big(world.now, ISN - 1, report),
        "quotes nothing outstanding"
    );
    assert!(
        world
            .sender
            .on_icmp_too_big(world.now, ISN + 4 * MSS, report)
    );
    assert_eq!(
        (
            world.sender.mss(),
            world.sender.cc().cwnd(),
            world.sender.inflight()
        ),
        (900, cwnd, 0)
    );
    assert!(
        !world
            .sender
            .on_icmp_too_big(world.now, ISN + 4 * MSS, report),
        "no news"
    );
    world.run();
}

#[test]
fn an_mtu_black_hole_without_icmp_is_found_and_the_largest_size_searched() {
    let mut world = World::new(3_000_000, drops(&[]));
    world.sender.negotiated(true, 8_960);
    world.path_mtu = 1_460;
    world.run();
    assert!(world.rtos <= 4, "{} timeouts", world.rtos);
    assert!(
        (1_428..=1_460).contains(&world.sender.mss()),
        "{}",
        world.sender.mss()
    );
}

#[test]
fn an_mtu_probe_that_a_tail_loss_probe_repeats_in_part_did_not_pass() {
    let mut world = World::new(20_000, drops(&[]));
    world.sender.negotiated(true, 1_460);
    world.run();
    // A black hole was found, and the first probe is the last segment in flight.
    let base = world.sender.pmtu.on_timeout(world.now, 1_460, 3);
    let base = base.expect("all is lost");
    world.sender.adopt_mss();
    world.path_mtu = 1_200;
    world.left = 1_460;
    world.run();
    assert_eq!((world.sender.mss(), world.rtos), (base, 0));
    world.left = 1_000_000;
    world.run();
    assert!(
        (1_168..=1_200).contains(&world.sender.mss()),
        "{}",
        world.sender.mss()
    );
    assert_eq!((world.rtos, world.recoveries), (0, 0));
    assert_eq!(
        world.sender.cc().ssthresh(),
        u32::MAX,
        "nothing was lost for congestion"
    );
}

#[test]
fn an_outage_does_not_leave_small_segments_behind() {
    let outage = |_, now: Instant| {
        let dark = now >= Instant::from_millis(1_100) && now < Instant::from_millis(6_000);
        if dark { Fate::Drop } else { Fate::Pass }
    };
    let mut world = World::new(6_000_000, outage);
    world.sender.negotiated(true, 1_400);
    while world.now < Instant::from_secs(12) && world.left > 0 {
        assert!(world.step());
    }
    assert_eq!(world.sender.mss(), 1_400);
    assert!(world.sender.pmtu.probe().is_none());
}

#[test]
fn an_idle_sender_starts_from_a_smaller_window() {
    let mut world = World::new(200 * MSS, drops(&[150]));
    world.run();
    let cwnd = world.sender.cc().cwnd();
    world
        .sender
        .on_idle_restart(world.now + Duration::from_secs(60));
    assert!(
        world.sender.cc().cwnd() < cwnd && world.sender.cc().cwnd() == 10 * MSS,
        "{}",
        world.sender.cc().cwnd()
    );
}

#[test]
fn a_handshake_that_timed_out_twice_is_followed_by_one_segment() {
    // RFC 5681 section 3.1 with the recommendation of RFC 6928 section 2; RFC 6298 section 5.7.
    let syn = Control {
        syn: true,
        fin: false,
    };
    for (timeouts, window) in [(0, 10 * MSS), (1, 10 * MSS), (2, MSS)] {
        let mut sender = LossRecovery::new(ISN, &setup(Algorithm::Cubic, true));
        sender.sent(Instant::from_secs(1), ISN, 1, syn, Sent::New);
        assert_eq!(sender.deadline(), Some(Instant::from_secs(2)));
        for at in [2, 4].map(Instant::from_secs).into_iter().take(timeouts) {
            assert!(sender.on_timeout(at).rto_fired);
            let lost = sender.next_retransmit(MSS, 0).unwrap();
            assert!(lost.syn && lost.len == 1);
            sender.sent(at, ISN, 1, syn, Sent::Retransmit);
            assert_eq!(sender.deadline(), Some(at + (at - Instant::ZERO)));
        }
        sender.negotiated(true, MSS);
        let ack = AckIn {
            ack: ISN + 1,
            sack: &[],
            echo: None,
            duplicate: false,
            ece: false,
            app_limited: true,
        };
        let effect = sender.on_ack(Instant::from_millis(4_100), &ack, &GroupView::ALONE);
        assert!(effect.control.syn);
        assert_eq!((sender.cc().cwnd(), sender.deadline()), (window, None));
        let rto = if timeouts > 0 { 3_000 } else { 9_300 };
        assert_eq!(sender.rto(), Duration::from_millis(rto));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the path drops, delays or marks, everything arrives, the deadlines lie ahead, and the window is kept.
    #[test]
    fn every_transfer_ends(
        segments in 1u32..150, fates in prop::collection::vec(0u8..12, 1..300), sack: bool, stamps: bool, which in 0u8..3,
        tail in 0u32..MSS,
    ) {
        let mut world = World::new(segments * MSS + tail, move |n, _| {
            match fates.get(n as usize) {
                Some(0) => Fate::Drop,
                Some(1) => Fate::Late(Duration::from_millis(5)),
                Some(2) => Fate::Late(Duration::from_millis(90)),
                Some(3) => Fate::Mark,
                _ => Fate::Pass,
            }
        });
        let algorithm = [Algorithm::Reno, Algorithm::Cubic, Algorithm::Lia][which as usize];
        world.sack = sack;
        world.stamps = stamps;
        world.sender = LossRecovery::new(ISN, &setup(algorithm, sack));
        world.sender.negotiated(sack, MSS);
        while world.step() {
            prop_assert!(world.now < Instant::from_secs(3_600));
            // Before its deadline, the timer changes nothing.
            if let Some(at) = world.sender.deadline().filter(|at| *at > world.now) {
                let before = alloc::format!("{:?}", world.sender);
                prop_assert!(!world.sender.on_timeout(Instant::from_nanos(at.as_nanos() - 1)).rto_fired);
                prop_assert_eq!(before, alloc::format!("{:?}", world.sender));
            }
        }
        prop_assert_eq!(world.sender.flight().una(), ISN + segments * MSS + tail);
        prop_assert_eq!(world.next_expected, world.sender.flight().una());
    }
}

#[test]
fn bbr_takes_no_bandwidth_sample_while_it_probes_the_round_trip() {
    // Two megabytes a second and 10.5 ms, of which there are more than ten in the 200 ms of ProbeRTT.
    let mut world = World::new(60_000 * MSS, drops(&[]));
    world.one_way = Duration::from_millis(5);
    world.sender = LossRecovery::new(ISN, &setup(Algorithm::Bbr, true));
    world.sender.negotiated(true, MSS);
    let (mut seen, mut slowest) = (false, Rate::MAX);
    while world.now < Instant::from_secs(13) {
        assert!(world.step());
        let probing = world.sender.cc().cwnd() == 4 * MSS;
        seen |= probing && world.now > Instant::from_secs(6);
        if seen {
            let rate = world.sender.cc.pacing_rate(Duration::from_millis(10));
            slowest = slowest.min(rate);
        }
    }
    assert!(seen && slowest < Rate::MAX, "ProbeRTT was seen");
    // The gain of the phase that drains is three quarters.
    assert!(slowest.as_bytes_per_sec() > 1_400_000, "{slowest:?}");
}

/// A sender whose first window is ten segments, with so many in flight.
fn with_in_flight(segments: u32) -> LossRecovery {
    let mut sender = LossRecovery::new(ISN, &setup(Algorithm::Reno, true));
    sender.negotiated(true, MSS);
    for n in 0..segments {
        let now = Instant::from_millis(u64::from(n));
        sender.sent(now, ISN + n * MSS, MSS, Control::default(), Sent::New);
    }
    sender
}

/// What was sent before an outage is known to be lost as soon as the retransmission of the head is known to have arrived: by its
/// duplicate report, if the head had arrived and only its acknowledgement was late.
#[test]
fn a_duplicate_report_after_an_outage_shows_what_was_lost() {
    let mut sender = with_in_flight(10);
    let ack = |sender: &mut LossRecovery, now: Instant, upto, sack: &[_], echo| {
        let before = Instant::from_millis(echo + 1);
        let ack = AckIn {
            ack: ISN + upto * MSS,
            sack,
            echo: Some(Echo {
                before,
                rtt: now.since(Instant::from_millis(echo)),
            }),
            duplicate: false,
            ece: false,
            app_limited: true,
        };
        sender.on_ack(now, &ack, &GroupView::ALONE)
    };
    ack(&mut sender, Instant::from_millis(40), 1, &[], 0);
    let head = ISN + MSS;
    let timeout = loop {
        let at = sender.deadline().expect("data is outstanding");
        if sender.on_timeout(at).rto_fired {
            break at;
        }
    };
    sender.sent(timeout, head, MSS, Control::default(), Sent::Retransmit);
    let late = timeout + Duration::from_millis(15);
    assert!(ack(&mut sender, late, 4, &[], 3).undone);
    assert_eq!(sender.flight().lost(), 0, "nothing overtook it");
    let answer = timeout + Duration::from_millis(40);
    let effect = ack(&mut sender, answer, 4, &[(head, head + MSS)], 3);
    assert_eq!(effect.reduced, Some(Reduction::Loss));
    assert_eq!(sender.flight().lost(), 6 * MSS);
}

/// The application stops after `first` segments, of which the first `acked` are acknowledged, and one of what is left is lost.
/// `later`: round trips of four segments pass in between.
#[test]
fn a_loss_after_a_pause_goes_by_the_window_that_was_in_use() {
    for (name, acked, later, ssthresh) in [
        ("nothing was acknowledged", 0, 0, 5),
        ("half is acknowledged, and nothing follows", 5, 0, 5),
        ("it was long ago", 10, 3, 2),
    ] {
        let mut sender = with_in_flight(10);
        let mut now = Instant::from_millis(40);
        let ack = |sender: &mut LossRecovery, now: Instant, upto: SeqNum, sack: &[_]| {
            let ack = AckIn {
                ack: upto,
                sack,
                echo: None,
                duplicate: false,
                ece: false,
                app_limited: true,
            };
            sender.on_ack(now, &ack, &GroupView::ALONE)
        };
        if acked > 0 {
            ack(&mut sender, now, ISN + acked * MSS, &[]);
        }
        for round in 0..later {
            for _ in 0..4 {
                let nxt = sender.flight().nxt();
                sender.sent(now, nxt, MSS, Control::default(), Sent::New);
            }
            now += Duration::from_millis(40);
            if round + 1 < later {
                let nxt = sender.flight().nxt();
                ack(&mut sender, now, nxt, &[]);
            }
        }
        let (una, nxt) = (sender.flight().una(), sender.flight().nxt());
        let effect = ack(&mut sender, now, una, &[(una + MSS, nxt)]);
        assert_eq!(effect.reduced, Some(Reduction::Loss), "{name}");
        assert_eq!(sender.cc.ssthresh(), ssthresh * MSS, "{name}");
    }
}

#[test]
fn a_penalty_proves_nothing_of_the_path() {
    let mut sender = with_in_flight(10);
    assert!(sender.cc().is_unproven() && sender.penalise());
    assert!(!sender.cc.in_slow_start() && sender.cc().is_unproven());
    let mut world = World::new(
        200_000,
        |n, _| if n == 90 { Fate::Drop } else { Fate::Pass },
    );
    world.run();
    assert!(!world.sender.cc().is_unproven(), "a loss does");
}

#[test]
fn a_round_trip_fades_while_nothing_is_measured() {
    let ms = Duration::from_millis;
    for (srtt, shortest, rested, expected) in [
        (80, 20, 0, 80),
        // The last answer came after 80 ms; since then the queue had 30 ms to drain.
        (80, 20, 110, 50),
        (80, 20, 5_000, 20),
        // The path became shorter than any recent measurement.
        (80, 90, 5_000, 80),
    ] {
        let left = super::timing::faded(ms(srtt), ms(shortest), ms(rested));
        assert_eq!(left, ms(expected), "{srtt} ms after {rested} ms");
    }
    let mut world = World::new(200 * MSS, drops(&[150]));
    world.run();
    let measured = world.sender.timing().rtt();
    let (srtt, shortest) = (measured.srtt(), measured.min());
    assert!(srtt > shortest, "slow start built a queue");
    assert_eq!(
        world.sender.aged_srtt(world.now + Duration::from_secs(5)),
        shortest
    );
}

#[test]
fn a_path_that_rested_is_like_a_new_one() {
    let mut world = World::new(
        200_000,
        |n, _| if n == 90 { Fate::Drop } else { Fate::Pass },
    );
    world.run();
    let mut sender = world.sender;
    let last = sender.last_sent.expect("it sent");
    let later = last + Duration::from_secs(10);
    assert_eq!(sender.rests(later), Some(Duration::from_secs(10)));
    assert!(!sender.cc.in_slow_start() && sender.round().sustained().is_some());
    let round_trip = sender.timing().rtt().min();
    sender.forget_path();
    assert!(sender.cc.in_slow_start() && sender.cc.cwnd() == 10 * MSS);
    let rates = (
        sender.round().sustained(),
        sender.round().peak(),
        sender.round().rate(),
    );
    assert_eq!(rates, (None, None, None));
    assert_eq!(sender.timing().rtt().min(), round_trip);
    assert_eq!(
        with_in_flight(1).rests(later),
        None,
        "it waits for an answer"
    );
}
