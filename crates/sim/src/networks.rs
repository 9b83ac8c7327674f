//! Networks of the papers as text of scenarios. Where nothing else is said they have the hosts `client` and `server`, and
//! applications and events are for the caller to add.

use crate::rng::Rng;

/// How a router with several equal ways spreads the flows over them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// By a hash of addresses and ports, as routers in data centres do.
    Hash,
    /// One after the other.
    InTurn,
}

/// A client with an interface for each path to a router, and a server behind it. The client has the addresses 10.1.0.2, 10.2.0.2
/// and so on, the server has 10.9.0.1.
#[derive(Debug, Clone, Copy)]
pub struct Multihomed<'a> {
    /// The scenario's title, and what else it says of itself.
    pub head: &'a str,
    /// Names of the paths, which are those of the client's interfaces and links, and what their links say.
    pub paths: &'a [(&'a str, &'a str)],
    /// What the server's link says.
    pub access: &'a str,
    /// Applications and events.
    pub rest: &'a str,
}

impl Multihomed<'_> {
    /// The scenario.
    #[must_use]
    pub fn text(&self) -> String {
        let interfaces: String = (1..)
            .zip(self.paths)
            .map(|(n, (name, _))| {
                format!("    {{ name = \"{name}\", addresses = [\"10.{n}.0.2\"] }},\n")
            })
            .collect();
        let links: String = self
            .paths
            .iter()
            .map(|(name, link)| {
                format!(
                    "[[link]]\nname = \"{name}\"\nends = [\"client.{name}\", \"router\"]\n{link}\n\n"
                )
            })
            .collect();
        format!(
            r#"
{head}

[[host]]
name = "client"
interface = [
{interfaces}]

[[host]]
name = "server"
interface = [{{ name = "eth0", addresses = ["10.9.0.1"] }}]

[[router]]
name = "router"

{links}[[link]]
name = "access"
ends = ["router", "server.eth0"]
{access}

{rest}
"#,
            head = self.head,
            access = self.access,
            rest = self.rest,
        )
    }
}

/// SMAPP sections 4.2 and 4.3: a [`Multihomed`] client whose paths `wifi` and `cell` have this rate in bits a second, this delay in
/// microseconds, and 100 ms of buffer.
#[must_use]
pub fn two_paths(rate: u64, delay_us: u64, events: &str, apps: &str) -> String {
    let link = format!("rate = \"{rate}bit/s\"\ndelay = \"{delay_us}us\"\nbuffer = \"100ms\"");
    Multihomed {
        head: "title = \"two paths\"\nlimit = \"4000s\"",
        paths: &[("wifi", &link), ("cell", &link)],
        access: "rate = \"1Gbit/s\"",
        rest: &format!("{apps}\n{events}"),
    }
    .text()
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

/// NETWORKING 2011 section 5.1: a Multipath TCP connection and several TCPs that send without end through one link. The hosts
/// are `multi`, `single` and `server`; the first application is the connection, the second are the TCPs.
#[derive(Debug, Clone, Copy)]
pub struct SharedBottleneck<'a> {
    /// Rate of the shared link in bits a second.
    pub rate: u64,
    /// Round trip without queues, in microseconds.
    pub rtt_us: u64,
    /// Buffer of the shared link, in microseconds of its rate.
    pub queue_us: u64,
    /// Congestion control of the connection.
    pub congestion: &'a str,
    /// Its subflows.
    pub subflows: u64,
    /// When it begins, in milliseconds.
    pub start_ms: u64,
    /// Congestion control of the TCPs.
    pub beside: &'a str,
    /// How many they are.
    pub others: u64,
    /// When the first of them begins, in milliseconds.
    pub others_start_ms: u64,
}

/// Both sides of a [`SharedBottleneck`] begin somewhere within this many milliseconds.
const STARTS_WITHIN_MS: u64 = 2_000;

impl SharedBottleneck<'_> {
    /// Begins both sides at times that follow from `seed` alone: who starts first, and how the phases of the flows lie, must
    /// not be the same in all runs of which a mean is taken.
    #[must_use]
    pub fn starting_by(self, seed: u64) -> Self {
        let mut random = Rng::new(seed);
        Self {
            start_ms: random.below(STARTS_WITHIN_MS),
            others_start_ms: random.below(STARTS_WITHIN_MS),
            ..self
        }
    }

    /// The scenario.
    #[must_use]
    pub fn text(&self) -> String {
        let access = "rate = \"10Gbit/s\"\nbuffer = \"10MB\"";
        format!(
            r#"
title = "shared bottleneck"

[[host]]
name = "multi"
interface = [{{ name = "eth0", addresses = ["10.1.0.2"] }}]

[[host]]
name = "single"
interface = [{{ name = "eth0", addresses = ["10.3.0.2"] }}]

[[host]]
name = "server"
interface = [{{ name = "eth0", addresses = ["10.9.0.1"] }}]

[[router]]
name = "left"

[[router]]
name = "right"

[[link]]
name = "multi access"
ends = ["multi.eth0", "left"]
{access}

[[link]]
name = "single access"
ends = ["single.eth0", "left"]
{access}

[[link]]
name = "server access"
ends = ["right", "server.eth0"]
{access}

[[link]]
name = "bottleneck"
ends = ["left", "right"]
rate = "{rate}bit/s"
delay = "{delay}us"
buffer = "{queue}us"

[[app]]
name = "multi"
client = "multi"
server = "server"
start = "{start}ms"
upload = "100GB"
options = {{ congestion = "{congestion}" }}
client-options = {{ path-manager = "ndiffports:{subflows}" }}

[[app]]
name = "single"
client = "single"
server = "server"
start = "{others_start}ms"
connections = {others}
spacing = "100ms"
upload = "100GB"
options = {{ congestion = "{beside}", plain-tcp = true }}
"#,
            rate = self.rate,
            delay = self.rtt_us / 2,
            queue = self.queue_us,
            start = self.start_ms,
            congestion = self.congestion,
            subflows = self.subflows,
            others_start = self.others_start_ms,
            others = self.others,
            beside = self.beside,
        )
    }
}
