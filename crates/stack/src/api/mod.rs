//! What a caller says to the stack and hears from it: plain data, no behaviour.
//!
//! Owns the vocabulary of the sans-IO contract. Must never reach into a connection.

mod address;
mod control;
mod controller;
mod error;
mod event;
mod info;
mod mechanisms;
mod options;
mod path;
mod policy;
mod receive;
mod slots;

pub(crate) use address::{is_of_a_host, is_of_a_link, may_come_from};
pub use address::{meant, zone_of};
pub use control::{Command, Done, Ending, NewSubflow};
pub use controller::{CustomController, LocalView, Order, PathController, SubflowView, View};
pub use error::StackError;
pub use event::{CloseCause, Event, EventKind, FallbackCause, SubflowEnd, SubflowOrigin};
pub use info::{
    ConnInfo, ConnState, EndedSubflow, LocalAddress, Memory, PeerAddress, ProtocolLevel, Readiness,
    Role, SubflowInfo, SubflowPhase,
};
pub use mechanisms::{Mechanisms, UnknownMechanism};
pub use options::{ConnOptions, ConnectOptions, LARGEST_BUFFER, ListenOptions, Mode};
pub use path::{ClassId, IfaceId, Offload, Path, PathEvent, Prefix, RateLimit, Route};
pub use policy::{PathFinder, PathManager, Refresh, Rule, SmartBackup, Streaming, UnknownPolicy};
pub use receive::{ReceiveAlgorithm, ReceiveSearches, UnknownReceiveAlgorithm};
pub use slots::{Gather, RxMeta, Slots, Transmit, TxMeta};
