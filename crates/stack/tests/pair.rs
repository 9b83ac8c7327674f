//! Two stacks joined back to back: handshake, joins, data both ways, close, over a perfect network.

use std::net::{IpAddr, SocketAddr};

use manypath_stack::ids::{ConnId, ListenerId};
use manypath_stack::{
    ConnOptions, ConnState, ConnectOptions, EventKind, IfaceId, ListenOptions, Mechanisms, Offload,
    Path, PathEvent, PathManager, ProtocolLevel, ReadOutcome, RxMeta, Stack, StackConfig,
    StackError, Transmit,
};
use manypath_tcp::time::{Duration, Instant};
use manypath_testkit::{Fate, Network, Wire, addr, path, pattern, strip_mptcp};
use manypath_wire::describe;
use manypath_wire::segment::{Segment, Verify};

/// More packets than any of these stacks sends at one moment.
const MOST: usize = 100;

/// A network that takes options away from some packet on.
struct Stripping {
    trace: bool,
    /// Packets are bursts without TCP checksum.
    bursts: bool,
    /// Packets that still pass with the options of Multipath TCP.
    pass: usize,
    /// The largest packet since somebody looked.
    largest: usize,
}

impl Network for Stripping {
    fn carry(&mut self, now: Instant, packet: &mut [u8]) -> Fate {
        self.largest = self.largest.max(packet.len());
        let passes = self.pass > 0;
        self.pass = self.pass.saturating_sub(1);
        if !passes {
            strip_mptcp(packet);
        }
        let checksum_ok = self.bursts || !passes;
        if self.trace {
            let verify = match checksum_ok {
                true => Verify::Trusted,
                false => Verify::Full,
            };
            let seg = Segment::parse(packet, verify).expect("own packets are well-formed");
            println!("{:>10} {}", now.as_micros(), describe::segment(&seg));
        }
        Fate {
            times: 1,
            checksum_ok,
        }
    }
}

type Pair = manypath_testkit::Pair<Stripping>;

fn pair(paths: u8) -> Pair {
    pair_with(paths, Offload::default())
}

fn pair_with(paths: u8, offload: Offload) -> Pair {
    let network = Stripping {
        trace: std::env::var_os("TRACE").is_some(),
        bursts: offload.checksum,
        pass: usize::MAX,
        largest: 0,
    };
    Pair::new(paths, network, |path| path.offload = offload)
}

fn options(path_manager: PathManager, checksum: bool) -> ConnOptions {
    ConnOptions {
        path_manager,
        checksum,
        ..ConnOptions::default()
    }
}

/// Opens a connection: it, and the listener that it comes to.
fn opened(pair: &mut Pair, managers: [PathManager; 2], checksum: bool) -> (ConnId, ListenerId) {
    let remote = SocketAddr::new(addr(2, 0), 80);
    let [near, far] = managers.map(|manager| options(manager, checksum));
    let listen = ListenOptions {
        addr: remote,
        backlog: 10,
        conn: far,
    };
    let listener = pair.stacks[1].listen(listen).expect("the port is free");
    let connect = ConnectOptions {
        remote,
        local: None,
        conn: near,
    };
    let client = pair.stacks[0].connect(pair.now, connect);
    (client.expect("a path leads there"), listener)
}

/// Writes what there is room for, up to the end of so many bytes.
fn push(
    stack: &mut Stack,
    now: Instant,
    id: ConnId,
    sent: &mut usize,
    bytes: usize,
) -> Result<(), StackError> {
    let chunk: Vec<u8> = (*sent..bytes.min(*sent + 50_000)).map(pattern).collect();
    if !chunk.is_empty() {
        *sent += stack.write(now, id, &chunk)?;
        if *sent == bytes {
            stack.shutdown_write(now, id)?;
        }
    }
    Ok(())
}

/// Reads what there is; true at the end.
fn drain(
    stack: &mut Stack,
    now: Instant,
    id: ConnId,
    seen: &mut usize,
) -> Result<bool, StackError> {
    let mut buffer = [0; 10_000];
    loop {
        match stack.read(now, id, &mut buffer)? {
            ReadOutcome::Data(n) => {
                for byte in &buffer[..n] {
                    assert_eq!(*byte, pattern(*seen), "stream position {seen}");
                    *seen += 1;
                }
            }
            ReadOutcome::Empty => return Ok(false),
            ReadOutcome::End => return Ok(true),
        }
    }
}

fn transfer(paths: u8, manager: PathManager, checksum: bool, bytes: usize) -> Pair {
    transfer_over(pair(paths), manager, checksum, bytes)
}

fn transfer_over(mut pair: Pair, manager: PathManager, checksum: bool, bytes: usize) -> Pair {
    let (client, listener) = opened(&mut pair, [manager, PathManager::Passive], checksum);
    let (mut up, mut down) = (0, 0);
    let (mut up_sent, mut down_sent) = (0, 0);
    let mut server = None;
    let (mut done_up, mut done_down) = (false, false);
    for _ in 0..200_000 {
        let more = pair.step(Duration::from_secs(5));
        if server.is_none() {
            server = pair.stacks[1].accept(listener);
        }
        let now = pair.now;
        push(&mut pair.stacks[0], now, client, &mut up_sent, bytes).expect("open");
        if let Some(server) = server {
            push(&mut pair.stacks[1], now, server, &mut down_sent, bytes).expect("open");
            done_up = drain(&mut pair.stacks[1], now, server, &mut up).expect("it lives");
        }
        done_down = drain(&mut pair.stacks[0], now, client, &mut down).expect("it lives");
        if done_up && done_down && !more {
            break;
        }
    }
    assert!(
        done_up && done_down,
        "up {up} of {up_sent}, down {down} of {down_sent}: {:#?}",
        pair.stacks[0].info(client)
    );
    assert_eq!((up, down), (bytes, bytes));
    let info = pair.stacks[0].info(client).expect("not closed");
    assert_eq!(
        info.level == ProtocolLevel::Multipath,
        pair.network.pass > 0
    );
    assert!(
        matches!(info.state, ConnState::Closed | ConnState::TimeWait),
        "{:?}",
        info.state
    );
    while pair.stacks[0].poll_event().is_some() {}
    pair
}

#[test]
fn bytes_travel_both_ways_on_one_subflow() {
    // rfc8684:C9,C10,C11,C13,F6,F9
    transfer(1, PathManager::Passive, false, 300_000);
}

#[test]
fn bytes_travel_both_ways_with_checksums() {
    // rfc8684:C16,C24,D9
    let pair = transfer(1, PathManager::Passive, true, 300_000);
    assert_eq!(pair.stacks[0].counters().dss_checksum_failed, 0);
}

#[test]
fn a_device_that_fetches_payload_itself_gets_the_same_bytes() {
    // rfc8684:D9
    for checksum in [false, true] {
        let offload = Offload {
            checksum: true,
            max_burst: 65_000,
        };
        let mut pair = pair_with(2, offload);
        for wire in &mut pair.wires {
            wire.gathers = true;
        }
        let pair = transfer_over(pair, PathManager::FullMesh, checksum, 3_000_000);
        assert_eq!(pair.stacks[0].counters().dss_checksum_failed, 0);
        assert!(pair.wires.iter().all(|wire| wire.gathered > 20));
    }
}

#[test]
fn a_second_subflow_joins_and_carries_data() {
    // rfc8684:J1,J7,J9,J10,J12,J17
    let pair = transfer(2, PathManager::FullMesh, true, 3_000_000);
    assert!(
        pair.stacks[0].counters().join_established >= 1,
        "{}",
        pair.stacks[0].counters()
    );
}

#[test]
fn subflows_join_before_any_data_is_sent() {
    // rfc8684:C10,J1
    let mut pair = pair(2);
    let managers = [PathManager::FullMesh, PathManager::Passive];
    let (client, listener) = opened(&mut pair, managers, true);
    let until = pair.now + Duration::from_secs(5);
    while pair.now < until && pair.step(Duration::from_secs(1)) {}
    let server = pair.stacks[1].accept(listener).expect("it is established");
    for (stack, conn) in pair.stacks.iter().zip([client, server]) {
        let info = stack.info(conn).expect("it lives");
        assert!(info.subflows.len() >= 2, "{info:#?}");
        assert_eq!(info.level, ProtocolLevel::Multipath);
    }
}

#[test]
fn where_options_stop_on_all_subflows_both_ends_end_and_no_byte_is_wrong() {
    // rfc8684:B3,B5,B11
    for pass in (200..600).step_by(7) {
        for checksum in [false, true] {
            let mut pair = pair(2);
            pair.network.pass = pass;
            let read = transfer_until_the_end(&mut pair, checksum, 1_000_000);
            let count = pair.stacks.each_ref().map(Stack::counters);
            let reset = count.iter().any(|count| count.conn_reset > 0);
            assert!(
                reset || read == [1_000_000; 2],
                "{pass} {checksum}: {read:?} {count:?}"
            );
        }
    }
}

/// What each end, the client first, reads before its connection is over, whatever ends it.
fn transfer_until_the_end(pair: &mut Pair, checksum: bool, bytes: usize) -> [usize; 2] {
    let managers = [PathManager::FullMesh, PathManager::FullMesh];
    let (client, listener) = opened(pair, managers, checksum);
    let mut ends = [Some(client), None];
    let (mut sent, mut read) = ([0; 2], [0; 2]);
    let mut over = [false; 2];
    let until = pair.now + Duration::from_secs(2_000);
    while over != [true; 2] {
        let waits = pair.step(Duration::from_secs(100)) && pair.now < until;
        assert!(waits, "{read:?}, over: {over:?}");
        ends[1] = ends[1].or_else(|| pair.stacks[1].accept(listener));
        for (end, id) in ends.into_iter().enumerate() {
            let (Some(id), false) = (id, over[end]) else {
                continue;
            };
            let (stack, now) = (&mut pair.stacks[end], pair.now);
            // A connection that is over takes nothing more; what was said before is read to the end.
            let _ = push(stack, now, id, &mut sent[end], bytes);
            let ended = drain(stack, now, id, &mut read[end]);
            over[end] = ended.map_or(true, |ended| ended && sent[end] == bytes);
        }
    }
    read
}

#[test]
fn a_short_connection_ends_for_good() {
    let mut pair = transfer(1, PathManager::Passive, true, 10);
    let ids = pair.stacks[0].conns();
    for id in ids {
        pair.stacks[0].close(pair.now, id).expect("open handle");
    }
    while pair.step(Duration::from_secs(300)) {}
    assert_eq!(pair.stacks[0].conns().len(), 0);
    let finished = std::iter::from_fn(|| pair.stacks[1].poll_event())
        .any(|e| matches!(e.kind, EventKind::Closed(_)));
    assert!(finished);
}

#[test]
fn subflows_follow_the_mtu_of_their_interface() {
    let mut pair = pair(1);
    let remote = SocketAddr::new(addr(2, 0), 80);
    let conn = options(PathManager::Passive, false);
    let listening = ListenOptions {
        addr: remote,
        backlog: 10,
        conn: conn.clone(),
    };
    let listener = pair.stacks[1].listen(listening).expect("the port is free");
    let connecting = ConnectOptions {
        remote,
        local: None,
        conn,
    };
    let client = pair.stacks[0]
        .connect(pair.now, connecting)
        .expect("a path leads there");
    let (mut sent, mut seen, mut server) = (0, 0, None);
    for (mtu, expected) in [(1500, 1500), (1400, 1400), (1400, 1400), (9000, 1500)] {
        let path = Path { mtu, ..path(1, 0) };
        pair.stacks[0].handle_path_event(pair.now, PathEvent::Up(path));
        pair.network.largest = 0;
        let bytes: Vec<u8> = (sent..sent + 50_000).map(pattern).collect();
        sent += pair.stacks[0]
            .write(pair.now, client, &bytes)
            .expect("writable");
        for _ in 0..100 {
            pair.step(Duration::from_secs(1));
            server = server.or_else(|| pair.stacks[1].accept(listener));
            if let Some(server) = server {
                drain(&mut pair.stacks[1], pair.now, server, &mut seen).expect("it lives");
            }
        }
        assert_eq!(seen, sent);
        assert_eq!(pair.network.largest, expected, "MTU {mtu}");
    }
}

#[test]
fn mechanisms_are_switched_on_a_living_connection() {
    let mut pair = pair(2);
    let remote = SocketAddr::new(addr(2, 0), 80);
    let conn = options(PathManager::FullMesh, false);
    let connect = ConnectOptions {
        remote,
        local: None,
        conn: conn.clone(),
    };
    let id = pair.stacks[0].connect(pair.now, connect).expect("a path");
    let now = |pair: &Pair| pair.stacks[0].options(id).expect("open handle").mechanisms;
    assert_eq!(now(&pair), Mechanisms::default());
    let capped = Mechanisms {
        cap: true,
        ..Mechanisms::NONE
    };
    let wanted = ConnOptions {
        mechanisms: capped,
        ..conn
    };
    let time = pair.now;
    pair.stacks[0]
        .set_options(time, id, &wanted)
        .expect("open handle");
    assert_eq!(now(&pair), capped);
}

#[test]
fn sixty_four_subflows_carry_one_stream() {
    // rfc8684:J19
    let pair = transfer(1, PathManager::Ndiffports(64), true, 4_000_000);
    assert_eq!(
        pair.stacks[0].counters().join_established,
        63,
        "{}",
        pair.stacks[0].counters()
    );
}

#[test]
fn handshakes_that_nobody_finishes_do_not_keep_others_out() {
    const BACKLOG: usize = 4;
    let mut pair = pair(1);
    let remote = SocketAddr::new(addr(2, 0), 80);
    let listener = pair.stacks[1]
        .listen(ListenOptions {
            addr: remote,
            backlog: BACKLOG,
            conn: options(PathManager::Passive, true),
        })
        .expect("the port is free");
    let connect = |pair: &mut Pair| {
        let options = ConnectOptions {
            remote,
            local: None,
            conn: options(PathManager::Passive, true),
        };
        pair.stacks[0].connect(pair.now, options).expect("a path")
    };
    // A flood: the answers reach nobody.
    for _ in 0..=BACKLOG {
        let id = connect(&mut pair);
        pair.wires[0].flush(&mut pair.stacks[0], pair.now, MOST);
        while let Some((iface, syn)) = pair.wires[0].queue.pop_front() {
            pair.stacks[1].handle_packet(pair.now, iface, &syn, RxMeta::default());
        }
        pair.stacks[0].abort(pair.now, id).expect("open handle");
        pair.wires[0].flush(&mut pair.stacks[0], pair.now, MOST);
        pair.wires[0].queue.clear();
    }
    pair.wires[1].flush(&mut pair.stacks[1], pair.now, MOST);
    pair.wires[1].queue.clear();
    // Peers that may still answer are not given up.
    assert_eq!(pair.stacks[1].conns().len(), BACKLOG);
    assert_eq!(pair.stacks[1].counters().syn_cookie_sent, 1);
    assert_eq!(pair.stacks[1].counters().half_open_evicted, 0);

    pair.now += Duration::from_secs(1);
    let client = connect(&mut pair);
    pair.step(Duration::from_secs(0));
    assert_eq!(pair.stacks[1].counters().half_open_evicted, 1);
    assert!(pair.stacks[1].accept(listener).is_some());
    let info = pair.stacks[0].info(client).expect("open handle");
    assert_eq!(info.state, ConnState::Established);
}

/// Two attempts of one race by different paths: the second one's SYN leaves while the first is not answered yet.
#[test]
fn of_attempts_that_race_the_server_accepts_one() {
    let mut pair = pair(2);
    let remote = SocketAddr::new(addr(2, 0), 80);
    // The server has one address, which both paths reach.
    let mut far = path(2, 0);
    far.iface = IfaceId(1);
    pair.stacks[1].handle_path_event(pair.now, PathEvent::Up(far));
    let listener = pair.stacks[1]
        .listen(ListenOptions {
            addr: remote,
            backlog: 10,
            conn: ConnOptions::default(),
        })
        .expect("the port is free");
    let race = pair.stacks[0].begin_race();
    let attempts = [0, 1].map(|number| {
        let opts = ConnectOptions {
            remote,
            local: Some(addr(1, number)),
            conn: options(PathManager::Passive, true),
        };
        let now = pair.now;
        pair.stacks[0]
            .connect_in_race(now, race, opts)
            .expect("a path leads there")
    });
    while pair.step(Duration::from_millis(100)) {}
    assert!(pair.stacks[1].accept(listener).is_some());
    assert_eq!(
        pair.stacks[1].accept(listener),
        None,
        "the server accepts one"
    );
    let [client, server] = &pair.stacks;
    assert_eq!(client.counters().conn_established, 1);
    assert_eq!(client.counters().race_lost, 1);
    assert_eq!(
        client.counters().reset_no_socket,
        1,
        "a late SYN/ACK gets RST"
    );
    assert_eq!(server.counters().conn_established, 1);
    assert_eq!(
        client.conns(),
        [attempts[0]],
        "nothing is left of the loser"
    );
    let late = pair.stacks[0].connect_in_race(
        pair.now,
        race,
        ConnectOptions {
            remote,
            local: None,
            conn: ConnOptions::default(),
        },
    );
    assert_eq!(late, Err(manypath_stack::StackError::InvalidState));
}

#[test]
fn a_race_that_is_ended_leaves_no_attempts_and_sends_no_more() {
    let mut stack = Stack::new(StackConfig::default(), [1; 32], Instant::from_secs(1));
    let now = Instant::from_secs(1);
    stack.handle_path_event(now, PathEvent::Up(path(1, 0)));
    let race = stack.begin_race();
    let opts = ConnectOptions {
        remote: SocketAddr::new(addr(2, 0), 80),
        local: None,
        conn: ConnOptions::default(),
    };
    stack.connect_in_race(now, race, opts).expect("a path");
    let mut wire = Wire::default();
    wire.flush(&mut stack, now, MOST);
    assert_eq!(wire.queue.len(), 1, "a SYN");
    stack.end_race(now, race);
    wire.flush(&mut stack, now, MOST);
    assert_eq!(
        wire.queue.len(),
        1,
        "RFC 9293 section 3.10.5: no RST in SYN-SENT"
    );
    assert!(stack.conns().is_empty());
    assert_eq!(stack.poll_deadline(), None);
}

#[test]
fn paths_stand_in_the_order_that_was_given_whenever_they_come() {
    let now = Instant::from_secs(1);
    let mut stack = Stack::new(StackConfig::default(), [1; 32], now);
    let path = |number| path(1, number);
    for n in [2, 0, 1] {
        stack.handle_path_event(now, PathEvent::Up(path(n)));
    }
    let order = [1, 2].map(|n| (path(n).iface, path(n).addr));
    stack.order_paths(&order);
    let addrs: Vec<IpAddr> = stack.paths().iter().map(|path| path.addr).collect();
    assert_eq!(addrs, [addr(1, 1), addr(1, 2), addr(1, 0)]);
}

/// Milliseconds at which SYNs leave that nobody answers.
fn syn_times(conn: ConnOptions, seconds: u64) -> Vec<u64> {
    let start = Instant::from_secs(1);
    let mut now = start;
    let mut stack = Stack::new(StackConfig::default(), [1; 32], now);
    for number in 0..2 {
        stack.handle_path_event(now, PathEvent::Up(path(1, number)));
    }
    let opts = ConnectOptions {
        remote: SocketAddr::new(addr(2, 0), 80),
        local: None,
        conn,
    };
    stack.connect(now, opts).expect("a path");
    let mut wire = Wire::default();
    let mut times = Vec::new();
    while now.since(start) <= Duration::from_secs(seconds) {
        while let Transmit::Sent(_) = stack.poll_transmit(now, &mut wire) {
            times.push(now.since(start).as_millis());
        }
        let Some(next) = stack.poll_deadline() else {
            break;
        };
        now = now.max(next);
        stack.handle_timeout(now);
    }
    times
}

#[test]
fn syns_of_each_kind_come_at_pauses_that_double_and_are_bounded() {
    // RFC 6298 section 5.5
    let offers = [0, 1_000, 3_000, 7_000, 15_000, 31_000, 63_000];
    for manager in [PathManager::Passive, PathManager::FullMesh] {
        let mut expected = offers.to_vec();
        expected.extend(offers[1..].iter().map(|at| at + 300));
        expected.sort_unstable();
        assert_eq!(syn_times(options(manager, true), 1_000), expected);
        let plain = ConnOptions {
            mode: manypath_stack::Mode::PlainTcp,
            ..options(manager, true)
        };
        assert_eq!(syn_times(plain, 1_000), offers);
    }
}
