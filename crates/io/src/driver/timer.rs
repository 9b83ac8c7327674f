//! One timer for the next deadline, precise to microseconds: pacing at high rates asks for less than the millisecond that the
//! runtime's own timers are rounded to.

use crate::sys::watch::watch;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The half that is armed, under the driver's lock.
#[derive(Debug)]
pub(super) struct Alarm {
    file: OwnedFd,
    armed: Option<Duration>,
}

/// The half that waits.
#[derive(Debug)]
pub(super) struct AlarmWait(AsyncFd<OwnedFd>);

pub(super) fn alarm() -> io::Result<(Alarm, AlarmWait)> {
    let file = timerfd_create(
        TimerfdClockId::Monotonic,
        TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
    )?;
    let wait = watch(file.try_clone()?, Interest::READABLE)?;
    Ok((Alarm { file, armed: None }, AlarmWait(wait)))
}

impl Alarm {
    /// Makes sure that the alarm rings at `deadline` at the latest; both are times since the driver's start. An alarm that rings
    /// early costs a look at the deadlines; moving it on every acknowledgement would cost a system call each.
    pub(super) fn ensure(&mut self, now: Duration, deadline: Option<Duration>) {
        let Some(deadline) = deadline else { return };
        if self.armed.is_some_and(|armed| armed <= deadline) {
            return;
        }
        // Zero would disarm it.
        let left = deadline.saturating_sub(now).max(Duration::from_nanos(1));
        let spec = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: left.as_secs().min(1 << 30) as i64,
                tv_nsec: left.subsec_nanos().into(),
            },
        };
        if timerfd_settime(&self.file, TimerfdTimerFlags::empty(), &spec).is_ok() {
            self.armed = Some(deadline);
        }
    }

    /// It has rung.
    pub(super) fn rung(&mut self) {
        self.armed = None;
    }
}

impl AlarmWait {
    /// Waits until the alarm rings.
    pub(super) async fn wait(&self) -> io::Result<()> {
        loop {
            let mut guard = self.0.readable().await?;
            let mut count = [0; 8];
            match rustix::io::read(guard.get_inner().as_fd(), &mut count) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::AGAIN) => guard.clear_ready(),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}
