//! Decides when the attempts of a race start and how it ends (RFC 8305 section 5). Pure: an input and its time in, outputs out.

use std::time::Duration;

/// Attempts in one race: with the repetitions of each SYN (RFC 6298 section 5.5) this bounds the SYNs of one call.
pub const MOST_ATTEMPTS: usize = 8;

/// How long attempts are still waited for where no other is left to start and the rest was refused, or all are said to be
/// unreachable: long enough for a SYN that was lost to be repeated once (after 1 s, RFC 6298 section 2.1) and answered.
pub const GRACE: Duration = Duration::from_secs(3);

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// The race begins.
    Begin,
    /// The time of [`Race::deadline`] has come.
    Timer,
    /// The network says of an attempt that its peer cannot be reached; it may still succeed.
    Doubted(usize),
    /// An attempt has failed; true if the peer refused it.
    Failed(usize, bool),
    /// An attempt has succeeded.
    Connected(usize),
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Start the attempt of this number.
    Start(usize),
    /// End an attempt that is under way.
    Abandon(usize),
    /// The race is over: the number of the attempt that succeeded, if one did.
    Finish(Option<usize>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Running,
    /// Still under way, and the next one has started because it took too long.
    Overdue,
    Doubted,
    Over,
}

/// One race. Attempts start in the order of their numbers.
#[derive(Debug, Clone)]
pub struct Race {
    phases: Vec<Phase>,
    /// How long an attempt is waited for before the next one starts.
    delays: Vec<Duration>,
    next_at: Duration,
    refused: bool,
    give_up_at: Option<Duration>,
    finished: bool,
}

impl Race {
    /// A race of one attempt for each of these times, in their order: how long to wait for it before the next one starts. At most
    /// [`MOST_ATTEMPTS`] take part.
    #[must_use]
    pub fn new(delays: &[Duration]) -> Self {
        let delays = &delays[..delays.len().min(MOST_ATTEMPTS)];
        Race {
            phases: vec![Phase::Waiting; delays.len()],
            delays: delays.to_vec(),
            next_at: Duration::ZERO,
            refused: false,
            give_up_at: None,
            finished: false,
        }
    }

    fn first(&self, phase: Phase) -> Option<usize> {
        self.phases.iter().position(|p| *p == phase)
    }

    /// When [`Input::Timer`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let next = self.first(Phase::Waiting).map(|_| self.next_at);
        let times = [next, self.give_up_at];
        times.into_iter().flatten().min().filter(|_| !self.finished)
    }

    /// Takes an input. Nothing follows once the race is over.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        if self.finished {
            return out;
        }
        match input {
            Input::Begin => {}
            Input::Timer => {
                if self.give_up_at.is_some_and(|at| at <= now) {
                    self.finish(None, &mut out);
                    return out;
                }
                if self.next_at <= now && self.first(Phase::Waiting).is_some() {
                    for phase in self.phases.iter_mut().filter(|p| **p == Phase::Running) {
                        *phase = Phase::Overdue;
                    }
                }
            }
            Input::Doubted(i) => {
                let under_way = |p: &&mut Phase| matches!(p, Phase::Running | Phase::Overdue);
                if let Some(phase) = self.phases.get_mut(i).filter(under_way) {
                    *phase = Phase::Doubted;
                }
            }
            Input::Failed(i, refused) => {
                if let Some(phase) = self.phases.get_mut(i) {
                    *phase = Phase::Over;
                    self.refused |= refused;
                }
            }
            Input::Connected(i) => {
                if let Some(phase) = self.phases.get_mut(i) {
                    *phase = Phase::Over;
                }
                self.finish(Some(i), &mut out);
                return out;
            }
        }
        // With nobody left that may well answer in time, the next one need not wait.
        if self.first(Phase::Running).is_none() {
            self.start(now, &mut out);
        }
        self.judge(now, &mut out);
        out
    }

    fn start(&mut self, now: Duration, out: &mut Vec<Output>) {
        if let Some(i) = self.first(Phase::Waiting) {
            self.phases[i] = Phase::Running;
            self.next_at = now + self.delays[i];
            out.push(Output::Start(i));
        }
    }

    /// All have started: is there anything to wait for?
    fn judge(&mut self, now: Duration, out: &mut Vec<Output>) {
        if self.first(Phase::Waiting).is_some() {
            return;
        }
        let running = [Phase::Running, Phase::Overdue]
            .into_iter()
            .any(|phase| self.first(phase).is_some());
        if !running && self.first(Phase::Doubted).is_none() {
            self.finish(None, out);
        } else if self.refused || !running {
            self.give_up_at.get_or_insert(now + GRACE);
        }
    }

    fn finish(&mut self, winner: Option<usize>, out: &mut Vec<Output>) {
        self.finished = true;
        for (i, phase) in self.phases.iter_mut().enumerate() {
            if matches!(phase, Phase::Running | Phase::Overdue | Phase::Doubted) {
                out.push(Output::Abandon(i));
            }
            *phase = Phase::Over;
        }
        out.push(Output::Finish(winner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Input::{Begin, Connected, Doubted, Failed, Timer};
    use Output::{Abandon, Finish, Start};

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// What happens when, what follows from it, and when the timer is due then.
    type Row<'a> = (u64, Input, &'a [Output], Option<u64>);

    fn play(name: &str, delays: &[u64], rows: &[Row<'_>]) {
        let delays: Vec<Duration> = delays.iter().copied().map(ms).collect();
        let mut race = Race::new(&delays);
        for (at, input, outputs, deadline) in rows {
            let what = format!("{name}: {input:?} at {at} ms");
            assert_eq!(race.step(ms(*at), *input), *outputs, "{what}");
            assert_eq!(race.deadline(), deadline.map(ms), "{what}");
        }
    }

    #[test]
    fn attempts_start_one_after_the_other_and_one_wins() {
        play(
            "the first answers",
            &[250, 250],
            &[
                (0, Begin, &[Start(0)], Some(250)),
                (20, Connected(0), &[Finish(Some(0))], None),
            ],
        );
        play(
            "the first is silent, and late",
            &[250, 400, 250],
            &[
                (0, Begin, &[Start(0)], Some(250)),
                (250, Timer, &[Start(1)], Some(650)),
                (300, Connected(1), &[Abandon(0), Finish(Some(1))], None),
                (301, Connected(0), &[], None),
            ],
        );
        play(
            "the last answers after all were started",
            &[100, 250],
            &[
                (0, Begin, &[Start(0)], Some(100)),
                (100, Timer, &[Start(1)], None),
                (900, Connected(0), &[Abandon(1), Finish(Some(0))], None),
            ],
        );
    }

    #[test]
    fn a_refusal_or_an_icmp_error_starts_the_next_at_once() {
        play(
            "refused",
            &[250, 250, 250],
            &[
                (0, Begin, &[Start(0)], Some(250)),
                (10, Failed(0, true), &[Start(1)], Some(260)),
                (20, Connected(1), &[Finish(Some(1))], None),
            ],
        );
        play(
            "unreachable, and yet it answers",
            &[250, 250],
            &[
                (0, Begin, &[Start(0)], Some(250)),
                (10, Doubted(0), &[Start(1)], None),
                (11, Doubted(0), &[], None),
                (30, Connected(0), &[Abandon(1), Finish(Some(0))], None),
            ],
        );
        play(
            "the second is refused while the first is silent",
            &[250, 250, 250],
            &[
                (0, Begin, &[Start(0)], Some(250)),
                (250, Timer, &[Start(1)], Some(500)),
                (270, Failed(1, true), &[Start(2)], Some(3270)),
                (280, Connected(2), &[Abandon(0), Finish(Some(2))], None),
            ],
        );
        play(
            "one that was overtaken fails: the next has started already",
            &[250, 250, 250],
            &[
                (0, Begin, &[Start(0)], Some(250)),
                (250, Timer, &[Start(1)], Some(500)),
                (260, Failed(0, false), &[], Some(500)),
                (500, Timer, &[Start(2)], None),
            ],
        );
    }

    #[test]
    fn it_ends_when_nothing_is_left_to_wait_for() {
        play("no attempts", &[], &[(0, Begin, &[Finish(None)], None)]);
        play(
            "all refused",
            &[250, 250],
            &[
                (0, Begin, &[Start(0)], Some(250)),
                (10, Failed(0, true), &[Start(1)], Some(3010)),
                (20, Failed(1, true), &[Finish(None)], None),
            ],
        );
        play(
            "one refused, the other silent",
            &[250, 250],
            &[
                (0, Begin, &[Start(0)], Some(250)),
                (250, Timer, &[Start(1)], None),
                (260, Failed(1, true), &[], Some(3260)),
                (3260, Timer, &[Abandon(0), Finish(None)], None),
            ],
        );
        play(
            "all unreachable",
            &[250, 250],
            &[
                (0, Begin, &[Start(0)], Some(250)),
                (10, Doubted(0), &[Start(1)], None),
                (20, Doubted(1), &[], Some(3020)),
                (3020, Timer, &[Abandon(0), Abandon(1), Finish(None)], None),
            ],
        );
        play(
            "all silent: their own time-outs end them",
            &[250, 250],
            &[
                (0, Begin, &[Start(0)], Some(250)),
                (250, Timer, &[Start(1)], None),
                (127_000, Failed(0, false), &[], None),
                (127_250, Failed(1, false), &[Finish(None)], None),
            ],
        );
    }

    #[test]
    fn attempts_are_bounded() {
        let mut race = Race::new(&[ms(250); 100]);
        let mut started = race.step(ms(0), Begin).len();
        while let Some(at) = race.deadline() {
            started += race.step(at, Timer).len();
        }
        assert_eq!(started, MOST_ATTEMPTS);
    }
}
