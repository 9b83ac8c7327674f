//! A timed run ends in time, whatever became of the peer.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::time::Instant;

/// How long nothing may move once the time of a run is over. Retransmissions over a bad path may need that; TCP alone would
/// try for a quarter of an hour.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(250);

/// Does `work`, but gives up when `marks` have stayed the same for [`PATIENCE`] after the time of the run, if it has one.
/// A slow path that empties its queue bit by bit is waited for.
///
/// # Errors
/// Those of the work; `TimedOut` when it was given up.
pub(super) async fn unless_stalled<T, M: PartialEq>(
    time: Option<Duration>,
    marks: impl Fn() -> M,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let Some(time) = time else {
        return work.await;
    };
    let watch = async {
        tokio::time::sleep(time).await;
        let (mut seen, mut since) = (marks(), Instant::now());
        while since.elapsed() < PATIENCE {
            tokio::time::sleep(PAUSE).await;
            let now = marks();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
    };
    tokio::select! {
        result = work => result,
        () = watch => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "the time is over, and nothing has moved for {} s: the peer, or every path to it, is gone",
                PATIENCE.as_secs()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const TIME: Option<Duration> = Some(Duration::from_secs(5));

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_is_gone_is_given_up_soon_after_the_time() {
        let started = Instant::now();
        let never = std::future::pending::<io::Result<()>>();
        let error = unless_stalled(TIME, || 1, never)
            .await
            .expect_err("nothing moves");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let took = started.elapsed();
        assert!((15..17).contains(&took.as_secs()), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_end_is_waited_for() {
        let left = Cell::new(20);
        let slow = async {
            while left.get() > 0 {
                tokio::time::sleep(Duration::from_secs(8)).await;
                left.set(left.get() - 1);
            }
            Ok(7)
        };
        assert_eq!(
            unless_stalled(TIME, || left.get(), slow).await.ok(),
            Some(7)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_time_there_is_no_hurry() {
        let slow = async {
            tokio::time::sleep(Duration::from_secs(1000)).await;
            Ok(7)
        };
        assert_eq!(unless_stalled(None, || 1, slow).await.ok(), Some(7));
    }
}
