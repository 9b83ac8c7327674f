//! The first arm: our stack in virtual time.

use std::net::SocketAddr;
use std::time::Duration;

use manypath_stack::ids::{ConnId, ListenerId};
use manypath_stack::{
    ConnOptions, ConnState, ConnectOptions, IfaceId, ListenOptions, PathEvent, PathManager,
    ProtocolLevel, ReadOutcome, RxMeta, Stack, StackConfig, StackError, SubflowPhase,
    SynCookiePolicy,
};
use manypath_tcp::time::{self, Instant};
use manypath_testkit::{Wire, next_timer, path};

use super::{Action, Arm, ArmName, DEVICE, PORT, Progress, Settings, device_address, peer_address};

/// How long a packet of the script takes to the stack.
const ONE_WAY: time::Duration = time::Duration::from_millis(1);
/// The stack's clock when the script begins.
const START: Instant = Instant::from_secs(10);
/// A stack that sends so often at one moment does not end.
const ENDLESS: usize = 10_000;

/// Our stack with an application and a wire.
pub struct Ours {
    stack: Stack,
    now: Instant,
    wire: Wire,
    options: ConnOptions,
    listener: Option<ListenerId>,
    conn: Option<ConnId>,
    read: Vec<u8>,
}

impl std::fmt::Debug for Ours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ours")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

impl Ours {
    /// A stack as a script wants it.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let config = StackConfig {
            syn_cookies: match settings.cookies {
                true => SynCookiePolicy::Always,
                false => SynCookiePolicy::WhenFull,
            },
            ..StackConfig::default()
        };
        let mut options = ConnOptions {
            checksum: settings.checksum,
            fast_open: settings.fast_open,
            ecn: settings.ecn,
            nodelay: true,
            pacing: false,
            path_manager: match settings.mesh {
                true => PathManager::FullMesh,
                false => PathManager::Passive,
            },
            ..ConnOptions::default()
        };
        if let Some(bytes) = settings.receive_buffer {
            options.recv_buffer = bytes;
        }
        let mut arm = Self {
            stack: Stack::new(config, [7; 32], START),
            now: START,
            wire: Wire::default(),
            options,
            listener: None,
            conn: None,
            read: Vec::new(),
        };
        arm.up(0);
        arm
    }

    fn up(&mut self, number: u8) {
        if !self
            .stack
            .paths()
            .iter()
            .any(|p| p.addr == device_address(number))
        {
            self.stack
                .handle_path_event(self.now, PathEvent::Up(path(DEVICE, number)));
        }
    }

    /// Lets the stack send everything that it wants to send now.
    fn flush(&mut self) {
        self.wire.flush(&mut self.stack, self.now, ENDLESS);
        while self.stack.poll_event().is_some() {}
    }

    /// Goes to the next timer if it is due by then.
    fn tick(&mut self, until: Instant) -> bool {
        let due = next_timer(&mut self.stack, &mut self.now, until);
        if due {
            self.flush();
        }
        due
    }

    fn advance(&mut self, until: Instant) {
        self.flush();
        for _ in 0..ENDLESS {
            if !self.tick(until) {
                break;
            }
        }
        self.now = self.now.max(until);
    }

    fn with(
        &mut self,
        call: impl FnOnce(&mut Stack, Instant, ConnId) -> Result<(), StackError>,
    ) -> Progress {
        let Some(conn) = self.conn else {
            return Progress::Failed("the application has no connection".to_owned());
        };
        match call(&mut self.stack, self.now, conn) {
            Ok(()) => Progress::Done,
            Err(error) => Progress::Failed(error.to_string()),
        }
    }

    /// Reads into the buffer what is there; the error, or whether the stream has ended.
    fn take(&mut self) -> Result<bool, StackError> {
        let conn = self.conn.ok_or(StackError::NoSuchHandle)?;
        let mut part = [0; 4096];
        loop {
            match self.stack.read(self.now, conn, &mut part)? {
                ReadOutcome::Data(n) => self.read.extend_from_slice(&part[..n]),
                ReadOutcome::Empty => return Ok(false),
                ReadOutcome::End => return Ok(true),
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
        match (end, reset) {
            (Ok(true), false) | (Err(StackError::Reset), true) => Progress::Done,
            (Ok(false), _) => Progress::NotYet,
            (end, _) => Progress::Failed(format!("the application read the end {end:?}")),
        }
    }

    fn open(&mut self, early: &[u8]) -> Progress {
        let remote = SocketAddr::new(peer_address(0), PORT);
        let options = ConnectOptions {
            remote,
            local: Some(device_address(0)),
            conn: self.options.clone(),
        };
        self.conn = match self.stack.connect(self.now, options) {
            Ok(conn) => Some(conn),
            Err(error) => return Progress::Failed(error.to_string()),
        };
        if early.is_empty() {
            return Progress::Done;
        }
        self.write(early)
    }

    fn write(&mut self, bytes: &[u8]) -> Progress {
        self.with(|stack, now, conn| match stack.write(now, conn, bytes)? {
            n if n == bytes.len() => Ok(()),
            _ => Err(StackError::TooMany),
        })
    }

    fn join(&mut self, number: u8) -> Progress {
        self.up(number);
        self.with(|stack, now, conn| {
            let remote = stack.info(conn)?.remote;
            let local = device_address(number);
            // A refusal is part of the answer: the script sees whether a SYN leaves.
            let _ = stack.create_subflow(now, conn, local, remote, false);
            Ok(())
        })
    }

    fn backup(&mut self, number: u8) -> Progress {
        self.with(|stack, now, conn| {
            let info = stack.info(conn)?;
            let local = device_address(number);
            let mut all = info.subflows.iter();
            let subflow =
                all.find(|s| s.tuple.local.ip() == local && s.phase == SubflowPhase::Established);
            let subflow = subflow.ok_or(StackError::NoPath)?;
            stack.set_backup(now, conn, subflow.id, true)
        })
    }

    fn accept(&mut self) -> Progress {
        let Some(listener) = self.listener else {
            return Progress::Failed("nobody listens".to_owned());
        };
        self.conn = self.stack.accept(listener);
        self.conn.map_or(Progress::NotYet, |_| Progress::Done)
    }

    fn listen(&mut self) -> Progress {
        let options = ListenOptions {
            addr: SocketAddr::from(([0, 0, 0, 0], PORT)),
            backlog: 8,
            conn: self.options.clone(),
        };
        match self.stack.listen(options) {
            Ok(listener) => {
                self.listener = Some(listener);
                Progress::Done
            }
            Err(error) => Progress::Failed(error.to_string()),
        }
    }

    fn ask(&mut self, holds: impl FnOnce(&manypath_stack::ConnInfo) -> bool) -> Progress {
        let info = self
            .conn
            .ok_or(StackError::NoSuchHandle)
            .and_then(|c| self.stack.info(c));
        match info {
            Ok(info) if holds(&info) => Progress::Done,
            Ok(_) => Progress::NotYet,
            Err(error) => Progress::Failed(error.to_string()),
        }
    }
}

impl Arm for Ours {
    fn name(&self) -> ArmName {
        ArmName::Ours
    }

    fn now(&self) -> Duration {
        Duration::from_micros(self.now.since(START).as_micros())
    }

    fn patience(&self, wanted: Duration) -> Duration {
        wanted
    }

    fn inject(&mut self, packet: &[u8]) -> Result<(), String> {
        self.advance(self.now + ONE_WAY);
        // The destination's third octet is the path (see `device_address`).
        let iface = IfaceId(u32::from(packet.get(18).copied().unwrap_or(0)));
        self.stack
            .handle_packet(self.now, iface, packet, RxMeta::default());
        self.flush();
        Ok(())
    }

    fn receive(&mut self, until: Duration) -> Option<Vec<u8>> {
        // Scripts last for seconds.
        let until = START + time::Duration::from_micros(until.as_micros() as u64);
        self.flush();
        for _ in 0..ENDLESS {
            if let Some(packet) = self.wire.take() {
                return Some(packet);
            }
            if !self.tick(until) {
                break;
            }
        }
        self.now = self.now.max(until);
        None
    }

    fn act(&mut self, action: &Action) -> Progress {
        let progress = match action {
            Action::Listen => self.listen(),
            Action::Connect(early) => self.open(early),
            Action::Connected => self.ask(|info| info.state != ConnState::Opening),
            Action::Accept => self.accept(),
            Action::Write(bytes) => self.write(bytes),
            Action::Read(bytes) => self.read(bytes),
            Action::ReadEnd => self.read_end(false),
            Action::ReadReset => self.read_end(true),
            Action::Shutdown => self.with(|stack, now, conn| stack.shutdown_write(now, conn)),
            Action::Close => self.with(|stack, now, conn| stack.close(now, conn)),
            Action::Abort => self.with(|stack, now, conn| stack.abort(now, conn)),
            Action::Join(number) => self.join(*number),
            Action::Announce(number) => {
                self.up(*number);
                Progress::Done
            }
            Action::Withdraw(number) => {
                let (iface, addr) = (IfaceId(u32::from(*number)), device_address(*number));
                let event = PathEvent::Down { iface, addr };
                self.stack.handle_path_event(self.now, event);
                Progress::Done
            }
            Action::Backup(number) => self.backup(*number),
            Action::Speaks(mptcp) => {
                self.ask(|info| (info.level < ProtocolLevel::InfiniteMapping) == *mptcp)
            }
        };
        self.flush();
        progress
    }

    fn next_connection(&mut self) {
        self.conn = None;
        self.read.clear();
    }
}
