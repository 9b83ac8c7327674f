//! A box that takes one of TCP's own options away, carefully from both SYNs, or sloppily from one.

use serde::{Deserialize, Serialize};

use super::edit::{SACK, SACK_PERMITTED, TIMESTAMPS, WINDOW_SCALE, pad_over};
use super::{Desk, Middlebox, Phase, Way};
use crate::packet::Packet;
use crate::view::TcpView;

/// An option that boxes remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemovableOption {
    /// That SACK is permitted.
    #[default]
    SackPermitted,
    /// SACK blocks.
    Sack,
    /// Window scaling.
    WindowScale,
    /// Timestamps.
    Timestamps,
}

impl RemovableOption {
    const fn kind(self) -> u8 {
        match self {
            Self::SackPermitted => SACK_PERMITTED,
            Self::Sack => SACK,
            Self::WindowScale => WINDOW_SCALE,
            Self::Timestamps => TIMESTAMPS,
        }
    }
}

/// Parameters of [`RemoveOption`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RemoveOptionSpec {
    /// Which option.
    pub option: RemovableOption,
    /// From which packets. From the SYN alone, both ends agree to do without; from the SYN/ACK alone, as sloppy boxes
    /// do, the server believes that it was agreed and the client that it was not.
    pub phases: Vec<Phase>,
    /// Only packets that go this way.
    pub way: Option<Way>,
}

impl Default for RemoveOptionSpec {
    fn default() -> Self {
        Self {
            option: RemovableOption::SackPermitted,
            phases: vec![Phase::Syn, Phase::SynAck],
            way: None,
        }
    }
}

/// Removes an option.
#[derive(Clone, Debug)]
pub struct RemoveOption {
    spec: RemoveOptionSpec,
    touched: u64,
}

impl RemoveOption {
    /// A box with these parameters.
    #[must_use]
    pub fn new(spec: RemoveOptionSpec) -> Self {
        Self { spec, touched: 0 }
    }
}

impl Middlebox for RemoveOption {
    fn name(&self) -> &'static str {
        "remove-option"
    }

    fn handle(&mut self, way: Way, mut packet: Box<Packet>, desk: &mut Desk<'_>) {
        let view = TcpView::of(packet.bytes()).filter(|view| {
            way.is_meant_by(self.spec.way)
                && self.spec.phases.contains(&Phase::of(packet.bytes(), view))
        });
        if let Some(view) = view {
            let kind = self.spec.option.kind();
            let options = view.options(packet.bytes());
            let found: Vec<_> = options
                .filter(|(k, _)| *k == kind)
                .map(|(_, at)| at)
                .collect();
            if !found.is_empty() {
                pad_over(packet.bytes_mut(), &found);
                view.fix_checksums(packet.bytes_mut());
                self.touched += 1;
            }
        }
        desk.forward(way, packet);
    }

    fn touched(&self) -> u64 {
        self.touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middlebox::bench::Bench;
    use crate::view::tests::packet;
    use crate::view::{ACK, SYN};

    /// MSS, SACK permitted, timestamps, window scale.
    const OPTIONS: [u8; 20] = [
        2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7,
    ];

    fn kinds(spec: &RemoveOptionSpec, flags: u8) -> Vec<u8> {
        [false, true]
            .map(|ipv6| {
                let mut bench = Bench::new(RemoveOption::new(spec.clone()));
                let out = bench
                    .one(Way::Out, &packet(ipv6, flags, 1, &OPTIONS, b""))
                    .unwrap();
                let view = TcpView::of(&out).unwrap();
                view.options(&out)
                    .map(|(kind, _)| kind)
                    .collect::<Vec<u8>>()
            })
            .concat()
    }

    #[test]
    fn the_option_is_gone_from_both_syns_and_nothing_else_is() {
        for (option, left) in [
            (RemovableOption::SackPermitted, [2, 8, 3]),
            (RemovableOption::WindowScale, [2, 4, 8]),
            (RemovableOption::Timestamps, [2, 4, 3]),
        ] {
            let spec = RemoveOptionSpec {
                option,
                ..RemoveOptionSpec::default()
            };
            let left = [left, left].concat();
            assert_eq!(kinds(&spec, SYN), left);
            assert_eq!(kinds(&spec, SYN | ACK), left);
            assert_eq!(kinds(&spec, ACK).len(), 8);
        }
    }

    #[test]
    fn a_sloppy_one_forgets_half() {
        let spec = RemoveOptionSpec {
            option: RemovableOption::WindowScale,
            phases: vec![Phase::SynAck],
            way: None,
        };
        assert_eq!(
            (kinds(&spec, SYN).len(), kinds(&spec, SYN | ACK).len()),
            (8, 6)
        );
    }
}
