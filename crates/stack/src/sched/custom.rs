//! A scheduler from outside of this crate.
//!
//! What it costs: the policies of this crate are the variants of an enum and are called directly, as before. One from outside is
//! called through a pointer, once for each question: at most once for each burst of segments that leaves.

use alloc::boxed::Box;
use core::fmt;
use core::hash::{Hash, Hasher};

use super::{Choice, Need, PathView, candidates};

/// A scheduler: one value for each connection.
///
/// It is asked where new data goes, at the moment when a segment can leave. What was sent before goes where it arrives first, which is
/// not its business.
pub trait Schedule: fmt::Debug + Send {
    /// Chooses the subflow for what is waiting, among [`usable`] ones with [room](super::Room::is_open); another choice counts as
    /// [`Choice::Wait`]. After `Wait` it is asked again when something changed: an acknowledgement, a timeout, a path. With nothing
    /// in flight nothing changes, so a scheduler that waits then stalls its connection. `paths` is never empty.
    fn pick(&mut self, paths: &[PathView], need: &Need) -> Choice;
}

/// The subflows among which a scheduler may choose: those of the best class that exists (flag B of RFC 8684, paths that do not
/// answer), with room or without.
pub fn usable<'a>(paths: &'a [PathView], need: &Need) -> impl Iterator<Item = &'a PathView> {
    candidates(paths, need)
}

/// A [`Schedule`] with its name, as the options of a connection hold it: a `static` of the application.
#[derive(Clone, Copy)]
pub struct CustomScheduler {
    name: &'static str,
    make: fn() -> Box<dyn Schedule>,
}

impl CustomScheduler {
    /// A scheduler by its name, which must be its own, and what makes one for a connection.
    pub const fn new(name: &'static str, make: fn() -> Box<dyn Schedule>) -> Self {
        Self { name, make }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl PartialEq for CustomScheduler {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for CustomScheduler {}

impl Hash for CustomScheduler {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for CustomScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The scheduler from outside that a connection has, if it has one.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    scheduler: Option<(&'static CustomScheduler, Box<dyn Schedule>)>,
    /// This one is being asked. Found here by the next question, it has not come back: it panicked.
    asked: Option<&'static CustomScheduler>,
}

impl Outside {
    /// Asks it; it is made where there is none yet, or another one. `None`: it panicked, now or before, and is not asked any more.
    pub(crate) fn pick(
        &mut self,
        wanted: &'static CustomScheduler,
        paths: &[PathView],
        need: &Need,
    ) -> Option<Choice> {
        if self.asked == Some(wanted) {
            return None;
        }
        self.asked = Some(wanted);
        let known = self.scheduler.take().filter(|(of, _)| *of == wanted);
        let (_, mut scheduler) = known.unwrap_or_else(|| (wanted, (wanted.make)()));
        let choice = scheduler.pick(paths, need);
        self.asked = None;
        self.scheduler = Some((wanted, scheduler));
        let possible = |chosen| {
            let mut usable = candidates(paths, need);
            usable.any(|path| path.subflow == chosen && path.room.is_open())
        };
        Some(match choice {
            Choice::Send(chosen) if possible(chosen) => choice,
            Choice::Send(_) | Choice::Wait => Choice::Wait,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{backup, full, path};
    use super::*;
    use crate::ids::SubflowId;

    /// Each subflow in turn, usable or not.
    #[derive(Debug, Default)]
    struct Blindly(usize);

    impl Schedule for Blindly {
        fn pick(&mut self, paths: &[PathView], _need: &Need) -> Choice {
            let at = self.0 % paths.len();
            self.0 += 1;
            Choice::Send(paths[at].subflow)
        }
    }

    #[test]
    fn a_choice_that_is_not_possible_counts_as_waiting() {
        static BLINDLY: CustomScheduler =
            CustomScheduler::new("blindly", || Box::new(Blindly::default()));
        let paths = [path(0, 10), full(path(1, 10)), backup(path(2, 10))];
        let mut outside = Outside::default();
        let need = Need::fresh(1_000);
        let choices = [0; 4].map(|_| outside.pick(&BLINDLY, &paths, &need));
        let first = Choice::Send(SubflowId(0));
        assert_eq!(
            choices,
            [first, Choice::Wait, Choice::Wait, first].map(Some)
        );
    }

    #[test]
    fn another_scheduler_begins_anew() {
        static ONE: CustomScheduler = CustomScheduler::new("one", || Box::new(Blindly(0)));
        static TWO: CustomScheduler = CustomScheduler::new("two", || Box::new(Blindly(1)));
        let paths = [path(0, 10), path(1, 10)];
        let mut outside = Outside::default();
        let need = Need::fresh(1_000);
        let choices = [&ONE, &TWO, &ONE].map(|of| outside.pick(of, &paths, &need));
        let wanted = [0, 1, 0].map(|id| Some(Choice::Send(SubflowId(id))));
        assert_eq!(choices, wanted);
    }
}
