//! One Multipath TCP connection between the stack and the scripted peer.

use std::net::SocketAddr;

use manypath_stack::crypto::keys::KeyMaterial;
use manypath_stack::crypto::mac::{self, JoinMac, Keys};
use manypath_stack::ids::{ConnId, ListenerId};
use manypath_stack::{
    ConnInfo, ConnOptions, ConnectOptions, ListenOptions, ReadOutcome, SubflowPhase,
};
use manypath_wire::checksum::{self, Sum};
use manypath_wire::dsn::Dsn;
use manypath_wire::ids::{AddrId, Key, Nonce};
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::{
    AddAddr, Capable, CapableKeys, DataAck, Dss, Fail, Join, MapDsn, Mapping, MptcpOption,
};

use super::packet::{Pkt, Seg, ack, data, syn, syn_ack};
use super::{World, ours, plain_options, theirs};

/// The peer's key in every script.
pub(crate) const PEER_KEY: Key = Key([0xdb, 0xb7, 0x60, 0xdb, 0x1d, 0x55, 0xe0, 0x7b]);
/// The server's port on either side.
pub(crate) const PORT: u16 = 80;
/// The peer's nonce in joins.
pub(crate) const PEER_NONCE: Nonce = Nonce(0x0102_0304);

/// A connection, its keys and its wire.
pub(crate) struct Session {
    pub(crate) w: World,
    pub(crate) conn: ConnId,
    pub(crate) listener: Option<ListenerId>,
    pub(crate) own: KeyMaterial,
    pub(crate) peer: KeyMaterial,
    pub(crate) checksum: bool,
    /// Everything the peer has received in stream order: its Data ACK.
    pub(crate) received: u64,
}

/// An MP_CAPABLE of the peer.
pub(crate) fn capable(checksum: bool, keys: CapableKeys) -> MptcpOption {
    MptcpOption::Capable(Capable::v1(checksum, keys))
}

/// The stack listens on port 80 of all paths.
pub(crate) fn listen(w: &mut World, conn: ConnOptions) -> ListenerId {
    w.stack
        .listen(ListenOptions {
            addr: SocketAddr::from(([0, 0, 0, 0], PORT)),
            backlog: 8,
            conn,
        })
        .expect("the port is free")
}

/// The peer calls and is answered with a key: its flow, the answer and the key in it.
pub(crate) fn greet(w: &mut World, checksum: bool) -> (usize, Seg, Key) {
    let flow = w.dial(0, 4000, PORT);
    w.inject(flow, &syn().opt(capable(checksum, CapableKeys::Syn)));
    let answer = w.expect(flow, "SYN/ACK", |s| s.is_syn_ack());
    let Some(CapableKeys::SynAck { sender }) = answer.capable().map(|c| c.keys) else {
        w.fail("the SYN/ACK has no key");
    };
    (flow, answer, sender)
}

/// The third packet of the peer, which says its key and repeats that of the stack.
pub(crate) fn third_packet(checksum: bool, receiver: Key) -> Pkt {
    let keys = CapableKeys::Ack {
        sender: PEER_KEY,
        receiver,
    };
    ack().opt(capable(checksum, keys))
}

/// A call to port 80 of the peer.
pub(crate) fn call(conn: ConnOptions) -> ConnectOptions {
    ConnectOptions {
        remote: SocketAddr::new(theirs(0), PORT),
        local: None,
        conn,
    }
}

/// The stack calls port 80 of the peer.
pub(crate) fn connect(w: &mut World, conn: ConnOptions) -> ConnId {
    let id = w
        .stack
        .connect(w.now, call(conn))
        .expect("a path leads there");
    w.flush();
    id
}

/// A mapping that is right in every respect.
pub(crate) fn map_at(dsn: Dsn, ssn: Ssn, bytes: &[u8], checksum: bool) -> Mapping {
    let len = bytes.len() as u16;
    Mapping {
        dsn: MapDsn::Long(dsn.get()),
        ssn,
        len,
        checksum: checksum.then(|| checksum::dss(dsn, ssn, len, Sum::of(bytes))),
    }
}

impl Session {
    /// A connection whose handshake the script made itself.
    pub(crate) fn around(
        w: World,
        conn: ConnId,
        listener: Option<ListenerId>,
        own: KeyMaterial,
        checksum: bool,
    ) -> Self {
        Self {
            w,
            conn,
            listener,
            own,
            peer: KeyMaterial::derive(PEER_KEY),
            checksum,
            received: 0,
        }
    }

    /// The peer called; the third packet was delivered, and a first DSS in each direction.
    pub(crate) fn accepted() -> Self {
        Self::accepted_with(1, plain_options())
    }

    pub(crate) fn accepted_with(paths: u8, opts: ConnOptions) -> Self {
        let checksum = opts.checksum;
        let mut w = World::new(paths);
        let listener = listen(&mut w, opts);
        let (flow, _, sender) = greet(&mut w, checksum);
        w.inject(flow, &third_packet(checksum, sender));
        let conn = w.stack.accept(listener).expect("the handshake is complete");
        let own = KeyMaterial::derive(sender);
        let mut session = Self::around(w, conn, Some(listener), own, checksum);
        session.ack(0);
        session.w.drain(0);
        session
    }

    /// The stack called; a first DSS went in each direction.
    pub(crate) fn called() -> Self {
        Self::called_with(1, plain_options())
    }

    pub(crate) fn called_with(paths: u8, opts: ConnOptions) -> Self {
        let mut session = Self::greeted(paths, opts);
        session.ack(0);
        session.w.drain(0);
        session
    }

    /// The stack called and has sent its third packet, which is still in the script's hands.
    pub(crate) fn greeted(paths: u8, opts: ConnOptions) -> Self {
        let checksum = opts.checksum;
        let mut w = World::new(paths);
        let conn = connect(&mut w, opts);
        let (flow, _) = w.answer();
        let keys = CapableKeys::SynAck { sender: PEER_KEY };
        w.inject(flow, &syn_ack().opt(capable(checksum, keys)));
        let third = w.sent.back().cloned();
        let Some(CapableKeys::Ack { sender, .. }) = third.and_then(|s| s.capable().map(|c| c.keys))
        else {
            w.fail("the third packet has no keys");
        };
        Self::around(w, conn, None, KeyMaterial::derive(sender), checksum)
    }

    /// The stack called a peer with so large a window, and so near, that 32-bit numbers could wrap in flight.
    pub(crate) fn fast(opts: ConnOptions) -> Self {
        let checksum = opts.checksum;
        let mut w = World::new(1);
        let conn = connect(&mut w, opts);
        let (flow, _) = w.answer();
        let keys = CapableKeys::SynAck { sender: PEER_KEY };
        let mut answer = syn_ack().opt(capable(checksum, keys));
        answer.options.window_scale = Some(10);
        w.inject(flow, &answer);
        let third = w.find(flow, "the third packet", |s| s.capable().is_some());
        let Some(CapableKeys::Ack { sender, .. }) = third.capable().map(|c| c.keys) else {
            w.fail("no keys");
        };
        let mut session = Self::around(w, conn, None, KeyMaterial::derive(sender), checksum);
        session.ack(0);
        session.w.drain(0);
        session
    }

    /// The stack's keys first.
    pub(crate) fn keys(&self) -> Keys {
        Keys {
            sender: self.own.key(),
            receiver: self.peer.key(),
        }
    }

    /// The number of a position of the peer's stream.
    pub(crate) fn peer_dsn(&self, at: u64) -> Dsn {
        self.peer.first_byte() + at
    }

    /// The number of a position of the stack's stream.
    pub(crate) fn own_dsn(&self, at: u64) -> Dsn {
        self.own.first_byte() + at
    }

    /// The peer's Data ACK.
    pub(crate) fn data_ack(&self) -> DataAck {
        DataAck::Long(self.own_dsn(self.received).get())
    }

    /// The subflow number of the next byte of a flow.
    pub(crate) fn ssn(&self, flow: usize) -> Ssn {
        let flow = &self.w.flows[flow];
        Ssn::of(flow.nxt, flow.isn)
    }

    /// A mapping of bytes of the peer's stream, right in every respect.
    pub(crate) fn map(&self, flow: usize, at: u64, bytes: &[u8]) -> Mapping {
        map_at(self.peer_dsn(at), self.ssn(flow), bytes, self.checksum)
    }

    /// The mapping that the stack has to send for bytes of its own stream.
    pub(crate) fn map_of_own(&self, at: u64, ssn: Ssn, bytes: &[u8]) -> Mapping {
        map_at(self.own_dsn(at), ssn, bytes, self.checksum)
    }

    /// A DSS of the peer.
    pub(crate) fn dss(&self, mapping: Option<Mapping>) -> MptcpOption {
        MptcpOption::Dss(Dss {
            data_ack: Some(self.data_ack()),
            mapping,
            data_fin: false,
        })
    }

    /// A segment with bytes of the peer's stream at a position.
    pub(crate) fn segment(&self, flow: usize, at: u64, bytes: &[u8]) -> Pkt {
        data(bytes).opt(self.dss(Some(self.map(flow, at, bytes))))
    }

    /// Sends bytes of the peer's stream.
    pub(crate) fn send(&mut self, flow: usize, at: u64, bytes: &[u8]) {
        let pkt = self.segment(flow, at, bytes);
        self.w.inject(flow, &pkt);
    }

    /// Sends a mapping whose checksum is wrong.
    pub(crate) fn send_damaged(&mut self, flow: usize, at: u64, bytes: &[u8]) {
        let mut map = self.map(flow, at, bytes);
        map.checksum = map.checksum.map(|sum| sum ^ 0x5555);
        let pkt = data(bytes).opt(self.dss(Some(map)));
        self.w.inject(flow, &pkt);
    }

    /// An acknowledgement with a Data ACK.
    pub(crate) fn ack(&mut self, flow: usize) {
        let pkt = ack().opt(self.dss(None));
        self.w.inject(flow, &pkt);
    }

    /// A bare DATA_FIN of the peer at a position.
    pub(crate) fn data_fin(&self, at: u64) -> MptcpOption {
        let (dsn, ssn) = (self.peer_dsn(at), Ssn::new(0));
        let checksum = self.checksum.then(|| checksum::dss(dsn, ssn, 1, Sum::ZERO));
        MptcpOption::Dss(Dss {
            data_ack: Some(self.data_ack()),
            mapping: Some(Mapping {
                dsn: MapDsn::Long(dsn.get()),
                ssn,
                len: 1,
                checksum,
            }),
            data_fin: true,
        })
    }

    /// An MP_FAIL of the peer for a position of the stack's stream.
    pub(crate) fn fail_at(&self, at: u64) -> MptcpOption {
        MptcpOption::Fail(Fail {
            dsn: self.own_dsn(at),
        })
    }

    /// The application of the stack writes.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let now = self.w.now;
        let n = self.w.stack.write(now, self.conn, bytes);
        assert_eq!(n, Ok(bytes.len()), "{}", self.w.log());
        self.w.flush();
    }

    /// What the application of the stack can read now.
    pub(crate) fn read(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut part = [0; 4096];
        let now = self.w.now;
        while let Ok(ReadOutcome::Data(n)) = self.w.stack.read(now, self.conn, &mut part) {
            out.extend_from_slice(&part[..n]);
        }
        self.w.flush();
        out
    }

    pub(crate) fn shutdown(&mut self) {
        let now = self.w.now;
        let done = self.w.stack.shutdown_write(now, self.conn);
        assert_eq!(done, Ok(()));
        self.w.flush();
    }

    pub(crate) fn abort(&mut self) {
        let now = self.w.now;
        assert_eq!(self.w.stack.abort(now, self.conn), Ok(()));
        self.w.flush();
    }

    pub(crate) fn info(&self) -> ConnInfo {
        self.w.stack.info(self.conn).expect("the handle is open")
    }

    /// Subflows that carry data.
    pub(crate) fn working(&self) -> usize {
        let up = |phase: SubflowPhase| phase == SubflowPhase::Established;
        self.info().subflows.iter().filter(|s| up(s.phase)).count()
    }

    /// Bytes that the stack sent on its only subflow.
    pub(crate) fn sent_by_stack(&self) -> u64 {
        let flow = &self.w.flows[0];
        u64::from(flow.rcv.since(flow.irs + 1))
    }

    /// The position in the stack's stream that a mapping of its starts at.
    pub(crate) fn position(&self, map: &Mapping) -> u64 {
        map.dsn.expand(self.own_dsn(0)).since(self.own_dsn(0))
    }

    /// The position in the peer's stream that the stack acknowledges.
    pub(crate) fn acked(&self, seg: &Seg) -> Option<u64> {
        let ack = seg.dss()?.data_ack?;
        Some(ack.expand(self.peer_dsn(0)).since(self.peer_dsn(0)))
    }

    /// A join SYN of the peer.
    pub(crate) fn join_syn(&self, id: u8, backup: bool) -> Pkt {
        syn().opt(MptcpOption::Join(Join::Syn {
            backup,
            addr_id: AddrId(id),
            token: self.own.token,
            nonce: PEER_NONCE,
        }))
    }

    /// The third packet of a join of the peer, given the SYN/ACK.
    pub(crate) fn join_ack(&self, answer: &Seg) -> Pkt {
        let Some(&Join::SynAck { hmac, nonce, .. }) = answer.join() else {
            self.w.fail("the SYN/ACK has no MP_JOIN");
        };
        let proof = JoinMac::compute(self.keys(), nonce, PEER_NONCE).syn_ack();
        assert_eq!(hmac, proof, "the stack's code in the SYN/ACK");
        let hmac = JoinMac::compute(self.keys().reversed(), PEER_NONCE, nonce).ack();
        ack().opt(MptcpOption::Join(Join::Ack { hmac }))
    }

    /// The peer joins on a path and the join is complete.
    pub(crate) fn join_in(&mut self, number: u8, id: u8, backup: bool) -> usize {
        let flow = self.w.dial(number, 4000 + u16::from(id), PORT);
        let syn = self.join_syn(id, backup);
        self.w.inject(flow, &syn);
        let answer = self.w.expect(flow, "SYN/ACK with MP_JOIN", |s| {
            s.is_syn_ack() && s.join().is_some()
        });
        let third = self.join_ack(&answer);
        self.w.inject(flow, &third);
        self.w
            .find(flow, "the fourth packet", |s| s.is_bare() && s.flags.ack());
        self.w.drain(flow);
        flow
    }

    /// Asks the stack for a subflow on a path; its SYN is answered by the script.
    pub(crate) fn open_out(&mut self, number: u8) -> (usize, Seg) {
        let now = self.w.now;
        let remote = SocketAddr::new(theirs(number), PORT);
        let done = self
            .w
            .stack
            .create_subflow(now, self.conn, ours(number), remote, false);
        assert!(done.is_ok(), "{done:?}\n{}", self.w.log());
        self.w.answer()
    }

    /// The SYN/ACK to a join of the stack.
    pub(crate) fn join_answer(&self, syn: &Seg, id: u8, backup: bool) -> Pkt {
        let Some(&Join::Syn { nonce, token, .. }) = syn.join() else {
            self.w.fail("the SYN has no MP_JOIN");
        };
        assert_eq!(token, self.peer.token);
        let hmac = JoinMac::compute(self.keys().reversed(), PEER_NONCE, nonce).syn_ack();
        syn_ack().opt(MptcpOption::Join(Join::SynAck {
            backup,
            addr_id: AddrId(id),
            hmac,
            nonce: PEER_NONCE,
        }))
    }

    /// The stack joins on a path and the join is complete.
    pub(crate) fn join_out(&mut self, number: u8, id: u8, backup: bool) -> usize {
        let (flow, syn) = self.open_out(number);
        let answer = self.join_answer(&syn, id, backup);
        self.w.inject(flow, &answer);
        self.w.find(flow, "the third packet", |s| {
            matches!(s.join(), Some(Join::Ack { .. }))
        });
        self.ack(flow);
        self.w.drain(flow);
        flow
    }

    /// An announcement of the peer with the right code.
    pub(crate) fn add_addr(&self, id: u8, number: u8, port: Option<u16>) -> AddAddr {
        let (addr_id, addr) = (AddrId(id), theirs(number));
        let hmac = mac::add_addr(self.keys().reversed(), addr_id, addr, port);
        AddAddr {
            echo: false,
            addr_id,
            addr,
            port,
            hmac: Some(hmac),
        }
    }
}
