//! Random networks: one to four paths between a client and a server, side by side or behind one router.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use manypath_tcp::time::Duration;

use super::dice::{Dice, kilobits, millis};
use crate::scenario::units::{Depth, Percent, Size, Span, Speed};
use crate::scenario::{
    HostSpec, InterfaceSpec, LineSpec, LinkSpec, LossModel, LossSpec, LossSpecs, ReorderSpec,
    RouterSpec, SpreadSpec,
};

/// One path.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// From client to server and back, in kilobits a second.
    pub(super) kilobits: u64,
    /// One way, in milliseconds.
    pub(super) delay: u64,
    /// The client's address on it.
    pub(super) client: IpAddr,
    /// The server's address on it, if it is not behind a router.
    pub(super) server: Option<IpAddr>,
    pub(super) mtu: u16,
}

/// A network without anything on it.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) paths: Vec<Path>,
    pub(super) hosts: Vec<HostSpec>,
    pub(super) routers: Vec<RouterSpec>,
    pub(super) links: Vec<LinkSpec>,
}

/// The name of a path's link.
pub(super) fn link_name(path: usize) -> String {
    format!("path{path}")
}

/// The name of a host's interface on a path.
pub(super) fn interface_name(path: usize) -> String {
    format!("i{path}")
}

/// Draws a network.
pub(super) fn draw(dice: &mut Dice) -> Network {
    let count = 1 + dice.weighted(&[25, 40, 20, 15]);
    let routed = dice.percent(50);
    let paths: Vec<Path> = (0..count).map(|index| path(dice, index, routed)).collect();
    let client = HostSpec {
        name: "client".into(),
        interfaces: interfaces(dice, &paths, |path| Some(path.client)),
        deaf_to_old_end: None,
    };
    let server = HostSpec {
        name: "server".into(),
        interfaces: if routed {
            vec![behind_router(dice, &paths)]
        } else {
            interfaces(dice, &paths, |path| path.server)
        },
        deaf_to_old_end: None,
    };
    let mut links: Vec<LinkSpec> = paths
        .iter()
        .enumerate()
        .map(|(index, path)| link(dice, index, path))
        .collect();
    let mut routers = Vec::new();
    if routed {
        routers.push(RouterSpec {
            name: "router".into(),
            icmp: dice.percent(80),
            spread: SpreadSpec::default(),
        });
        links.push(access());
    }
    Network {
        paths,
        hosts: vec![client, server],
        routers,
        links,
    }
}

fn address(network: usize, ipv6: bool, host: u8) -> IpAddr {
    let network = network as u8 + 1;
    if ipv6 {
        Ipv6Addr::new(0xfd00, u16::from(network), 0, 0, 0, 0, 0, u16::from(host)).into()
    } else {
        Ipv4Addr::new(10, network, 0, host).into()
    }
}

fn path(dice: &mut Dice, index: usize, routed: bool) -> Path {
    let ipv6 = dice.percent(30);
    Path {
        kilobits: dice.log(500, 100_000),
        delay: dice.log(1, 120),
        client: address(index, ipv6, 2),
        server: (!routed).then(|| address(index, ipv6, 1)),
        mtu: if dice.percent(15) {
            dice.between(1280, 1499) as u16
        } else {
            1500
        },
    }
}

/// What a host's cards can do; all cards of a host are alike.
struct Card {
    offload: Option<Size>,
    coalesce: Option<Span>,
    device_queue: Option<Size>,
}

fn card(dice: &mut Dice) -> Card {
    let offload = dice.percent(40).then(|| dice.size(3_000, 65_000));
    let coalesce = (offload.is_some() && dice.percent(40))
        .then(|| Span(Duration::from_micros(dice.log(1, 300))));
    Card {
        offload,
        coalesce,
        device_queue: dice.percent(15).then(|| dice.size(3_000, 100_000)),
    }
}

fn interfaces(
    dice: &mut Dice,
    paths: &[Path],
    address: impl Fn(&Path) -> Option<IpAddr>,
) -> Vec<InterfaceSpec> {
    let card = card(dice);
    let one = |(index, path): (usize, &Path)| InterfaceSpec {
        name: interface_name(index),
        addresses: address(path).into_iter().collect(),
        mtu: path.mtu,
        backup: index > 0 && dice.percent(8),
        offload: card.offload,
        coalesce: card.coalesce,
        device_queue: card.device_queue,
        limit: None,
    };
    paths.iter().enumerate().map(one).collect()
}

/// The one interface of a server behind a router, with an address of each family that a path has.
fn behind_router(dice: &mut Dice, paths: &[Path]) -> InterfaceSpec {
    let card = card(dice);
    let families = [false, true].into_iter();
    let wanted = families.filter(|ipv6| paths.iter().any(|path| path.client.is_ipv6() == *ipv6));
    InterfaceSpec {
        name: interface_name(0),
        addresses: wanted.map(|ipv6| address(89, ipv6, 1)).collect(),
        mtu: 1500,
        backup: false,
        offload: card.offload,
        coalesce: card.coalesce,
        device_queue: card.device_queue,
        limit: None,
    }
}

fn link(dice: &mut Dice, index: usize, path: &Path) -> LinkSpec {
    let far = match path.server {
        Some(_) => format!("server.{}", interface_name(index)),
        None => "router".into(),
    };
    let mut back = LineSpec::default();
    if dice.percent(15) {
        back.rate = Some(kilobits((path.kilobits / dice.between(2, 10)).max(500)));
    }
    LinkSpec {
        name: link_name(index),
        ends: [format!("client.{}", interface_name(index)), far],
        line: LineSpec {
            rate: Some(kilobits(path.kilobits)),
            delay: Some(millis(path.delay)),
            buffer: Some(buffer(dice)),
            mtu: (path.mtu != 1500).then_some(path.mtu),
            loss: loss(dice),
            reorder: dice.percent(15).then(|| ReorderSpec {
                chance: dice.chance(100, 20_000),
                extra: dice.millis(1, 30),
            }),
            duplicate: dice.percent(10).then(|| dice.chance(100, 10_000)),
            mark_above: dice.percent(10).then(|| dice.size(3_000, 100_000)),
        },
        out: LineSpec::default(),
        back,
        outages: Vec::new(),
        boxes: Vec::new(),
    }
}

fn buffer(dice: &mut Dice) -> Depth {
    if dice.percent(50) {
        Depth::Time(dice.millis(20, 800).0)
    } else {
        Depth::Bytes(dice.log(15_000, 500_000))
    }
}

fn loss(dice: &mut Dice) -> Option<LossSpecs> {
    let spec = match dice.weighted(&[60, 25, 15]) {
        0 => return None,
        1 => LossSpec::Chance(dice.chance(100, 20_000)),
        _ => LossSpec::Model(LossModel::GilbertElliott {
            worsen: dice.chance(100, 5_000),
            recover: Percent(crate::rng::Chance::ppm(
                dice.between(50, 90) as u32 * 10_000,
            )),
            good: Percent(crate::rng::Chance::NEVER),
            bad: Percent(crate::rng::Chance::ALWAYS),
        }),
    };
    Some(LossSpecs(vec![spec]))
}

/// The last hop to a server behind a router.
fn access() -> LinkSpec {
    LinkSpec {
        name: "access".into(),
        ends: ["router".into(), format!("server.{}", interface_name(0))],
        line: LineSpec {
            rate: Some(Speed(manypath_tcp::units::Rate::from_bits_per_sec(
                1_000_000_000,
            ))),
            delay: Some(millis(1)),
            ..LineSpec::default()
        },
        out: LineSpec::default(),
        back: LineSpec::default(),
        outages: Vec::new(),
        boxes: Vec::new(),
    }
}
