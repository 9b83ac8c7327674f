//! What limits let each subflow of a connection send a second, for the scheduler: a congestion window that a limit keeps from being filled says
//! nothing about what its subflow is going to send.

use alloc::vec::Vec;
use core::net::IpAddr;

use manypath_tcp::units::Rate;

use super::{Shaper, Shares};
use crate::api::{IfaceId, Route};

/// The limits of one connection's subflows as they are now; a burst may pass faster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitRates {
    /// The lowest of its own limit and those of its classes.
    whole: Option<Rate>,
    paths: Vec<(IfaceId, Rate)>,
    /// Of its own routes, and of those of all connections: the first that leads from one address to another counts.
    routes: [Vec<(Route, Option<Rate>)>; 2],
}

impl LimitRates {
    /// What may leave by an interface from one address to another; `None`: as much as ever.
    pub(crate) fn of(&self, iface: IfaceId, local: IpAddr, remote: IpAddr) -> Option<Rate> {
        let mut paths = self.paths.iter();
        let path = paths.find(|(of, _)| *of == iface).map(|(_, rate)| *rate);
        let [own, all] = [0, 1].map(|i| {
            let mut routes = self.routes[i].iter();
            routes.find(|(route, _)| route.leads(local, remote))?.1
        });
        [self.whole, path, own, all].into_iter().flatten().min()
    }
}

impl Shaper {
    /// What the limits that hold for a connection are.
    pub(crate) fn rates(&self, shares: &Shares) -> LimitRates {
        let rate = |gate| {
            let gate = self.gates.get(gate)?;
            Some(Rate::from_bits_per_sec(gate.limit().bits_per_sec))
        };
        let of_route = |route: &Route| {
            let gate = self.classes.get(&route.class).copied();
            (*route, gate.and_then(rate))
        };
        let whole = self.gates_of(shares).into_iter().flatten();
        let paths = self.paths.iter();
        LimitRates {
            whole: whole.filter_map(rate).min(),
            paths: paths
                .filter_map(|(iface, gate)| Some((*iface, rate(*gate)?)))
                .collect(),
            routes: [&shares.routes, &self.routes]
                .map(|routes| routes.iter().map(of_route).collect()),
        }
    }
}
