//! What a caller says to the stack and hears from it: plain data, no behaviour.
//!
//! Owns the vocabulary of the sans-IO contract. Must never reach into a connection.

mod error;
mod event;
mod info;
mod options;
mod path;
mod slots;

pub use error::StackError;
pub use event::{CloseCause, Event, EventKind, FallbackCause, SubflowEnd, SubflowOrigin};
pub use info::{
    ConnInfo, ConnState, EndedSubflow, Memory, ProtocolLevel, Role, SubflowInfo, SubflowPhase,
};
pub use options::{ConnOptions, ConnectOptions, ListenOptions, Mode, PathManager};
pub use path::{IfaceId, Offload, Path, PathEvent};
pub use slots::{Gather, RxMeta, Slots, Transmit, TxMeta};
