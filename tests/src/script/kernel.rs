//! The second arm: the Linux kernel's sockets in a network namespace, whose only interface leads to the script.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use manypath_io::sys::lab::{kernel_mptcp, tun_file};
use manypath_lab::kernel;
use manypath_lab::netns::{NetNs, NetNsError};
use rustix::event::{PollFd, PollFlags, poll};
use socket2::{Domain, Protocol, Socket, Type};

use crate::peer::MSG_FASTOPEN;

use super::{Action, Arm, ArmName, PORT, Progress, Settings, device_address, peer_address};

/// The interface of the namespace.
const DEVICE: &str = "script";
/// Addresses that the namespace has.
const PATHS: u8 = 4;
/// Whatever should happen at once may take so long: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(4);
/// Client, server, and every listener without asking (Linux, `ip-sysctl`, `tcp_fastopen`).
const FAST_OPEN_ALL: u32 = 0x403;

/// The kernel's side of a script.
#[derive(Debug)]
pub struct Kernel {
    ns: NetNs,
    device: File,
    start: Instant,
    settings: Settings,
    listener: Option<TcpListener>,
    stream: Option<TcpStream>,
    /// Sockets of earlier connections.
    earlier: Vec<TcpStream>,
    read: Vec<u8>,
}

impl Kernel {
    /// A namespace as a script wants it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        Self::build(settings).map_err(|error| error.to_string())
    }

    fn build(settings: &Settings) -> Result<Self, NetNsError> {
        let ns = NetNs::new("script")?;
        let device = ns
            .run(|| tun_file(DEVICE))
            .map_err(|source| NetNsError::Start {
                what: "a TUN device".to_owned(),
                source,
            })?;
        ns.sysctl("net.ipv6.conf.all.disable_ipv6", "1")?;
        ns.ip((0..PATHS).map(|path| format!("addr add {}/16 dev {DEVICE}", device_address(path))))?;
        ns.ip([format!("link set {DEVICE} up")])?;
        kernel::prepare(&ns, settings.checksum)?;
        let accepted = if settings.mesh { 8 } else { 0 };
        ns.ip([format!(
            "mptcp limits set subflows 8 add_addr_accepted {accepted}"
        )])?;
        // Each connection begins without the memory of the one before.
        ns.sysctl("net.ipv4.tcp_no_metrics_save", "1")?;
        if settings.cookies {
            ns.sysctl("net.ipv4.tcp_syncookies", "2")?;
        }
        if settings.ecn {
            ns.sysctl("net.ipv4.tcp_ecn", "1")?;
        }
        if settings.fast_open {
            ns.sysctl("net.ipv4.tcp_fastopen", &FAST_OPEN_ALL.to_string())?;
        }
        Ok(Self {
            ns,
            device,
            start: Instant::now(),
            settings: settings.clone(),
            listener: None,
            stream: None,
            earlier: Vec::new(),
            read: Vec::new(),
        })
    }

    fn socket(&self) -> std::io::Result<Socket> {
        let buffer = self.settings.receive_buffer;
        self.ns.run(move || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP))?;
            socket.set_tcp_congestion(b"cubic")?;
            socket.set_tcp_nodelay(true)?;
            socket.set_reuse_address(true)?;
            socket.set_nonblocking(true)?;
            if let Some(bytes) = buffer {
                // The kernel takes twice as much, for its own bookkeeping.
                socket.set_recv_buffer_size(bytes as usize)?;
            }
            Ok(socket)
        })
    }

    fn listen(&mut self) -> std::io::Result<Progress> {
        let socket = self.socket()?;
        socket.bind(&SocketAddr::from(([0, 0, 0, 0], PORT)).into())?;
        socket.listen(8)?;
        self.listener = Some(socket.into());
        Ok(Progress::Done)
    }

    fn connect(&mut self, early: &[u8]) -> std::io::Result<Progress> {
        let socket = self.socket()?;
        socket.bind(&SocketAddr::new(device_address(0), 0).into())?;
        let remote = SocketAddr::new(peer_address(0), PORT);
        let started = if self.settings.fast_open {
            // Without a cookie nothing is taken, and without bytes nothing is asked.
            let bytes = if early.is_empty() { b"?" } else { early };
            let sent = rustix::net::sendto(&socket, bytes, MSG_FASTOPEN, &remote);
            sent.map(drop).map_err(std::io::Error::from)
        } else {
            socket.connect(&remote.into())
        };
        self.stream = Some(socket.into());
        match started {
            Err(error)
                if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
            {
                Err(error)
            }
            _ => Ok(Progress::Done),
        }
    }

    fn accept(&mut self) -> std::io::Result<Progress> {
        let Some(listener) = &self.listener else {
            return Ok(Progress::Failed("nobody listens".to_owned()));
        };
        let (stream, _) = listener.accept()?;
        stream.set_nonblocking(true)?;
        self.stream = Some(stream);
        Ok(Progress::Done)
    }

    fn stream(&mut self) -> std::io::Result<&mut TcpStream> {
        self.stream
            .as_mut()
            .ok_or_else(|| ErrorKind::NotConnected.into())
    }

    fn connected(&mut self) -> std::io::Result<Progress> {
        let stream = self.stream()?;
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        Ok(match stream.peer_addr() {
            Ok(_) => Progress::Done,
            Err(_) => Progress::NotYet,
        })
    }

    /// Reads what is there; whether the stream has ended.
    fn take(&mut self) -> std::io::Result<bool> {
        let mut part = [0; 4096];
        loop {
            match self.stream()?.read(&mut part) {
                Ok(0) => return Ok(true),
                Ok(n) => self.read.extend_from_slice(&part[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    fn read(&mut self, wanted: &[u8]) -> Progress {
        let end = self.take();
        Progress::of_reading(&mut self.read, wanted, &end)
    }

    fn read_end(&mut self, reset: bool) -> Progress {
        let end = self.take();
        if !self.read.is_empty() {
            let text = String::from_utf8_lossy(&self.read);
            return Progress::Failed(format!("the application read {text:?}"));
        }
        match end {
            Ok(true) if !reset => Progress::Done,
            Err(error) if reset && error.kind() == ErrorKind::ConnectionReset => Progress::Done,
            Ok(false) => Progress::NotYet,
            end => Progress::Failed(format!("the application read the end {end:?}")),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<Progress> {
        let n = self.stream()?.write(bytes)?;
        Ok(match n == bytes.len() {
            true => Progress::Done,
            false => Progress::Failed(format!("the kernel took {n} bytes")),
        })
    }

    fn abort(&mut self) -> std::io::Result<Progress> {
        // To disconnect is what the kernel calls a fast close.
        rustix::net::connect_unspec(self.stream()?.as_fd())?;
        Ok(Progress::Done)
    }

    fn endpoint(&self, line: &str) -> std::io::Result<Progress> {
        Ok(match self.ns.ip([format!("mptcp endpoint {line}")]) {
            Ok(()) => Progress::Done,
            Err(error) => Progress::Failed(error.to_string()),
        })
    }

    fn speaks(&mut self, mptcp: bool) -> std::io::Result<Progress> {
        let info = kernel_mptcp(self.stream()?.as_fd())?;
        let speaks = info.is_some_and(|info| !info.fallback);
        Ok(match speaks == mptcp {
            true => Progress::Done,
            false => Progress::NotYet,
        })
    }

    fn try_action(&mut self, action: &Action) -> std::io::Result<Progress> {
        match action {
            Action::Listen => self.listen(),
            Action::Connect(early) => self.connect(early),
            Action::Connected => self.connected(),
            Action::Accept => self.accept(),
            Action::Write(bytes) => self.write(bytes),
            Action::Read(bytes) => Ok(self.read(bytes)),
            Action::ReadEnd => Ok(self.read_end(false)),
            Action::ReadReset => Ok(self.read_end(true)),
            Action::Shutdown => {
                self.stream()?.shutdown(Shutdown::Write)?;
                Ok(Progress::Done)
            }
            Action::Close => {
                self.stream = None;
                Ok(Progress::Done)
            }
            Action::Abort => self.abort(),
            Action::Join(path) => {
                let address = device_address(*path);
                self.endpoint(&format!("add {address} id {path} dev {DEVICE} subflow"))
            }
            Action::Announce(path) => {
                let address = device_address(*path);
                self.endpoint(&format!("add {address} id {path} dev {DEVICE} signal"))
            }
            Action::Withdraw(path) => self.endpoint(&format!("delete id {path}")),
            Action::Backup(path) => self.endpoint(&format!("change id {path} backup")),
            Action::Speaks(mptcp) => self.speaks(*mptcp),
        }
    }
}

impl Arm for Kernel {
    fn name(&self) -> ArmName {
        ArmName::Kernel
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn patience(&self, wanted: Duration) -> Duration {
        wanted * 2 + PATIENCE
    }

    fn inject(&mut self, packet: &[u8]) -> Result<(), String> {
        match (&self.device).write(packet) {
            Ok(n) if n == packet.len() => Ok(()),
            other => Err(format!("the packet was not taken: {other:?}")),
        }
    }

    fn receive(&mut self, until: Duration) -> Option<Vec<u8>> {
        let mut packet = vec![0; 2048];
        loop {
            match (&self.device).read(&mut packet) {
                Ok(n) => {
                    packet.truncate(n);
                    return Some(packet);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => {}
            }
            let left = until
                .checked_sub(self.now())
                .filter(|left| !left.is_zero())?;
            let mut fds = [PollFd::new(&self.device, PollFlags::IN)];
            let timeout = rustix::time::Timespec::try_from(left).ok()?;
            // A time-out or a signal: the loop looks at the clock.
            let _ = poll(&mut fds, Some(&timeout));
        }
    }

    fn act(&mut self, action: &Action) -> Progress {
        match self.try_action(action) {
            Ok(progress) => progress,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Progress::NotYet,
            Err(error) => Progress::Failed(error.to_string()),
        }
    }

    fn next_connection(&mut self) {
        self.earlier.extend(self.stream.take());
        self.read.clear();
    }
}
