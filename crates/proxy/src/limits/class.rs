//! Classes: sets of connections that share a rate, by where a client is, who it is and where it goes.

use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use manypath_io::Host;
use manypath_stack::ids::ConnId;
use manypath_stack::{ClassId, Limited, RateLimit};
use serde::Serialize;

use super::admission::{Admission, Seats};
use super::calendar::Hours;
use super::order::{self, MTU};
use super::pace::{Pace, Rein};
use super::path::Priority;
use super::quota::{QuotaSpec, Ruling};
use crate::target::rules::{Question, Rule};

/// A class as a configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassSpec {
    /// Its name, for `status` and `ctl`.
    pub name: String,
    /// Which connections are in it: its `then` is not asked.
    #[serde(rename = "match")]
    pub matches: Rule,
    /// Bits a second to targets.
    pub up: Option<u64>,
    /// Bits a second to clients.
    pub down: Option<u64>,
    /// Its share of a path that is limited, while others want it too.
    pub weight: Option<NonZeroU16>,
    /// How many connections it may have, and begin.
    #[serde(flatten)]
    pub admission: Admission,
    /// Other rates at some hours; the first that holds counts.
    pub schedule: Vec<ClassHours>,
    /// How much it may carry.
    pub quota: Vec<QuotaSpec>,
}

/// What a class may send at some hours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassHours {
    /// The hours.
    pub when: Hours,
    /// Bits a second to targets.
    pub up: Option<u64>,
    /// Bits a second to clients.
    pub down: Option<u64>,
}

/// Bits a second of a class that is to carry nothing: acknowledgements alone pass.
const STANDSTILL: u64 = 1;

/// Bits a second up and down.
pub(super) type Rates = [Option<u64>; 2];

impl ClassSpec {
    /// The rates at a time, with what quotas say.
    pub(super) fn rates_at(&self, now: Timestamp, ruling: Ruling) -> Rates {
        if ruling.priority == Priority::Never {
            return [Some(STANDSTILL); 2];
        }
        let mut hours = self.schedule.iter();
        let scheduled = hours.find(|hours| hours.when.hold(now));
        let rates = scheduled.map_or([self.up, self.down], |hours| [hours.up, hours.down]);
        rates.map(|rate| rate.into_iter().chain(ruling.rate).min())
    }
}

/// The directions of a class, as they are named.
pub(super) const WAYS: [&str; 2] = ["up", "down"];

/// The burst of a rate where none is said.
pub(super) fn burst_of(rate: Option<u64>) -> u64 {
    rate.map_or(0, |rate| order::limit(rate, None, MTU).burst)
}

/// One direction of a class.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) id: ClassId,
    pub(super) pace: Arc<Pace>,
    /// Bytes that our stack has sent for it, before the last look and at it.
    ours: Mutex<(u64, u64)>,
}

/// A class in force.
#[derive(Debug)]
pub(crate) struct Class {
    pub(super) up: Lane,
    pub(super) down: Lane,
    pub(super) seats: Arc<Seats>,
}

/// A stream, for who puts it into a class while others write to it.
#[derive(Clone, Debug)]
pub(crate) enum Bridle {
    /// Of the host.
    Host(Rein),
    /// Of our stack.
    Ours(Host, ConnId),
}

impl Bridle {
    fn join(&self, lane: Option<&Lane>) {
        match self {
            Self::Host(rein) => rein.keep(lane.map(|lane| Arc::clone(&lane.pace))),
            Self::Ours(host, id) => {
                // A connection that is over is in no class.
                let _ = host.classify(*id, [lane.map(|lane| lane.id), None]);
            }
        }
    }
}

/// The classes of a configuration, in its order.
#[derive(Clone, Debug, Default)]
pub struct Classes(pub(super) Arc<[(Rule, Arc<Class>)]>);

impl Classes {
    fn find(&self, asked: &Question<'_>) -> Option<&Class> {
        let class = self.0.iter().find(|(rule, _)| rule.is_for(asked));
        class.map(|(_, class)| class.as_ref())
    }

    /// The places of the first class that matches.
    pub(crate) fn seats(&self, asked: &Question<'_>) -> Option<&Arc<Seats>> {
        self.find(asked).map(|class| &class.seats)
    }

    /// Puts both streams of a request into the first class that matches, or into none. `inside` leads to the client.
    pub(crate) fn sort(&self, asked: &Question<'_>, inside: &Bridle, outside: &Bridle) {
        if self.0.is_empty() {
            return;
        }
        let class = self.find(asked);
        inside.join(class.map(|class| &class.down));
        outside.join(class.map(|class| &class.up));
    }
}

/// A class that there was, and the rates that were told last.
#[derive(Debug)]
pub(super) struct KnownClass {
    pub(super) class: Arc<Class>,
    pub(super) told: Option<(Rates, bool)>,
}

impl KnownClass {
    pub(super) fn new(next: &mut u32) -> Self {
        let mut lane = || {
            *next += 1;
            Lane {
                id: ClassId(*next),
                pace: Arc::default(),
                ours: Mutex::default(),
            }
        };
        let class = Class {
            up: lane(),
            down: lane(),
            seats: Arc::default(),
        };
        Self {
            class: Arc::new(class),
            told: None,
        }
    }

    /// False: it is told already.
    pub(super) fn tell(&mut self, host: Option<&Host>, rates: Rates, counted: bool) -> bool {
        if self.told == Some((rates, counted)) {
            return false;
        }
        self.told = Some((rates, counted));
        for ((_, lane), rate) in self.class.lanes().into_iter().zip(rates) {
            lane.limit(host, rate, None);
            if let Some(host) = host.filter(|_| counted && rate.is_none()) {
                // The stack counts where there is a limit.
                let _ = host.limit(Limited::Class(lane.id), Some(UNLIMITED));
            }
        }
        true
    }
}

/// How a limit is shown that only counts.
pub(super) const COUNTS_ONLY: (u64, u64) = (UNLIMITED.bits_per_sec, UNLIMITED.burst);

/// A limit that only counts.
const UNLIMITED: RateLimit = RateLimit {
    bits_per_sec: u64::MAX,
    burst: u64::MAX,
};

impl Class {
    /// Its directions, by their names.
    pub(super) fn lanes(&self) -> [(&'static str, &Lane); 2] {
        let [up, down] = WAYS;
        [(up, &self.up), (down, &self.down)]
    }

    /// Its share, either way.
    pub(super) fn weigh(&self, host: &Host, weight: Option<NonZeroU16>) {
        for (_, lane) in self.lanes() {
            host.weigh(lane.id, weight);
        }
    }
}

impl Lane {
    /// Bytes that streams of the host have written, and that our stack has sent.
    pub(super) fn carried(&self, host: Option<&Host>) -> u64 {
        let limit = host.and_then(|host| host.limit_of(Limited::Class(self.id)));
        let mut ours = self.ours.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(now) = limit.map(|limit| limit.sent) {
            let (total, seen) = *ours;
            // One that was set anew counts from zero.
            let new = now.checked_sub(seen).unwrap_or(now);
            *ours = (total + new, now);
        }
        ours.0 + self.pace.written()
    }

    pub(super) fn limit(&self, host: Option<&Host>, rate: Option<u64>, burst: Option<u64>) {
        self.pace.set(rate);
        if let Some(host) = host {
            let limit = rate.map(|rate| order::limit(rate, burst, MTU));
            // Classes need not be there before.
            let _ = host.limit(Limited::Class(self.id), limit);
        }
    }
}
