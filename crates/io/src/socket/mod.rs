//! Sockets in the shape of tokio's.

mod error;
mod gathered;
mod handle;
mod listener;
mod local;
mod multipath;
mod open;
mod ready;
mod split;
mod stream;

use crate::driver::Waiting;
pub use listener::MpListener;
pub use local::LocalListener;
pub use multipath::PathEvents;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReuniteError};
pub use stream::{Connect, MpStream};
