//! A connection with subflows that are up, without a stack around it, for table tests of its parts.

use core::net::{IpAddr, SocketAddr};

use manypath_tcp::cc::GroupView;
use manypath_tcp::machine::{Config, Context, Decision, Machine, Offer, State};
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ids::{AddrId, FourTuple, Key, Mss};
use manypath_wire::ip::{Ecn, IpMeta};
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::{Flags, Header};
use manypath_wire::tcp::options::Options;

use crate::api::{ConnOptions, IfaceId, Offload, Role, SubflowOrigin};
use crate::conn::dss::offset::{Numbering, Offset};
use crate::conn::handshake::Stage;
use crate::conn::subflow::Subflow;
use crate::conn::types::SubflowIdx;
use crate::conn::{Conn, ConnParams, Cx, Endpoint, HandshakeState};
use crate::crypto::keys::KeyMaterial;
use crate::crypto::rng::Rng;
use crate::ids::{ConnId, SubflowId};
use crate::slab::Slab;
use crate::stats::Counters;

/// Initial sequence numbers of both ends of each subflow.
const ISN: SeqNum = SeqNum::new(1_000);
const IRS: SeqNum = SeqNum::new(9_000);

/// How long the handshakes took.
const ROUND_TRIP: Duration = Duration::from_millis(10);

/// A connection, and what its calls need.
pub(in crate::conn) struct Bench {
    pub(in crate::conn) conn: Conn,
    pub(in crate::conn) count: Counters,
    pub(in crate::conn) now: Instant,
    rng: Rng,
}

impl Bench {
    /// The first subflow at position 0, and joins behind it, all of them up. Keys are exchanged; both streams are empty.
    pub(in crate::conn) fn new(subflows: u8, checksum: bool) -> Self {
        let now = Instant::from_secs(100);
        let opts = ConnOptions {
            checksum,
            ..ConnOptions::default()
        };
        let mut slab = Slab::new();
        let birth = ConnParams {
            id: ConnId(slab.insert(())),
            role: Role::Initiator,
            opts,
            local: Some(KeyMaterial::derive(Key([1; 8]))),
            offered_checksum: false,
            no_joins_to_first: false,
            manager: None,
        };
        let endpoint = endpoint(0);
        let mut conn = Conn::new(birth, endpoint, established(endpoint.tuple, now), now);
        let remote = KeyMaterial::derive(Key([2; 8]));
        conn.numbers.rx = Some(Numbering::new(remote.idsn));
        conn.handshake.keys.remote = Some(remote);
        conn.handshake.stage = Stage::FullyEstablished;
        conn.subflows[SubflowIdx::FIRST].handshake.state = HandshakeState::Done;
        for number in 1..subflows {
            let endpoint = self::endpoint(number);
            let tcp = established(endpoint.tuple, now);
            let joined = Subflow::new(endpoint, tcp, HandshakeState::Done, now);
            conn.subflows.add(joined);
            conn.subflows.joined = true;
        }
        for sf in &mut conn.subflows {
            sf.handshake.ends(now, Some(ROUND_TRIP));
        }
        Self {
            conn,
            count: Counters::default(),
            now,
            rng: Rng::new([0; 32]),
        }
    }

    /// Calls into the connection.
    pub(in crate::conn) fn with<T>(&mut self, call: impl FnOnce(&mut Conn, &mut Cx<'_>) -> T) -> T {
        let mut cx = Cx::new(self.now, &mut self.count, &mut self.rng);
        call(&mut self.conn, &mut cx)
    }

    /// The application writes so many bytes, and `sent` of them leave.
    pub(in crate::conn) fn write(&mut self, bytes: usize, sent: u32) {
        assert_eq!(self.conn.send.write_with(bytes, |_| {}), bytes);
        self.conn.send.sent(sent);
    }

    /// The whole stream of the peer so far arrives verified.
    pub(in crate::conn) fn receive(&mut self, bytes: &[u8]) {
        let at = self.conn.recv.next();
        let (_, advanced) = self.conn.recv.accept(None, at, bytes);
        assert_eq!(advanced, bytes.len() as u64);
    }

    /// The peer's DATA_FIN is right behind what arrived.
    pub(in crate::conn) fn receive_end(&mut self) {
        let end = self.conn.recv.next();
        assert!(self.conn.recv.note_end(end) && self.conn.recv.finished());
    }

    /// What the application can read.
    pub(in crate::conn) fn read(&mut self) -> alloc::vec::Vec<u8> {
        let mut out = alloc::vec::Vec::new();
        let most = self.conn.recv.readable() as usize;
        self.conn
            .recv
            .read_with(most, |part| out.extend_from_slice(part));
        out
    }
}

/// A position in a stream.
pub(in crate::conn) fn at(bytes: u64) -> Offset {
    Offset(bytes)
}

/// The addresses of a subflow.
fn endpoint(number: u8) -> Endpoint {
    let addr = |host| SocketAddr::new(IpAddr::from([10, 0, number, host]), 80);
    Endpoint {
        id: SubflowId(number),
        iface: IfaceId(u32::from(number)),
        offload: Offload::default(),
        tuple: FourTuple::new(addr(1), addr(2)),
        origin: match number {
            0 => SubflowOrigin::First,
            _ => SubflowOrigin::PathManager,
        },
        local_id: AddrId(number),
        remote_id: AddrId(number),
        backup_here: false,
        backup_there: false,
    }
}

/// A TCP machine whose handshake is complete.
fn established(tuple: FourTuple, now: Instant) -> Machine {
    let config = Config {
        options: manypath_tcp::machine::TcpOptions {
            timestamps: false,
            window_scaling: false,
            ..Default::default()
        },
        congestion: manypath_tcp::machine::CongestionConfig {
            pacing: false,
            ..Default::default()
        },
        ..Config::default()
    };
    let offer = Offer {
        available: 0,
        fin: false,
        option_space: 0,
        max_burst: 1,
        push: true,
        no_nagle: false,
        probe_new: true,
    };
    let mut machine = Machine::connect(config, now, ISN);
    let send = |machine: &mut Machine| match machine.decide(now, &offer) {
        Decision::Send(plan) => machine.sent(now, &plan),
        Decision::Idle => panic!("a packet of the handshake is due"),
    };
    send(&mut machine);
    let syn_ack = Segment {
        tuple,
        ip: IpMeta {
            src: tuple.remote.ip(),
            dst: tuple.local.ip(),
            protocol: 6,
            ttl: 64,
            ecn: Ecn::NotEct,
            total_len: 44,
            header_len: 20,
        },
        header: Header {
            src_port: tuple.remote.port(),
            dst_port: tuple.local.port(),
            seq: IRS,
            ack: ISN + 1,
            flags: Flags::SYN | Flags::ACK,
            window: 60_000,
            urgent: 0,
        },
        options: Options {
            mss: Some(Mss(1460)),
            ..Options::EMPTY
        },
        payload: &[],
        payload_sum: None,
    };
    let context = Context {
        group: GroupView::ALONE,
        congestion_signal_ok: true,
    };
    machine.on_segment(now + ROUND_TRIP, &syn_ack, &context);
    send(&mut machine);
    assert_eq!(machine.state(), State::Established);
    machine
}
