//! Multipath TCP (RFC 8684) in user space: sockets in the shape of tokio's that use every path of the host.
//!
//! One connection runs over Wi-Fi and cellular, or over two uplinks, at the same time, and goes on when one of them dies. The other
//! end can be a stock Linux kernel (`IPPROTO_MPTCP`) or this library; where it is neither, or something on the way does not let
//! Multipath TCP pass, the connection is plain TCP.
//!
//! ```text
//!   your program                                                     the server
//!  ┌──────────────┐            ┌── wlan0 ──▶ subflow 0 ──┐          ┌─────────────┐
//!  │ write ──▶ MpStream ── scheduler                     ├── one ──▶│ any program │
//!  │  read ◀──    │            └── wwan0 ──▶ subflow 1 ──┘  stream  │ Linux or us │
//!  └──────────────┘     Host: the stack, its paths, path manager    └─────────────┘
//! ```
//!
//! A [`Host`] is a running stack, an [`MpStream`] a connection, an [`MpListener`] a port. The stack puts packets on the interfaces
//! itself, for which it needs `CAP_NET_RAW` and `CAP_NET_ADMIN` on Linux: root, or a user namespace that owns the interfaces. For tests
//! there are [two hosts in one process](testing), which need nothing.
//!
//! # Connect
//!
//! ```no_run
//! use manypath::Host;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let host = Host::new()?; // every interface with a default route is a path
//!     let mut stream = host.connect("example.net:80").await?;
//!     stream.write_all(b"GET / HTTP/1.0\r\nHost: example.net\r\n\r\n").await?;
//!     let mut answer = Vec::new();
//!     stream.read_to_end(&mut answer).await?;
//!     println!("{} bytes by {} subflows", answer.len(), stream.info()?.subflows.len());
//!     stream.close().await // the peer has everything that we wrote
//! }
//! ```
//!
//! # Accept
//!
//! ```no_run
//! use manypath::Host;
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let host = Host::builder().path("eth0").path("eth1").build()?;
//!     let listener = host.listen("0.0.0.0:7")?;
//!     loop {
//!         let (mut stream, peer) = listener.accept().await?;
//!         tokio::spawn(async move {
//!             let (mut read, mut write) = stream.split();
//!             let echoed = tokio::io::copy(&mut read, &mut write).await?;
//!             println!("{peer}: {echoed} bytes");
//!             stream.close().await
//!         });
//!     }
//! }
//! ```
//!
//! # Watch the paths
//!
//! ```
//! use manypath::{ConnectOptions, PathEvent, Scheduler, testing};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let net = testing::pair(2)?; // in a program: Host::new()
//! let listener = net.server.listen("0.0.0.0:80")?;
//! let server = tokio::spawn(async move {
//!     let (mut stream, _peer) = listener.accept().await?;
//!     stream.write_all(b"welcome").await?;
//!     stream.read_to_end(&mut Vec::new()).await?;
//!     stream.close().await
//! });
//!
//! let options = ConnectOptions::new().scheduler(Scheduler::Redundant);
//! let mut stream = net.client.connect_with("10.0.1.2:80", &options).await?;
//! let mut events = stream.path_events();
//! stream.read_exact(&mut [0; 7]).await?;
//! stream.write_all(b"thanks").await?;
//! while let Some(event) = events.next().await {
//!     if let PathEvent::SubflowUp { local, remote, .. } = event {
//!         println!("also from {local} to {remote}");
//!         break;
//!     }
//! }
//! stream.close().await?;
//! net.client.wait_idle().await;
//! # server.await.unwrap()
//! # }
//! ```
//!
//! # Where to go next
//!
//! - [`ConnectOptions`] and [`ListenOptions`]: schedulers, congestion control, buffers, timeouts. Connecting takes 30 s at most.
//! - [`plug`]: a scheduler, a congestion control or a path controller of your own.
//! - `examples/`: hyper (client and server), axum and tokio-rustls over it, a downloader that loses a path, policies of one's own.
//! - How it ends: [`MpStream`] says what a drop, `shutdown`, `close` and `abort` do; [`Host::wait_idle`] waits for all.
//!
//! # Errors
//!
//! They are `std::io::Error`s of the kinds that tokio's `TcpStream` has: programs that look for `ConnectionReset` or `TimedOut` work as
//! they are.
#![forbid(unsafe_code)]

mod converter;
mod events;
mod host;
mod info;
mod limits;
mod listener;
mod manager;
mod options;
pub mod plug;
pub mod split;
mod stream;
mod target;
pub mod testing;

pub use converter::Converter;
pub use events::{Cause, PathEvent, PathEvents};
pub use host::{Attach, Host, HostBuilder, Path};
pub use info::{Info, SubflowInfo, SubflowState};
pub use limits::{Limit, LimitInfo};
pub use listener::MpListener;
pub use manager::{PathManager, UnknownPathManager};
pub use manypath_stack::ids::SubflowId;
pub use manypath_stack::sched::{Scheduler, UnknownScheduler};
pub use manypath_tcp::cc::{Algorithm as Congestion, UnknownAlgorithm as UnknownCongestion};
pub use options::{CONNECT_TIMEOUT, ConnectOptions, ListenOptions};
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use stream::MpStream;
pub use target::IntoTarget;
