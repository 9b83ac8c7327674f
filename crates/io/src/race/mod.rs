//! Connecting by the first of several paths and addresses that answers (Happy Eyeballs, RFC 8305), for connections of the stack, sockets
//! of the host and questions to name servers alike.
//!
//! [`race`] is the one function that does so. When attempts start is decided by [`decide::Race`], in which order by [`memory::Memory`].
//! What an attempt is stays with the caller.

pub mod decide;
pub mod memory;

use decide::{Input, Output, Race};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// How long an attempt is waited for before the next one starts where nothing is known of its round trip (RFC 8305 section 5).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// What an attempt has come to.
#[derive(Debug)]
pub enum Step<T> {
    /// The network says that its peer cannot be reached; it goes on. Said once at most.
    Doubted,
    /// It succeeded.
    Connected(T),
    /// It failed.
    Failed(io::Error),
}

/// An attempt under way. Dropping it abandons it.
pub trait Attempt {
    /// What it gives.
    type Won;

    /// Looks at it; not called any more after it succeeded or failed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step<Self::Won>>;
}

impl<T> Attempt for Pin<Box<dyn Future<Output = io::Result<T>> + Send + '_>> {
    type Won = T;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step<T>> {
        self.as_mut().poll(cx).map(|result| match result {
            Ok(won) => Step::Connected(won),
            Err(error) => Step::Failed(error),
        })
    }
}

/// What became of an attempt, for [`memory::Memory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was not started, or not waited for long enough to tell.
    Unknown,
    /// It failed, or was said to be unreachable, or did not answer within its time.
    Bad,
    /// It succeeded.
    Good,
}

/// How a race ended.
#[derive(Debug)]
pub struct Outcome<T> {
    /// What became of each attempt.
    pub fates: Vec<Fate>,
    /// The attempt that succeeded and what it gave, or why none did.
    pub result: io::Result<(usize, T)>,
}

/// One attempt as the race sees it.
struct Lane<A> {
    attempt: Option<A>,
    started: Option<Instant>,
    bad: bool,
}

/// Starts attempts, one for each of `delays`, until one succeeds: the next one when the delay of the one before is over, at once when
/// that has failed. The others are dropped then. Dropping the future ends all.
pub async fn race<A: Attempt>(
    delays: &[Duration],
    mut start: impl FnMut(usize) -> A,
) -> Outcome<A::Won> {
    let began = Instant::now();
    let mut decider = Race::new(delays);
    let mut lanes: Vec<Lane<A>> = delays
        .iter()
        .map(|_| Lane {
            attempt: None,
            started: None,
            bad: false,
        })
        .collect();
    let mut errors: Vec<io::Error> = Vec::new();
    let mut won = None;
    let mut inputs = vec![Input::Begin];
    loop {
        for input in inputs.drain(..) {
            for output in decider.step(began.elapsed(), input) {
                match output {
                    Output::Start(i) => {
                        lanes[i].started = Some(Instant::now());
                        lanes[i].attempt = Some(start(i));
                    }
                    Output::Abandon(i) => lanes[i].attempt = None,
                    Output::Finish(winner) => {
                        return Outcome {
                            fates: fates(&lanes, delays, winner),
                            result: winner
                                .and_then(|i| Some((i, won?)))
                                .ok_or_else(|| most_telling(errors)),
                        };
                    }
                }
            }
        }
        let timer = async {
            match decider.deadline() {
                Some(at) => tokio::time::sleep_until(began + at).await,
                None => std::future::pending().await,
            }
        };
        let mut timer = std::pin::pin!(timer);
        poll_fn(|cx| {
            look(&mut lanes, cx, &mut inputs, &mut won, &mut errors);
            if inputs.is_empty() && timer.as_mut().poll(cx).is_ready() {
                inputs.push(Input::Timer);
            }
            if inputs.is_empty() {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
    }
}

/// Looks at all attempts. A success is told before any failure: that of one attempt may be the reason why the others ended.
fn look<A: Attempt>(
    lanes: &mut [Lane<A>],
    cx: &mut Context<'_>,
    inputs: &mut Vec<Input>,
    won: &mut Option<A::Won>,
    errors: &mut Vec<io::Error>,
) {
    for (i, lane) in lanes.iter_mut().enumerate() {
        while let Some(attempt) = &mut lane.attempt {
            match attempt.poll(cx) {
                Poll::Pending => break,
                Poll::Ready(Step::Doubted) => {
                    lane.bad = true;
                    let text =
                        "no way to the peer: a router said so, or the next hop does not answer";
                    errors.push(io::Error::new(io::ErrorKind::HostUnreachable, text));
                    inputs.push(Input::Doubted(i));
                }
                Poll::Ready(Step::Connected(it)) => {
                    lane.attempt = None;
                    lane.bad = false;
                    if won.is_none() {
                        *won = Some(it);
                        inputs.insert(0, Input::Connected(i));
                    }
                }
                Poll::Ready(Step::Failed(error)) => {
                    lane.attempt = None;
                    lane.bad = true;
                    let refused = error.kind() == io::ErrorKind::ConnectionRefused;
                    errors.push(error);
                    inputs.push(Input::Failed(i, refused));
                }
            }
        }
    }
}

fn fates<A>(lanes: &[Lane<A>], delays: &[Duration], winner: Option<usize>) -> Vec<Fate> {
    let fate = |(i, lane): (usize, &Lane<A>)| {
        let overdue = |started: Instant| started.elapsed() >= delays[i];
        match lane.started {
            _ if winner == Some(i) => Fate::Good,
            Some(started) if lane.bad || overdue(started) => Fate::Bad,
            _ => Fate::Unknown,
        }
    };
    lanes.iter().enumerate().map(fate).collect()
}

/// Of several errors the one that says most: that somebody refused, that the network knows no way, that nothing came.
fn most_telling(errors: Vec<io::Error>) -> io::Error {
    let rank = |error: &io::Error| match error.kind() {
        io::ErrorKind::ConnectionRefused => 0,
        io::ErrorKind::ConnectionReset => 1,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => 2,
        io::ErrorKind::TimedOut => 3,
        _ => 4,
    };
    let best = errors.into_iter().min_by_key(rank);
    best.unwrap_or_else(|| io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Try = Pin<Box<dyn Future<Output = io::Result<usize>> + Send>>;

    /// An attempt that ends after so many milliseconds.
    fn after(ms: u64, result: io::Result<usize>) -> Try {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            result
        })
    }

    fn refused() -> io::Result<usize> {
        Err(io::ErrorKind::ConnectionRefused.into())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_that_answers_is_taken_and_what_became_of_the_others_is_told() {
        let delays = [ATTEMPT_DELAY; 4];
        let began = Instant::now();
        let outcome = race(&delays, |i| match i {
            0 => after(10_000, Ok(0)),
            1 => after(20, refused()),
            2 => after(100, Ok(2)),
            _ => after(0, Ok(3)),
        })
        .await;
        assert_eq!(outcome.result.expect("one answered"), (2, 2));
        assert_eq!(began.elapsed(), Duration::from_millis(250 + 20 + 100));
        assert_eq!(
            outcome.fates,
            [Fate::Bad, Fate::Bad, Fate::Good, Fate::Unknown]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn all_refused_is_refused_and_all_unanswered_is_timed_out() {
        let timed_out = || Err(io::ErrorKind::TimedOut.into());
        let kind = |outcome: Outcome<usize>| outcome.result.expect_err("none answered").kind();
        let delays = [ATTEMPT_DELAY; 2];
        let outcome = race(&delays, |_| after(1, refused())).await;
        assert_eq!(kind(outcome), io::ErrorKind::ConnectionRefused);
        let outcome = race(&delays, |_| after(127_000, timed_out())).await;
        assert_eq!(kind(outcome), io::ErrorKind::TimedOut);
        let outcome = race(&delays, |i| match i {
            0 => after(127_000, timed_out()),
            _ => after(1, refused()),
        })
        .await;
        assert_eq!(kind(outcome), io::ErrorKind::ConnectionRefused);
        let outcome = race(&[], |_| after(1, Ok(0))).await;
        assert_eq!(kind(outcome), io::ErrorKind::TimedOut);
    }
}
