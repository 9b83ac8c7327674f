//! Random things that happen to paths while a connection uses them.

use super::dice::{Dice, millis};
use super::network::{Network, interface_name, link_name};
use crate::scenario::units::Span;
use crate::scenario::{Action, LossSpec, LossSpecs};

/// Draws what happens. It may also take addresses away that only come later.
pub(super) fn draw(dice: &mut Dice, network: &mut Network) -> Vec<Action> {
    let mut events = Vec::new();
    if dice.percent(30) {
        silence(dice, network, &mut events);
    }
    if dice.percent(12) {
        address_gone(dice, network, &mut events);
    }
    if dice.percent(15) {
        address_added(dice, network, &mut events);
    }
    if dice.percent(15) {
        change(dice, network, &mut events);
    }
    events
}

/// A path dies without a word, and usually returns.
fn silence(dice: &mut Dice, network: &Network, events: &mut Vec<Action>) {
    let path = dice.below(network.paths.len());
    let from = dice.log(20, 3_000);
    events.push(Action::Cut {
        at: millis(from),
        link: link_name(path),
    });
    // The first path has to return: plain TCP has no other.
    if path == 0 || dice.percent(80) {
        events.push(Action::Mend {
            at: millis(from + dice.log(100, 8_000)),
            link: link_name(path),
        });
    }
}

/// A host loses an address, and knows it; half of them get it back.
fn address_gone(dice: &mut Dice, network: &Network, events: &mut Vec<Action>) {
    let path = dice.below(network.paths.len());
    let of_server = network.paths[path].server.filter(|_| dice.percent(30));
    let (host, address) = match of_server {
        Some(address) => ("server", address),
        None => ("client", network.paths[path].client),
    };
    let interface = format!("{host}.{}", interface_name(path));
    let gone = dice.log(20, 4_000);
    events.push(Action::RemoveAddress {
        at: millis(gone),
        interface: interface.clone(),
        address,
    });
    if dice.percent(50) {
        events.push(Action::AddAddress {
            at: millis(gone + dice.log(10, 3_000)),
            interface,
            address,
        });
    }
}

/// The client's last path comes up only when the connection is under way.
fn address_added(dice: &mut Dice, network: &mut Network, events: &mut Vec<Action>) {
    let path = network.paths.len() - 1;
    if path == 0 {
        return;
    }
    network.hosts[0].interfaces[path].addresses.clear();
    events.push(Action::AddAddress {
        at: dice.millis(20, 3_000),
        interface: format!("client.{}", interface_name(path)),
        address: network.paths[path].client,
    });
}

/// A path becomes another one, as when somebody walks away from an access point.
fn change(dice: &mut Dice, network: &Network, events: &mut Vec<Action>) {
    let path = dice.below(network.paths.len());
    let at: Span = dice.millis(20, 4_000);
    events.push(Action::Change {
        at,
        link: link_name(path),
        from: None,
        rate: dice.percent(70).then(|| dice.rate(500, 100_000)),
        delay: dice.percent(70).then(|| dice.millis(1, 150)),
        loss: dice
            .percent(30)
            .then(|| LossSpecs(vec![LossSpec::Chance(dice.chance(100, 20_000))])),
    });
}
