//! `take` of a transparent listener: which connections the host's firewall turns to it.

use std::net::IpAddr;

use manypath_host::Turn;

use super::limited::read_interface;
use super::table::Table;
use crate::endpoint::{Endpoint, Proto};
use crate::taking::{MOST_RULES, Taken};
use crate::target::rules::Network;

pub(super) fn taken_of(table: Table<'_>) -> Option<Taken> {
    let interfaces = table.list("interface", "the name of an interface", read_taken);
    if table.place_of("interface").is_none() {
        table.wrong(
            table.at,
            "`take` has no `interface`: name those by which the clients come, as interface = \"lan0\"",
        );
    }
    let from = table.list(
        "from",
        "a network as \"192.168.1.0/24\"",
        str::parse::<Network>,
    );
    let ports = table.ports("port");
    let turn = table.read("mode", "redirect or tproxy", read_turn);
    let taken = Taken {
        interfaces,
        from,
        ports,
        turn: turn.map_or(Turn::Redirect, |turn| turn.value),
    };
    if taken.rules() > MOST_RULES {
        let message = format!(
            "`take` makes {} rules, one for each interface, network and range of ports together, and {MOST_RULES} may be: join ranges of ports as \"1-65535\", or networks",
            taken.rules()
        );
        table.wrong(table.at, message);
    }
    table.end();
    (!taken.interfaces.is_empty()).then_some(taken)
}

fn read_taken(text: &str) -> Result<String, String> {
    match read_interface(text)?.as_str() {
        "lo" => Err(
            "what programs of this host send is not taken: let them know the proxy by http or socks5"
                .to_owned(),
        ),
        name => Ok(name.to_owned()),
    }
}

fn read_turn(text: &str) -> Result<Turn, String> {
    match text {
        "redirect" => Ok(Turn::Redirect),
        "tproxy" => Ok(Turn::Tproxy),
        _ => Err(format!("'{text}' is neither redirect nor tproxy")),
    }
}

/// Why connections cannot be turned to a listener there: the firewall turns them to the host's address at the interface by which they
/// come, which may change.
pub(super) fn not_taken_to(on: &Endpoint) -> Option<String> {
    let addr = on.at.host().parse::<IpAddr>();
    let everywhere = addr.is_ok_and(|addr| addr.is_unspecified());
    (!everywhere || on.at.port() == 0).then(|| {
        "`take` wants a listener on every address, and a port: write on = \"[::]:1235\", or \"0.0.0.0:1235\" for IPv4 alone; who dials it directly is turned away"
            .to_owned()
    })
}

/// Why connections to targets cannot come from the client's address.
pub(super) fn not_kept(outside: Proto, take: Option<&Taken>) -> Option<&'static str> {
    if outside != Proto::Tcp {
        return Some(
            "`keep_client` wants outside = \"tcp\": connections over several paths come from the addresses of this host",
        );
    }
    let redirects = take.is_some_and(|taken| taken.turn == Turn::Redirect);
    redirects.then_some(
        "`keep_client` wants mode = \"tproxy\" in `take`: its rules alone lead the server's answers back to this process",
    )
}
