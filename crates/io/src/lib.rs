//! Devices, netlink, the event loop and the async sockets: the stack on a real network.
//!
//! A [`Host`] is a running stack: it finds the host's paths ([`path`], [`netlink`]), opens a [`device`] for each,
//! has the host changed where it must be ([`manypath_host`]) and puts it back when it ends. [`MpStream`] and [`MpListener`] are
//! its sockets, in the shape of tokio's.
//!
//! Owns everything that touches the operating system; decides nothing about the protocol. All `unsafe` of the
//! crate is in [`sys`].
//!
//! ```no_run
//! use manypath_io::{Host, MpStream};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! // Every interface with a default route is a path; needs CAP_NET_RAW and CAP_NET_ADMIN.
//! let host = Host::builder().build()?;
//! let mut stream = MpStream::connect(&host, "192.0.2.1:80".parse().unwrap()).await?;
//! stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
//! let mut answer = Vec::new();
//! stream.read_to_end(&mut answer).await?;
//! stream.close().await?; // waits until the peer has everything
//! # Ok(())
//! # }
//! ```

pub mod convert;
pub mod device;
mod driver;
pub mod filter;
mod host;
pub mod names;
pub mod neigh;
pub mod netlink;
pub mod path;
mod privileges;
pub mod race;
mod sandbox;
mod socket;
pub mod sys;
pub mod vnet;
mod watch;

pub use driver::Traffic;
pub use host::{Attach, Builder, DeviceAddress, Host, LoopbackPath};
pub use manypath_host::GROUP;
pub use privileges::{
    Files, User, become_user, free_files, limit_privileges, limit_privileges_for_now,
    raise_file_limit,
};
pub use sandbox::{Confined, confine};
pub use socket::{
    Connect, LocalListener, MpListener, MpStream, OwnedReadHalf, OwnedWriteHalf, PathEvents,
    ReuniteError,
};
pub use watch::Watch;
