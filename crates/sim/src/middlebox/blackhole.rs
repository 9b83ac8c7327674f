//! A path that stops to carry anything after a while, and perhaps carries again later: without a word, or with a router's word
//! for every packet.

use manypath_tcp::time::{Duration, Instant};
use serde::{Deserialize, Serialize};

use super::{Desk, Middlebox, Way};
use crate::icmp::{self, Complaint};
use crate::packet::Packet;
use crate::scenario::units::Span;

/// Parameters of [`Blackhole`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct BlackholeSpec {
    /// How long after its first packet it begins.
    pub after: Span,
    /// How long it lasts; for ever without it.
    pub lasts: Option<Span>,
    /// Only packets that go this way.
    pub way: Option<Way>,
    /// The sender of each packet is told by ICMP that its peer cannot be reached (RFC 792, RFC 4443 section 3.1).
    pub tells: bool,
}

impl Default for BlackholeSpec {
    fn default() -> Self {
        Self {
            after: Span(Duration::from_secs(1)),
            lasts: None,
            way: None,
            tells: false,
        }
    }
}

/// Drops everything from a time on.
#[derive(Clone, Debug)]
pub struct Blackhole {
    spec: BlackholeSpec,
    first: Option<Instant>,
    touched: u64,
}

impl Blackhole {
    /// A box with these parameters.
    #[must_use]
    pub fn new(spec: BlackholeSpec) -> Self {
        Self {
            spec,
            first: None,
            touched: 0,
        }
    }
}

impl Middlebox for Blackhole {
    fn name(&self) -> &'static str {
        "blackhole"
    }

    fn handle(&mut self, way: Way, packet: Box<Packet>, desk: &mut Desk<'_>) {
        let first = *self.first.get_or_insert(desk.now);
        let begins = first + self.spec.after.0;
        let ends = self.spec.lasts.map(|lasts| begins + lasts.0);
        let swallows = desk.now >= begins && ends.is_none_or(|ends| desk.now < ends);
        if swallows && way.is_meant_by(self.spec.way) {
            self.touched += 1;
            if self.spec.tells {
                let told = icmp::message(packet.bytes(), Complaint::NoRoute, desk.pool);
                if let Some(told) = told {
                    desk.forward(way.reversed(), told);
                }
            }
            desk.drop(packet, "blackhole");
        } else {
            desk.forward(way, packet);
        }
    }

    fn touched(&self) -> u64 {
        self.touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middlebox::bench::Bench;
    use crate::view::ACK;
    use crate::view::tests::packet;

    #[test]
    fn it_begins_ends_and_has_a_direction() {
        let mut bench = Bench::new(Blackhole::new(BlackholeSpec {
            after: Span(Duration::from_millis(10)),
            lasts: Some(Span(Duration::from_millis(5))),
            way: Some(Way::In),
            ..BlackholeSpec::default()
        }));
        let bytes = packet(true, ACK, 1, &[], b"data");
        let mut passes = |ms, way| {
            bench.now = Instant::from_millis(ms);
            bench.one(way, &bytes).is_some()
        };
        // The time begins with the first packet.
        assert!(passes(100, Way::Out) && passes(109, Way::In));
        assert!(!passes(110, Way::In) && passes(111, Way::Out) && !passes(114, Way::In));
        assert!(passes(115, Way::In));
        assert_eq!(bench.middlebox.touched(), 2);
    }

    #[test]
    fn it_may_tell_the_sender() {
        let mut bench = Bench::new(Blackhole::new(BlackholeSpec {
            after: Span(Duration::ZERO),
            tells: true,
            ..BlackholeSpec::default()
        }));
        bench.expect_checksums = false;
        let bytes = packet(false, ACK, 1, &[], b"data");
        let out = bench.pass(Way::Out, &bytes);
        let [(Way::In, told)] = &out[..] else {
            panic!("one message, to the sender: {out:?}");
        };
        // ICMP, destination unreachable, and the packet that it is about.
        assert_eq!((told[9], told[20]), (1, 3));
        assert_eq!(told[28..], bytes);
    }

    #[test]
    fn without_an_end_it_lasts_for_ever() {
        let mut bench = Bench::new(Blackhole::new(BlackholeSpec::default()));
        let bytes = packet(false, ACK, 1, &[], b"data");
        assert!(bench.one(Way::Out, &bytes).is_some());
        bench.now = Instant::from_secs(1_000_000);
        assert!(bench.one(Way::Out, &bytes).is_none());
    }
}
