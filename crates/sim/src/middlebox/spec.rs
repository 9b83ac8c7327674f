//! All boxes as plain data: what a scenario file says, what a program draws at random.

use serde::{Deserialize, Serialize};

use super::*;

/// Declares the sum of all boxes' parameters: what is true of each is written once.
macro_rules! boxes {
    ($($(#[$doc:meta])* $name:ident($spec:ident) = $word:literal,)*) => {
        /// A middlebox with its parameters. In a scenario file it is a table whose `kind` is its name; every parameter
        /// has a default.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case", tag = "kind")]
        pub enum BoxSpec {
            $($(#[$doc])* $name($spec),)*
        }

        impl BoxSpec {
            /// Every kind of box with its default parameters.
            #[must_use]
            pub fn all() -> Vec<Self> {
                vec![$(Self::$name($spec::default()),)*]
            }

            /// The box's name, as [`Middlebox::name`] says it.
            #[must_use]
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => $word,)*
                }
            }

            /// The box meant, as it is before its first packet.
            #[must_use]
            pub fn build(&self) -> Box<dyn Middlebox> {
                match self {
                    $(Self::$name(spec) => Box::new($name::new(spec.clone())),)*
                }
            }
        }
    };
}

boxes! {
    /// Removes Multipath TCP options.
    Strip(StripSpec) = "strip",
    /// Drops packets with unknown options.
    DropUnknown(DropUnknownSpec) = "drop-unknown",
    /// Translates addresses and ports, and forgets silent connections.
    Nat(NatSpec) = "nat",
    /// Gives connections other sequence numbers.
    Isn(IsnSpec) = "isn",
    /// Divides segments.
    Split(SplitSpec) = "split",
    /// Joins segments.
    Coalesce(CoalesceSpec) = "coalesce",
    /// Rewrites what applications say.
    Rewrite(RewriteSpec) = "rewrite",
    /// Damages payload.
    Corrupt(CorruptSpec) = "corrupt",
    /// Acknowledges by itself.
    Proxy(ProxySpec) = "proxy",
    /// Drops data after a hole.
    DropAfterHole(DropAfterHoleSpec) = "drop-after-hole",
    /// Drops or corrects acknowledgements of data that it did not see.
    AckCheck(AckCheckSpec) = "ack-check",
    /// Makes retransmissions say what was sent first.
    Original(OriginalSpec) = "original",
    /// Makes windows smaller.
    ShrinkWindow(ShrinkWindowSpec) = "shrink-window",
    /// Removes one of TCP's own options.
    RemoveOption(RemoveOptionSpec) = "remove-option",
    /// Forges resets.
    Reset(ResetSpec) = "reset",
    /// Drops what comes too fast.
    Police(PoliceSpec) = "police",
    /// Drops everything from a time on.
    Blackhole(BlackholeSpec) = "blackhole",
}

impl BoxSpec {
    /// It may change payload, so that applications over TCP read something else than was written.
    #[must_use]
    pub const fn rewrites(&self) -> bool {
        matches!(self, Self::Corrupt(_) | Self::Rewrite(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middlebox::bench::Bench;
    use crate::rng::Rng;
    use crate::view::tests::{packet, reversed};
    use crate::view::{ACK, SYN};

    #[test]
    fn every_box_is_read_as_it_is_written_and_knows_its_name() {
        for spec in BoxSpec::all() {
            let text = toml::to_string(&spec).unwrap();
            assert!(
                text.contains(&format!("kind = \"{}\"", spec.kind())),
                "{text}"
            );
            assert_eq!(toml::from_str::<BoxSpec>(&text).unwrap(), spec, "{text}");
            assert_eq!(spec.build().name(), spec.kind());
            let short = format!("kind = \"{}\"", spec.kind());
            assert_eq!(toml::from_str::<BoxSpec>(&short).unwrap(), spec);
            let wrong = format!("{short}\nnonsense = 1");
            let error = toml::from_str::<BoxSpec>(&wrong).unwrap_err().to_string();
            assert!(error.contains("nonsense"), "{error}");
        }
    }

    impl Middlebox for Box<dyn Middlebox> {
        fn name(&self) -> &'static str {
            (**self).name()
        }
        fn handle(&mut self, way: Way, packet: Box<Packet>, desk: &mut Desk<'_>) {
            (**self).handle(way, packet, desk);
        }
        fn deadline(&self) -> Option<Instant> {
            (**self).deadline()
        }
        fn on_deadline(&mut self, desk: &mut Desk<'_>) {
            (**self).on_deadline(desk);
        }
        fn touched(&self) -> u64 {
            (**self).touched()
        }
    }

    #[test]
    fn no_damage_makes_a_box_panic_or_keep_packets_for_ever() {
        for spec in BoxSpec::all() {
            let mut bench = Bench::new(spec.build());
            bench.expect_checksums = false;
            let mut rng = Rng::new(7);
            for round in 0..3_000u64 {
                let flags =
                    [SYN, SYN | ACK, ACK, ACK, ACK, rng.bits() as u8][rng.below(6) as usize];
                let options: Vec<u8> = (0..rng.below(11) * 4).map(|_| rng.bits() as u8).collect();
                let payload: Vec<u8> = (0..rng.below(40)).map(|_| rng.bits() as u8).collect();
                let seq = (rng.bits() % 200) as u32;
                let mut bytes = packet(rng.below(2) == 0, flags, seq, &options, &payload);
                let way = if rng.below(2) == 0 { Way::Out } else { Way::In };
                if way == Way::In {
                    bytes = reversed(bytes);
                }
                for _ in 0..rng.below(4) {
                    let at = rng.below(bytes.len() as u64) as usize;
                    bytes[at] = rng.bits() as u8;
                }
                let cut = rng.below(3) as usize * rng.below(30) as usize;
                bytes.truncate(bytes.len().saturating_sub(cut));
                bench.pass(way, &bytes);
                bench.until(Instant::from_millis(round));
            }
            bench.until(Instant::from_secs(100_000));
            assert!(bench.kept() <= 64, "{} keeps {}", spec.kind(), bench.kept());
        }
    }
}
