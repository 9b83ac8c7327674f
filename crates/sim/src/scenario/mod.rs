//! Scenario files: a network, what runs on it, what happens to it, and what is expected, in TOML.
//!
//! Owns the words of the file and nothing of a run. Everything has a default except what has none by nature.

mod check;
mod placed;
pub mod units;

use core::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use check::ScenarioError;
pub use placed::PlacedBox;
use units::{Depth, Percent, Size, Span, Speed};

/// A whole scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// One line for people.
    pub title: String,
    /// More for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Seed of all randomness.
    #[serde(default = "one")]
    pub seed: u64,
    /// Virtual time after which a run that has not ended counts as hung.
    #[serde(default = "ten_minutes")]
    pub limit: Span,
    /// Events after which a run counts as spinning.
    #[serde(default = "many_events", skip_serializing_if = "is_many_events")]
    pub event_limit: u64,
    /// A sample of the rates on all interfaces this often; none without it.
    pub sample_every: Option<Span>,
    /// Hosts.
    #[serde(rename = "host")]
    pub hosts: Vec<HostSpec>,
    /// Routers.
    #[serde(default, rename = "router", skip_serializing_if = "Vec::is_empty")]
    pub routers: Vec<RouterSpec>,
    /// Links.
    #[serde(rename = "link")]
    pub links: Vec<LinkSpec>,
    /// Applications.
    #[serde(rename = "app")]
    pub apps: Vec<AppSpec>,
    /// What happens to the network.
    #[serde(default, rename = "event", skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Action>,
    /// What must come out.
    #[serde(default, skip_serializing_if = "Expect::is_empty")]
    pub expect: Expect,
}

const fn one() -> u64 {
    1
}

const fn ten_minutes() -> Span {
    Span(manypath_tcp::time::Duration::from_secs(600))
}

const fn many_events() -> u64 {
    200_000_000
}

// Serde hands over a reference.
#[expect(clippy::trivially_copy_pass_by_ref)]
const fn is_many_events(limit: &u64) -> bool {
    *limit == many_events()
}

/// A host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostSpec {
    /// Its name.
    pub name: String,
    /// Its interfaces, each the end of one link.
    #[serde(rename = "interface")]
    pub interfaces: Vec<InterfaceSpec>,
    /// It has the habit of Linux that [`DeafToOldEnd`](crate::habit::DeafToOldEnd) describes, and is busy when a lone DATA_FIN comes,
    /// or not. For one connection without checksums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deaf_to_old_end: Option<bool>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct InterfaceSpec {
    /// Its name; a link's end is `host.interface`.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its MTU in bytes.
    #[serde(default = "ethernet", skip_serializing_if = "is_ethernet")]
    pub mtu: u16,
    /// A backup path.
    #[serde(default, skip_serializing_if = "is_false")]
    pub backup: bool,
    /// The card splits bursts of up to this much payload and computes checksums; without it the stack does both.
    pub offload: Option<Size>,
    /// The card hands received packets over this long after the first of them, runs of segments merged into one. Needs
    /// `offload`.
    pub coalesce: Option<Span>,
    /// The card takes packets only while less than this waits for its line; without it the line's buffer drops.
    pub device_queue: Option<Size>,
    /// The stack sends no more than this here, in IP bytes, in bursts of 20 ms (three packets at least).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Speed>,
}

impl InterfaceSpec {
    /// What links and events call it when it belongs to this host: `host.interface`.
    #[must_use]
    pub fn end(&self, host: &str) -> String {
        format!("{host}.{}", self.name)
    }
}

const fn ethernet() -> u16 {
    1500
}

// Serde hands over a reference, here and below.
#[expect(clippy::trivially_copy_pass_by_ref)]
const fn is_ethernet(mtu: &u16) -> bool {
    *mtu == ethernet()
}

/// A router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RouterSpec {
    /// Its name.
    pub name: String,
    /// It reports packets that it cannot forward by ICMP.
    #[serde(default = "yes")]
    pub icmp: bool,
    /// How it spreads flows over equal ways.
    #[serde(default, skip_serializing_if = "is_default")]
    pub spread: SpreadSpec,
}

/// How a router chooses among equal ways. All packets of a flow take the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpreadSpec {
    /// By a hash of addresses and ports, as equal-cost multipath does.
    #[default]
    FlowHash,
    /// Each new flow takes the next way.
    RoundRobin,
}

const fn yes() -> bool {
    true
}

/// What one direction of a link is like; in `out` and `back` of a link, what differs from the link's own values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LineSpec {
    /// Rate; unlimited without it.
    pub rate: Option<Speed>,
    /// One-way delay.
    pub delay: Option<Span>,
    /// Drop-tail buffer; unlimited without it.
    pub buffer: Option<Depth>,
    /// MTU in bytes.
    pub mtu: Option<u16>,
    /// Loss models.
    pub loss: Option<LossSpecs>,
    /// Reordering.
    pub reorder: Option<ReorderSpec>,
    /// Chance of duplication.
    pub duplicate: Option<Percent>,
    /// Backlog above which ECN-capable packets are marked.
    pub mark_above: Option<Size>,
}

impl LineSpec {
    /// It says nothing.
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct LinkSpec {
    /// Its name.
    pub name: String,
    /// Its two ends: `host.interface` or a router.
    pub ends: [String; 2],
    /// Both directions.
    #[serde(flatten)]
    pub line: LineSpec,
    /// What differs from the first end to the second.
    #[serde(skip_serializing_if = "LineSpec::is_empty")]
    pub out: LineSpec,
    /// What differs from the second end to the first.
    #[serde(skip_serializing_if = "LineSpec::is_empty")]
    pub back: LineSpec,
    /// Times between which the link is cut.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<[Span; 2]>,
    /// Middleboxes on it.
    #[serde(rename = "box", skip_serializing_if = "Vec::is_empty")]
    pub boxes: Vec<PlacedBox>,
}

impl TryFrom<toml::Table> for LinkSpec {
    type Error = toml::de::Error;

    fn try_from(mut table: toml::Table) -> Result<Self, Self::Error> {
        // By hand, because what is left over must be exactly the words of a line: a misspelt one is an error.
        fn take<T: serde::de::DeserializeOwned>(
            table: &mut toml::Table,
            key: &str,
        ) -> Result<Option<T>, toml::de::Error> {
            table.remove(key).map(toml::Value::try_into).transpose()
        }
        let missing = |key: &str| serde::de::Error::custom(format!("a link needs `{key}`"));
        Ok(Self {
            name: take(&mut table, "name")?.ok_or_else(|| missing("name"))?,
            ends: take(&mut table, "ends")?.ok_or_else(|| missing("ends"))?,
            out: take(&mut table, "out")?.unwrap_or_default(),
            back: take(&mut table, "back")?.unwrap_or_default(),
            outages: take(&mut table, "outages")?.unwrap_or_default(),
            boxes: take(&mut table, "box")?.unwrap_or_default(),
            line: table.try_into()?,
        })
    }
}

/// Loss models: one, or a list of which each may lose a packet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct LossSpecs(pub Vec<LossSpec>);

/// A loss model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum LossSpec {
    /// Each packet with this chance.
    Chance(Percent),
    /// Another model.
    Model(LossModel),
}

impl TryFrom<toml::Value> for LossSpecs {
    type Error = toml::de::Error;

    // By hand, because serde's untagged enums cannot say what is wrong.
    fn try_from(value: toml::Value) -> Result<Self, Self::Error> {
        let one = |value: toml::Value| match value {
            toml::Value::Table(_) => value.try_into().map(LossSpec::Model),
            _ => value.try_into().map(LossSpec::Chance),
        };
        let specs = match value {
            toml::Value::Array(many) => many.into_iter().map(one).collect(),
            value => one(value).map(|spec| vec![spec]),
        };
        specs.map(Self)
    }
}

/// Loss models other than plain chance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub enum LossModel {
    /// Bursts.
    GilbertElliott {
        /// Chance to go from good to bad, at each packet.
        worsen: Percent,
        /// Chance to go back.
        recover: Percent,
        /// Chance of loss while good.
        #[serde(default = "never")]
        good: Percent,
        /// Chance of loss while bad.
        #[serde(default = "always")]
        bad: Percent,
    },
    /// Exactly these packets.
    Mask {
        /// Which packets count.
        #[serde(default)]
        of: KindSpec,
        /// Their numbers from 0.
        numbers: Vec<u64>,
    },
}

const fn never() -> Percent {
    Percent(crate::rng::Chance::NEVER)
}

const fn always() -> Percent {
    Percent(crate::rng::Chance::ALWAYS)
}

/// Kinds of packets for masks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the words are those of `loss::Kind`")]
pub enum KindSpec {
    #[default]
    Any,
    Payload,
    Acknowledgement,
    Syn,
    SynAck,
    Fin,
}

/// Reordering.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ReorderSpec {
    /// Chance of each packet.
    pub chance: Percent,
    /// Its extra delay.
    pub extra: Span,
}

/// The ends of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndSpec {
    /// The first named.
    #[default]
    First,
    /// The second.
    Second,
}

/// A client, its server, and what they do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AppSpec {
    /// Its name.
    pub name: String,
    /// The host that connects.
    pub client: String,
    /// The host that listens.
    pub server: String,
    /// The server's address; by default the first one of the family of the client's first.
    pub to: Option<IpAddr>,
    /// The client's address of the first subflow; by default the stack chooses.
    pub from: Option<IpAddr>,
    /// The server's port; by default one for each application.
    pub port: Option<u16>,
    /// When the first connection starts.
    #[serde(default = "at_once", skip_serializing_if = "is_at_once")]
    pub start: Span,
    /// How many connections there are.
    #[serde(default = "one_connection", skip_serializing_if = "is_one")]
    pub connections: u32,
    /// Time from one connection's start to the next one's.
    #[serde(default = "at_once", skip_serializing_if = "is_at_once")]
    pub spacing: Span,
    /// No more connections at one time: the next one waits for the end of another, and looks for it every `spacing`.
    pub parallel: Option<u32>,
    /// Bytes from client to server.
    #[serde(default = "nothing", skip_serializing_if = "is_nothing")]
    pub upload: Size,
    /// Bytes from server to client.
    #[serde(default = "nothing", skip_serializing_if = "is_nothing")]
    pub download: Size,
    /// The uploads are requests of this size, each sent when the last one was answered.
    pub request: Option<Size>,
    /// The downloads are answers of this size, each sent when a request has arrived.
    pub response: Option<Size>,
    /// Number of requests; with it, `upload` and `download` follow from the sizes.
    pub rounds: Option<u64>,
    /// Whoever sends writes this much, then pauses.
    pub burst: Option<Size>,
    /// The pause.
    pub pause: Option<Span>,
    /// The client reads no faster than this.
    pub client_reads: Option<Speed>,
    /// The server reads no faster than this.
    pub server_reads: Option<Speed>,
    /// How the ends close.
    #[serde(default, skip_serializing_if = "is_default")]
    pub close: CloseSpec,
    /// Stack options of both ends.
    #[serde(default, skip_serializing_if = "OptionsSpec::is_empty")]
    pub options: OptionsSpec,
    /// What differs at the client.
    #[serde(default, skip_serializing_if = "OptionsSpec::is_empty")]
    pub client_options: OptionsSpec,
    /// What differs at the server.
    #[serde(default, skip_serializing_if = "OptionsSpec::is_empty")]
    pub server_options: OptionsSpec,
}

const fn at_once() -> Span {
    Span(manypath_tcp::time::Duration::ZERO)
}

fn is_at_once(span: &Span) -> bool {
    *span == at_once()
}

fn is_nothing(size: &Size) -> bool {
    *size == nothing()
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

const fn one_connection() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref)]
const fn is_one(count: &u32) -> bool {
    *count == one_connection()
}

const fn nothing() -> Size {
    Size(0)
}

/// How connections end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CloseSpec {
    /// Each end closes its direction when it has sent everything (half-close).
    #[default]
    AfterSending,
    /// Each end closes when it has sent everything and read everything.
    AfterBoth,
    /// The client aborts when it has sent and read everything.
    Abort,
}

/// Options of a connection; what is not given is the stack's default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OptionsSpec {
    /// Plain TCP from the start.
    pub plain_tcp: Option<bool>,
    /// Scheduler by its name.
    pub scheduler: Option<String>,
    /// `none`, `default`, or mechanisms by their names with commas between them.
    pub mechanisms: Option<String>,
    /// Congestion control by its name.
    pub congestion: Option<String>,
    /// Receive algorithm by its name.
    pub receive: Option<String>,
    /// `passive`, `full-mesh`, `ndiffports:N`, `userspace`, or a controller with its parameters: `smart-backup`, `streaming`,
    /// `refresh`, `pathfinder`.
    pub path_manager: Option<String>,
    /// DSS checksums.
    pub checksum: Option<bool>,
    /// 64-bit data sequence numbers.
    pub long_dsn: Option<bool>,
    /// Send buffer.
    pub send_buffer: Option<Size>,
    /// Receive buffer.
    pub recv_buffer: Option<Size>,
    /// No Nagle.
    pub nodelay: Option<bool>,
    /// ECN.
    pub ecn: Option<bool>,
    /// Pacing.
    pub pacing: Option<bool>,
    /// Probe a subflow that was silent for so long, and four more times a quarter of it apart.
    pub keepalive: Option<Span>,
    /// Give up when data stays unacknowledged for so long.
    pub user_timeout: Option<Span>,
    /// Wait for a new subflow so long.
    pub break_before_make: Option<Span>,
    /// Subflows at one time.
    pub max_subflows: Option<u16>,
}

impl OptionsSpec {
    /// It says nothing.
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Something that happens to the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "do")]
pub enum Action {
    /// A link is cut; hosts do not notice.
    Cut {
        /// When.
        at: Span,
        /// Which link.
        link: String,
    },
    /// A link works again.
    Mend {
        /// When.
        at: Span,
        /// Which link.
        link: String,
    },
    /// A link changes: both directions, or only the given one.
    Change {
        /// When.
        at: Span,
        /// Which link.
        link: String,
        /// The end that sends in the direction that changes.
        from: Option<EndSpec>,
        /// New rate.
        rate: Option<Speed>,
        /// New delay.
        delay: Option<Span>,
        /// New loss models.
        loss: Option<LossSpecs>,
    },
    /// An interface loses an address, and its host knows.
    RemoveAddress {
        /// When.
        at: Span,
        /// `host.interface`.
        interface: String,
        /// The address.
        address: IpAddr,
    },
    /// An interface gets an address.
    AddAddress {
        /// When.
        at: Span,
        /// `host.interface`.
        interface: String,
        /// The address.
        address: IpAddr,
    },
    /// Both ends of an application's living connections get other options, of those that can change then.
    SetOptions {
        /// When.
        at: Span,
        /// Whose.
        app: String,
        /// What becomes different.
        options: OptionsSpec,
    },
}

impl Action {
    /// When it happens.
    #[must_use]
    pub const fn at(&self) -> Span {
        match self {
            Self::Cut { at, .. }
            | Self::Mend { at, .. }
            | Self::Change { at, .. }
            | Self::RemoveAddress { at, .. }
            | Self::AddAddress { at, .. }
            | Self::SetOptions { at, .. } => *at,
        }
    }
}

/// What must come out of a run. A value that is not given is not checked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Expect {
    /// Some connection may end in another way than by both ends closing it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub may_fail: bool,
    /// It ends early at both ends, as RFC 8684 section 3.7 has no way on from what happens.
    #[serde(default, skip_serializing_if = "is_false")]
    pub no_way_on: bool,
    /// A run with plain TCP over the first path decides: what it delivers this one delivers as well, the same bytes in
    /// no more than twice its time and two seconds.
    #[serde(default, skip_serializing_if = "is_false")]
    pub like_tcp: bool,
    /// Every connection is over by this time.
    pub finished_by: Option<Span>,
    /// Application bytes of both directions over the time from start to end, for each connection.
    pub goodput: Option<Speed>,
    /// Longest time without any byte for a reader that waits.
    pub longest_stall: Option<Span>,
    /// Every connection stayed this: `multipath` or `plain-tcp`.
    pub level: Option<LevelSpec>,
    /// Least number of subflows that came up, for each connection.
    pub subflows: Option<usize>,
    /// Least share of the payload that arrived on an interface (`host.interface`), as a percentage.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub share: std::collections::BTreeMap<String, ShareSpec>,
}

// Serde hands over a reference.
#[expect(clippy::trivially_copy_pass_by_ref)]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Expect {
    /// A connection may end in another way than by both ends closing it.
    pub(crate) const fn may_fail(&self) -> bool {
        self.may_fail || self.no_way_on
    }

    /// It says nothing.
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A range of shares in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareSpec {
    /// At least.
    #[serde(default)]
    pub min: f64,
    /// At most.
    #[serde(default = "hundred")]
    pub max: f64,
}

const fn hundred() -> f64 {
    100.0
}

/// What a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LevelSpec {
    /// Full Multipath TCP.
    Multipath,
    /// TCP, by choice or by fallback.
    PlainTcp,
}
