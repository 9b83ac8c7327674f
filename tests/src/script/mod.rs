//! Packet scripts: one text per behaviour on the wire, played against several stacks.
//!
//! The script is the peer. It injects segments into the device under test and says which segments it expects, and within
//! which time. The device is our own stack in virtual time ([`ours`]) or the Linux kernel in a network namespace
//! ([`kernel`]). `tests/scripts/README.md` describes the language.

pub mod kernel;
pub mod observed;
pub mod option;
pub mod ours;
pub mod parse;
pub mod run;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use manypath_testkit::addr;

/// The server's port, whoever is the server.
pub const PORT: u16 = 80;

/// The hosts' numbers in [`addr`].
const DEVICE: u8 = 1;
const PEER: u8 = 2;

/// The address of the device under test on a path, from 0.
#[must_use]
pub fn device_address(path: u8) -> IpAddr {
    addr(DEVICE, path)
}

/// The script's address on a path, from 0.
#[must_use]
pub fn peer_address(path: u8) -> IpAddr {
    addr(PEER, path)
}

/// Who plays the device under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArmName {
    /// Our stack.
    Ours,
    /// The Linux kernel.
    Kernel,
}

impl std::fmt::Display for ArmName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Ours => "ours",
            Self::Kernel => "kernel",
        })
    }
}

/// How the device under test is set up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// It asks for DSS checksums.
    pub checksum: bool,
    /// It answers every SYN without remembering it.
    pub cookies: bool,
    /// TCP Fast Open, as client and server.
    pub fast_open: bool,
    /// It asks for Explicit Congestion Notification, and agrees where it is asked.
    pub ecn: bool,
    /// It opens subflows to addresses that the peer announces.
    pub mesh: bool,
    /// Bytes that it can receive ahead of its application, where the script cares.
    pub receive_buffer: Option<u32>,
}

/// What the application of the device under test does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Listens on [`PORT`].
    Listen,
    /// Begins to connect to the script, with bytes that may go along with the SYN.
    Connect(Vec<u8>),
    /// The connection it began is established.
    Connected,
    /// Takes the connection out of the listener.
    Accept,
    /// Writes.
    Write(Vec<u8>),
    /// Reads exactly that.
    Read(Vec<u8>),
    /// Reads the end of the stream.
    ReadEnd,
    /// Reads, and is told that the connection was reset.
    ReadReset,
    /// Ends its direction.
    Shutdown,
    /// Closes the connection.
    Close,
    /// Aborts the connection.
    Abort,
    /// Opens a subflow from its address on this path to the peer's first address.
    Join(u8),
    /// Announces its address on this path.
    Announce(u8),
    /// Gives up its address on this path.
    Withdraw(u8),
    /// Asks the peer to treat the subflow on this path as a backup.
    Backup(u8),
    /// The connection speaks Multipath TCP (or, with `false`, has fallen back to TCP).
    Speaks(bool),
}

/// A segment as the script writes it. What is absent is chosen by the runner (injected) or matches anything (expected).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shape {
    /// The letters between the brackets.
    pub flags: String,
    /// Sequence number relative to the sender's initial number, and where the payload ends.
    pub seq: Option<(i64, Option<i64>)>,
    /// Acknowledgement relative to the receiver's initial number.
    pub ack: Option<i64>,
    /// The window field.
    pub window: Option<u16>,
    /// Options, one string each.
    pub options: Option<Vec<String>>,
    /// Payload.
    pub payload: Option<Vec<u8>>,
    /// Payload length.
    pub length: Option<usize>,
}

/// The two ways on which a script may go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Either {
    /// What the standard asks for.
    pub wanted: Vec<Step>,
    /// Which arm is permitted to differ.
    pub arm: ArmName,
    /// What it does, why, and which is right by which rule.
    pub reason: String,
    /// What that arm does.
    pub instead: Vec<Step>,
}

/// What one line of a script asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Names a flow that the script opens: the script's address, and the device's.
    Flow {
        /// From here.
        from: IpAddr,
        /// To there.
        to: SocketAddr,
    },
    /// A new connection begins.
    Connection,
    /// The device's application does something.
    App(Action),
    /// The script sends.
    Inject(Shape),
    /// The device has to send this within so long.
    Expect(Shape, Option<Duration>),
    /// The same, whatever it sends before.
    Find(Shape, Option<Duration>),
    /// The device must not send this within so long.
    Never(Shape, Duration),
    /// The device must not send anything within so long.
    Nothing(Duration),
    /// A place where an arm may differ.
    Either(Box<Either>),
}

/// One line of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its number, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// The flow it is about.
    pub flow: usize,
    /// What it asks for.
    pub what: What,
}

/// A whole script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The file's name without its ending.
    pub name: String,
    /// Its first comment.
    pub title: String,
    /// How the device is set up.
    pub settings: Settings,
    /// An arm that cannot play it, and why.
    pub skip: Option<(ArmName, String)>,
    /// What happens.
    pub steps: Vec<Step>,
}

/// How an action of the application stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Done, as wanted.
    Done,
    /// Ask again when something has happened.
    NotYet,
    /// It went differently.
    Failed(String),
}

impl Progress {
    /// What it means that the application has read `read` when `wanted` should come, and then `end`: whether the stream ended,
    /// or an error. What was wanted is taken from `read`.
    fn of_reading<E: std::fmt::Debug>(
        read: &mut Vec<u8>,
        wanted: &[u8],
        end: &Result<bool, E>,
    ) -> Self {
        if *read == wanted {
            read.clear();
            return Self::Done;
        }
        match end {
            Ok(false) if wanted.starts_with(read) => Self::NotYet,
            _ => Self::Failed(format!(
                "the application read {:?}, then {end:?}",
                String::from_utf8_lossy(read)
            )),
        }
    }
}

/// A stack under test.
pub trait Arm {
    /// Which one.
    fn name(&self) -> ArmName;
    /// Time since it was set up.
    fn now(&self) -> Duration;
    /// How long to wait for something that should take no longer than `wanted`.
    fn patience(&self, wanted: Duration) -> Duration;
    /// Hands a packet to it.
    ///
    /// # Errors
    /// When the packet could not be delivered, as text.
    fn inject(&mut self, packet: &[u8]) -> Result<(), String>;
    /// The next packet that it sends, waiting for it until then.
    fn receive(&mut self, until: Duration) -> Option<Vec<u8>>;
    /// Lets its application do something.
    fn act(&mut self, action: &Action) -> Progress;
    /// Actions are about another connection from now on.
    fn next_connection(&mut self);
}

/// The script's end of a flow that it opens.
#[must_use]
pub(crate) fn dialled(from: IpAddr, number: usize) -> SocketAddr {
    // Scripts have less than ten flows.
    SocketAddr::new(from, 4000 + number as u16)
}
