//! Networks of the papers about steering paths, as text of scenarios: the hosts `client` and `server`, and what lies between.
//! Applications and events are for the caller to add.

/// How a router with several equal ways spreads the flows over them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// By a hash of addresses and ports, as routers in data centres do.
    Hash,
    /// One after the other.
    InTurn,
}

/// SMAPP sections 4.2 and 4.3: a client with two interfaces, `wifi` and `cell`, whose links `first` and `second` have this rate
/// in bits a second, this delay in milliseconds, and 100 ms of buffer.
#[must_use]
pub fn two_paths(rate: u64, delay_ms: u64, events: &str, apps: &str) -> String {
    let link = format!("rate = \"{rate}bit/s\"\ndelay = \"{delay_ms}ms\"\nbuffer = \"100ms\"");
    format!(
        r#"
title = "two paths"
limit = "4000s"

[[host]]
name = "client"
interface = [
    {{ name = "wifi", addresses = ["10.1.0.2"] }},
    {{ name = "cell", addresses = ["10.2.0.2"] }},
]

[[host]]
name = "server"
interface = [{{ name = "eth0", addresses = ["10.9.0.1"] }}]

[[router]]
name = "router"

[[link]]
name = "first"
ends = ["client.wifi", "router"]
{link}

[[link]]
name = "second"
ends = ["client.cell", "router"]
{link}

[[link]]
name = "access"
ends = ["router", "server.eth0"]
rate = "1Gbit/s"

{apps}
{events}
"#
    )
}

/// SMAPP section 4.4 and PathFinder section 5: a client and a server with one interface each, between whose routers lie parallel
/// paths of these delays in milliseconds, each with this rate in bits a second and 100 ms of buffer.
#[must_use]
pub fn parallel_paths(delays_ms: &[u32], rate: u64, spread: Spread, apps: &str) -> String {
    let spread = match spread {
        Spread::Hash => "",
        Spread::InTurn => "spread = \"round-robin\"",
    };
    let mut text = format!(
        r#"
title = "parallel paths"
limit = "2000s"

[[host]]
name = "client"
interface = [{{ name = "eth0", addresses = ["10.1.0.2"] }}]

[[host]]
name = "server"
interface = [{{ name = "eth0", addresses = ["10.9.0.1"] }}]

[[router]]
name = "left"
{spread}

[[router]]
name = "right"

[[link]]
name = "access"
ends = ["client.eth0", "left"]
rate = "1Gbit/s"

[[link]]
name = "server access"
ends = ["right", "server.eth0"]
rate = "1Gbit/s"
"#
    );
    for (n, delay) in delays_ms.iter().enumerate() {
        text.push_str(&format!(
            r#"
[[router]]
name = "r{n}"

[[link]]
name = "in{n}"
ends = ["left", "r{n}"]
rate = "{rate}bit/s"
delay = "{delay}ms"
buffer = "100ms"

[[link]]
name = "out{n}"
ends = ["r{n}", "right"]
rate = "1Gbit/s"
"#
        ));
    }
    text + "\n" + apps
}
