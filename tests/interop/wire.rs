//! Sample runs on the wire, judged by a decoder that is not ours.

use std::net::Shutdown;

use manypath_tests::capture::{self, Capture, Recording};
use manypath_tests::net::{Family, Net};
use manypath_tests::pair::{Plan, ROLES, Role, Route};
use manypath_tests::peer::Speaks;
use manypath_tests::transfer::{both_ways, expect_end, finish};

use Family::{V4, V6};

/// What no packet of ours or the kernel's may be.
const FAULTS: &[&str] = &[
    "_ws.malformed",
    "_ws.expert.severity == error",
    "ip.checksum.status == 0",
    // Linux writes 0xffff where the sum is 0, also for TCP: the other zero of one's complement, which decoders do not expect.
    "(tcp.checksum.status == 0 && tcp.checksum != 0xffff)",
    "mptcp.connection.echoed_key_mismatch",
    "mptcp.connection.missing_algorithm",
    "mptcp.connection.unsupported_algorithm",
    "mptcp.dss.infinite_mapping",
    // Every segment of the data is told where it belongs, whichever side sent it.
    "(tcp.len > 0 && mptcp.dss.missing_mapping)",
];

fn assert_faultless(recording: &Recording) {
    // A pass over the recording takes a second, so all are sought at once; which one it is matters only when there is one.
    let found = recording.matching(&FAULTS.join(" || "));
    if !found.is_empty() {
        let has = |fault: &&&str| !recording.matching(fault).is_empty();
        let faults: Vec<_> = FAULTS.iter().filter(has).collect();
        panic!("{faults:?}: {found:#?}");
    }
}

/// What a packet of a recording says.
#[derive(Debug)]
struct Told {
    bytes: u64,
    from: String,
    to: String,
    subtypes: Vec<u8>,
    data_fin: bool,
    wants_checksums: bool,
}

fn told(recording: &Recording) -> Vec<Told> {
    let fields = recording.fields(&[
        "tcp.len",
        "tcp.srcport",
        "tcp.dstport",
        "tcp.options.mptcp.subtype",
        "tcp.options.mptcp.datafin.flag",
        "tcp.options.mptcp.checksumreq.flags",
    ]);
    // Newer decoders write flags as words.
    let has = |text: &str| text.split(',').any(|flag| flag == "1" || flag == "True");
    fields
        .iter()
        .map(|packet| Told {
            bytes: packet[0].parse().unwrap_or(0),
            from: packet[1].clone(),
            to: packet[2].clone(),
            subtypes: packet[3]
                .split(',')
                .filter_map(|n| n.parse().ok())
                .collect(),
            data_fin: has(&packet[4]),
            wants_checksums: has(&packet[5]),
        })
        .collect()
}

/// A run with everything that belongs to a connection: joins, announcements, data both ways, a half-close.
fn sample(role: Role, families: &[Family], checksum: bool) {
    if !capture::is_possible() {
        return;
    }
    let Some(net) = Net::new(2) else { return };
    if !(net.without_offloads(1) && net.without_offloads(2)) {
        eprintln!("skipped: ethtool cannot switch offloads off, so checksums cannot be judged");
        return;
    }
    if role == Role::Client {
        net.add_endpoint(Net::kernel_address(families[1], 2), 2, "signal");
    }
    let plan = Plan {
        checksum: (checksum, checksum),
        more: vec!["--offload".into(), "off".into()],
        ..Plan::new(families)
    };
    let capture = Capture::start(&net);
    let mut route = Route::open(&net, role, plan);
    let ends = route.join();
    both_ways(&ends.ours, &ends.kernel, 1000);
    route.wait_for_subflows(2);
    both_ways(&ends.ours, &ends.kernel, 2_000_000);
    finish(&ends.ours, &ends.kernel);
    drop(ends);
    route.program.wait_until_idle();
    // One that ends the other way round, before it has carried anything.
    let ends = route.join();
    ends.kernel.shutdown(Shutdown::Write).expect("it is open");
    expect_end("other", &ends.ours);
    drop(ends);
    route.program.wait_until_idle();
    drop(route);
    let recording = capture.stop(&net);
    assert_faultless(&recording);

    // The recording is whole, and the decoder saw in it what the sides say that they did.
    let packets = told(&recording);
    let count = |what: &dyn Fn(&Told) -> bool| packets.iter().filter(|p| what(p)).count();
    let connects = count(&|p| p.bytes > 0 && p.from != "5000" && p.to == "5000");
    let listens = count(&|p| p.bytes > 0 && p.to != "5000" && p.from == "5000");
    for (segments, side) in [(connects, "who connects"), (listens, "who listens")] {
        assert!(
            segments >= 2_000_000 / 1460,
            "{side} sent {segments} segments"
        );
    }
    for (subtype, what) in [
        (0, "MP_CAPABLE"),
        (1, "MP_JOIN"),
        (2, "DSS"),
        (3, "ADD_ADDR"),
    ] {
        assert!(count(&|p| p.subtypes.contains(&subtype)) > 0, "{what}");
    }
    assert!(count(&|p| p.data_fin) >= 4);
    assert_eq!(count(&|p| p.wants_checksums) > 0, checksum);
}

#[test]
fn no_packet_is_malformed() {
    for role in ROLES {
        sample(role, &[V4, V4], true);
        sample(role, &[V6, V4], false);
    }
}

#[test]
fn plain_tcp_is_not_malformed_either() {
    if !capture::is_possible() {
        return;
    }
    let Some(net) = Net::new(1) else { return };
    if !net.without_offloads(1) {
        eprintln!("skipped: ethtool cannot switch offloads off, so checksums cannot be judged");
        return;
    }
    for role in ROLES {
        let plan = Plan {
            kernel: Speaks::Tcp,
            more: vec!["--offload".into(), "off".into()],
            ..Plan::new(&[V4])
        };
        let capture = Capture::start(&net);
        let route = Route::open(&net, role, plan);
        let ends = route.join();
        both_ways(&ends.ours, &ends.kernel, 500_000);
        finish(&ends.ours, &ends.kernel);
        drop((ends, route));
        let recording = capture.stop(&net);
        assert_faultless(&recording);
        // After the handshake nobody speaks of Multipath TCP.
        assert!(
            recording
                .matching("tcp.options.mptcp.subtype && tcp.len > 0")
                .is_empty()
        );
    }
}
