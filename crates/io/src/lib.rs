//! Devices, netlink, the event loop and the async sockets: the stack on a real network.

mod context;
pub mod device;
mod driver;
mod filter;
pub mod neigh;
pub mod netlink;
pub mod path;
mod privileges;
pub mod setup;
mod socket;
pub mod sys;
pub mod vnet;

pub use context::{Attach, Builder, Context, DeviceAddress};
pub use privileges::limit_privileges;
pub use socket::{Connect, MpListener, MpStream, OwnedReadHalf, OwnedWriteHalf, ReuniteError};
