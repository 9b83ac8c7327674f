//! Which of the mechanisms work that keep a connection from being slower than its best path.

use core::fmt;
use core::str::FromStr;

/// The mechanisms of NSDI 2012 section 4.2 and what belongs to them. Each can be switched on a living connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mechanisms {
    /// M1, opportunistic retransmission: what holds up the window's trailing edge is sent again on a subflow that has
    /// room for nothing else; and so is what would come late at the end of the stream or before a pause.
    pub opportunistic: bool,
    /// M2, penalising: the subflow that holds it up halves its window, at most once a round trip.
    pub penalise: bool,
    /// M3, autotuning: buffers grow from small ones to `2 * sum(rate) * longest round trip`, measured so that what is measured can
    /// double within a round trip: the rate has twice its room. Without it they have their largest size from the start; switched
    /// on later it tunes the send buffer alone, for a window that was announced is not taken back (RFC 9293 section 3.8.6).
    pub autotune: bool,
    /// M4, capping: a subflow's window stays where its round trip is twice that of the empty path.
    pub cap: bool,
    /// A subflow gets no new data that would arrive so late that the others stood still before. For the scheduler
    /// [`Guarded`](crate::sched::Scheduler::Guarded) alone: one that somebody names decides by itself.
    pub guard: bool,
}

impl Mechanisms {
    /// None of them: Multipath TCP as NSDI 2012 calls it regular.
    pub const NONE: Self = Self {
        opportunistic: false,
        penalise: false,
        autotune: false,
        cap: false,
        guard: false,
    };

    /// The names that users write, in the order of the fields.
    pub const NAMES: [&'static str; 5] = ["opportunistic", "penalise", "autotune", "cap", "guard"];

    fn switches(&mut self) -> [&mut bool; 5] {
        let Self {
            opportunistic,
            penalise,
            autotune,
            cap,
            guard,
        } = self;
        [opportunistic, penalise, autotune, cap, guard]
    }
}

impl Default for Mechanisms {
    fn default() -> Self {
        Self {
            opportunistic: true,
            penalise: true,
            guard: true,
            ..Self::NONE
        }
    }
}

impl fmt::Display for Mechanisms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = *self;
        let mut first = true;
        for (name, on) in Self::NAMES.into_iter().zip(all.switches()) {
            if *on {
                write!(f, "{}{name}", if first { "" } else { "," })?;
                first = false;
            }
        }
        if first {
            f.write_str("none")?;
        }
        Ok(())
    }
}

/// A mechanism of that name does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownMechanism;

impl fmt::Display for UnknownMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown mechanism; there are: none, default")?;
        Mechanisms::NAMES
            .iter()
            .try_for_each(|known| write!(f, ", {known}"))
    }
}

impl core::error::Error for UnknownMechanism {}

impl FromStr for Mechanisms {
    type Err = UnknownMechanism;

    /// Names with commas between them; `none`, and `default` for what is on unless somebody chooses.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut chosen = Self::NONE;
        match text {
            "none" => return Ok(chosen),
            "default" => return Ok(Self::default()),
            _ => {}
        }
        for word in text.split(',') {
            let at = Self::NAMES.iter().position(|name| *name == word);
            *chosen.switches()[at.ok_or(UnknownMechanism)?] = true;
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn they_are_read_as_they_are_written() {
        for bits in 0_u32..32 {
            let mut some = Mechanisms::NONE;
            for (n, on) in some.switches().into_iter().enumerate() {
                *on = bits >> n & 1 == 1;
            }
            assert_eq!(some.to_string().parse(), Ok(some));
        }
        assert_eq!("default".parse(), Ok(Mechanisms::default()));
        assert_eq!("cap,warp".parse::<Mechanisms>(), Err(UnknownMechanism));
        assert!(UnknownMechanism.to_string().contains("penalise"));
    }
}
