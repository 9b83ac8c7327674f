//! Random chains of middleboxes.

use super::dice::{Dice, millis};
use super::network::Network;
use crate::middlebox::edit::Keep;
use crate::middlebox::{
    AckCheckSpec, BlackholeSpec, BoxSpec, CoalesceSpec, CorruptSpec, DropAfterHoleSpec,
    DropUnknownSpec, IsnSpec, JoinedOptions, NatSpec, OriginalSpec, Phase, PoliceSpec,
    RemovableOption, RemoveOptionSpec, ResetSpec, RewriteSpec, ShrinkWindowSpec, SplitSpec,
    StripSpec, Unknown, Way, WrongAck,
};
use crate::scenario::units::Size;
use crate::scenario::{EndSpec, PlacedBox};

/// Puts a chain of boxes on every path; many of them are empty.
pub(super) fn draw(dice: &mut Dice, network: &mut Network) {
    let kinds = BoxSpec::all();
    for (index, path) in network.paths.iter().enumerate() {
        let count = dice.weighted(&[45, 35, 14, 6]);
        let mut chain = Vec::new();
        while chain.len() < count {
            let kind = kinds[dice.below(kinds.len())].clone();
            let at = dice.pick(&[EndSpec::First, EndSpec::Second]);
            let spec = fitting(vary(dice, kind, at, path.kilobits), path.mtu);
            // What no TCP survives tells nothing on the only path that plain TCP has.
            if index == 0 && is_deadly(&spec) {
                continue;
            }
            chain.push(PlacedBox { at, spec });
        }
        network.links[index].boxes = chain;
    }
    // Where any byte may be damaged, any may also be part of a replacement: nobody could tell any more.
    let boxes = || network.links.iter().flat_map(|link| &link.boxes);
    let damages = |placed: &PlacedBox| matches!(placed.spec, BoxSpec::Corrupt(_));
    if boxes().any(|placed| matches!(placed.spec, BoxSpec::Rewrite(_))) {
        for link in &mut network.links {
            link.boxes.retain(|placed| !damages(placed));
        }
    }
}

/// Nothing on a path makes packets that the path does not carry.
fn fitting(spec: BoxSpec, mtu: u16) -> BoxSpec {
    match spec {
        BoxSpec::Coalesce(spec) => BoxSpec::Coalesce(CoalesceSpec {
            size: Size(spec.size.0.min(u64::from(mtu))),
            ..spec
        }),
        other => other,
    }
}

const fn is_deadly(spec: &BoxSpec) -> bool {
    match spec {
        BoxSpec::Reset(_) => true,
        BoxSpec::Blackhole(spec) => spec.lasts.is_none(),
        _ => false,
    }
}

fn way(dice: &mut Dice) -> Option<Way> {
    dice.percent(30).then(|| dice.pick(&[Way::Out, Way::In]))
}

fn phases(dice: &mut Dice) -> Vec<Phase> {
    if dice.percent(25) {
        Phase::ALL.to_vec()
    } else {
        vec![dice.pick(&Phase::ALL)]
    }
}

/// A box of the same kind with other parameters. A kind that is not named here takes part as it is.
fn vary(dice: &mut Dice, kind: BoxSpec, at: EndSpec, kilobits: u64) -> BoxSpec {
    let way = way(dice);
    match kind {
        BoxSpec::Strip(_) => BoxSpec::Strip(strip(dice, way)),
        BoxSpec::DropUnknown(_) => BoxSpec::DropUnknown(DropUnknownSpec {
            // Those that let the handshake through and drop what follows are not known to exist, and no stack finds out.
            phases: match dice.pick(&Phase::ALL) {
                Phase::Data | Phase::Other => Phase::ALL.to_vec(),
                phase => vec![phase],
            },
            way,
            ..DropUnknownSpec::default()
        }),
        BoxSpec::Isn(_) => BoxSpec::Isn(IsnSpec {
            sack: dice.percent(70),
            way,
        }),
        BoxSpec::Split(_) => BoxSpec::Split(SplitSpec {
            size: dice.log(100, 1_400) as u16,
            keep: dice.pick(&[Keep::Every, Keep::First, Keep::Last]),
            way,
        }),
        BoxSpec::Corrupt(_) => BoxSpec::Corrupt(CorruptSpec {
            chance: dice.chance(500, 50_000),
            after: Size(if dice.percent(50) {
                dice.log(1, 300_000)
            } else {
                0
            }),
            way,
        }),
        BoxSpec::DropAfterHole(_) => BoxSpec::DropAfterHole(DropAfterHoleSpec { way }),
        BoxSpec::AckCheck(_) => BoxSpec::AckCheck(AckCheckSpec {
            wrong: dice.pick(&[WrongAck::Drop, WrongAck::Correct]),
            way,
        }),
        BoxSpec::ShrinkWindow(_) => BoxSpec::ShrinkWindow(ShrinkWindowSpec {
            most: dice.size(3_000, 100_000),
            after: if dice.percent(30) {
                dice.millis(10, 2_000)
            } else {
                millis(0)
            },
            way,
        }),
        BoxSpec::RemoveOption(_) => BoxSpec::RemoveOption(RemoveOptionSpec {
            option: dice.pick(&[
                RemovableOption::SackPermitted,
                RemovableOption::Sack,
                RemovableOption::WindowScale,
                RemovableOption::Timestamps,
            ]),
            phases: match dice.weighted(&[50, 25, 25]) {
                0 => vec![Phase::Syn, Phase::SynAck],
                1 => vec![Phase::Syn],
                _ => vec![Phase::Syn, Phase::SynAck, Phase::Data, Phase::Other],
            },
            way,
        }),
        BoxSpec::Reset(_) => BoxSpec::Reset(ResetSpec {
            after: if dice.percent(50) {
                dice.millis(1, 2_000)
            } else {
                millis(0)
            },
            after_bytes: dice.size(1, 500_000),
            way,
            times: dice.between(1, 3),
        }),
        BoxSpec::Police(_) => BoxSpec::Police(PoliceSpec {
            rate: dice.rate((kilobits / 20).max(400), (kilobits * 2).max(800)),
            burst: dice.size(8_000, 200_000),
            way,
        }),
        BoxSpec::Blackhole(_) => BoxSpec::Blackhole(BlackholeSpec {
            after: dice.millis(10, 3_000),
            lasts: dice.percent(60).then(|| dice.millis(50, 6_000)),
            way,
            tells: dice.percent(30),
        }),
        BoxSpec::Nat(_) => BoxSpec::Nat(NatSpec {
            idle: dice.millis(2_000, 60_000),
            unknown: dice.pick(&[Unknown::Drop, Unknown::Reset, Unknown::Remap]),
            // The client is inside.
            inside: match at {
                EndSpec::First => Way::Out,
                EndSpec::Second => Way::In,
            },
            addresses: Vec::new(),
        }),
        BoxSpec::Coalesce(_) => BoxSpec::Coalesce(CoalesceSpec {
            wait: dice.millis(1, 10),
            segments: dice.between(2, 10) as u16,
            keep: dice.pick(&[JoinedOptions::First, JoinedOptions::Last]),
            way,
            ..CoalesceSpec::default()
        }),
        BoxSpec::Rewrite(_) => BoxSpec::Rewrite(RewriteSpec {
            // One byte, which is found wherever segments begin.
            find: dice.pick(&["~", "a", "Q", "0"]).to_owned(),
            // Not shorter: what is missing at the end of a mapping, no checksum can tell before more data comes.
            replace: dice.pick(&["-", "xy", "rewritten"]).to_owned(),
            way,
        }),
        BoxSpec::Original(_) => BoxSpec::Original(OriginalSpec {
            memory: dice.size(10_000, 1_000_000),
            way,
        }),
        #[allow(unreachable_patterns, reason = "kinds that come later")]
        other => other,
    }
}

fn strip(dice: &mut Dice, way: Option<Way>) -> StripSpec {
    let mut spec = StripSpec {
        phases: phases(dice),
        way,
        cut: dice.percent(30),
        ..StripSpec::default()
    };
    match dice.weighted(&[60, 10, 15, 15]) {
        0 => {}
        1 => spec.after = dice.log(1, 200),
        2 => spec.after_time = dice.millis(1, 2_000),
        _ => spec.after_bytes = dice.size(1, 500_000),
    }
    spec
}
