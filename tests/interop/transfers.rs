//! Bulk data both ways at once, with everything that the two sides can agree on.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use manypath_control::report::{ConnReport, SubflowReport};
use manypath_lab::kernel::{self, Subflow};
use manypath_tests::amount;
use manypath_tests::net::{Family, Net, Own};
use manypath_tests::pair::{Plan, Role, Route};
use manypath_tests::transfer::{both_ways, finish};
use manypath_tests::until::wait_until;

use Family::{V4, V6};

/// Bytes each way.
fn size() -> u64 {
    amount("MANYPATH_TRANSFER_BYTES", 50 << 20, 500_000_000)
}

/// Whether a counter of the kernel's Multipath TCP means that one side found fault with the other.
fn is_complaint(name: &str) -> bool {
    name.starts_with("MPTcpExt")
        && [
            "Fallback",
            "HMac",
            "Corruption",
            "CsumErr",
            "MPFail",
            "NotMatching",
            "NoToken",
            "Infinite",
            "MPFastclose",
            "MPRst",
            "Blackhole",
        ]
        .iter()
        .any(|part| name.contains(part))
}

fn assert_no_complaint(grown: &BTreeMap<String, u64>) {
    let complaints: Vec<_> = grown
        .iter()
        .filter(|(name, _)| is_complaint(name))
        .collect();
    assert!(complaints.is_empty(), "{complaints:?}");
}

/// The cable that an address belongs to, from 1.
fn cable_of(address: &str) -> u8 {
    // 10.77.N.x:port or [fd77:N::x]:port, the former perhaps as [::ffff:10.77.N.x]:port
    let digits = if let Some((_, rest)) = address.split_once("10.77.") {
        rest.split('.').next()
    } else {
        address
            .split_once("fd77:")
            .and_then(|(_, rest)| rest.split(':').next())
    };
    digits
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("{address} is none of ours"))
}

/// Both sides' views of what the subflows carried, held against each other.
fn assert_views_agree(kernel: &[Subflow], ours: &ConnReport, cables: u8) {
    let mut carried = vec![(0, 0); usize::from(cables)];
    for subflow in kernel {
        let (out, into) = &mut carried[usize::from(cable_of(&subflow.remote)) - 1];
        *out += subflow.acked;
        *into += subflow.received;
    }
    println!("carried by each cable, as the kernel tells: {carried:?}");
    for (n, (out, into)) in carried.iter().enumerate() {
        assert!(
            out + into > 0,
            "cable {} carried nothing: {kernel:?}",
            n + 1
        );
    }
    assert_eq!(
        kernel.len(),
        established(ours).count(),
        "{kernel:?} {:?}",
        ours.subflows
    );
}

/// Our subflows but those whose handshake goes on, as that to an address which cannot be reached from here.
fn established(conn: &ConnReport) -> impl Iterator<Item = &SubflowReport> {
    conn.subflows.iter().filter(|s| s.phase == "established")
}

/// What the two sides tell differently about the bytes of each subflow.
fn differences(role: Role, kernel: &[Subflow], ours: &ConnReport) -> Vec<String> {
    let plain = |text: &str| text.replace("::ffff:", "").replace(['[', ']'], "");
    let is_same = |one: &Subflow, local: SocketAddr, remote: SocketAddr| {
        plain(&one.remote) == plain(&local.to_string())
            && plain(&one.local) == plain(&remote.to_string())
    };
    let mut all = Vec::new();
    for subflow in established(ours) {
        let (Some(local), Some(remote)) = (subflow.local, subflow.remote) else {
            continue;
        };
        let Some(same) = kernel.iter().find(|one| is_same(one, local, remote)) else {
            all.push(format!("{local} to {remote} is unknown to the kernel"));
            continue;
        };
        // The kernel counts the SYN of a subflow that it opened as a byte that was acknowledged.
        let syn = u64::from(role == Role::Server);
        if same.acked != subflow.bytes_received + syn {
            let (acked, got) = (same.acked, subflow.bytes_received);
            all.push(format!("{local} received {got}, the kernel sent {acked}"));
        }
        let sent = subflow.bytes_sent + subflow.bytes_reinjected;
        if same.received != sent {
            let got = same.received;
            all.push(format!("{local} sent {sent}, the kernel received {got}"));
        }
    }
    all
}

/// One cell of the table of transfers.
fn transfer(role: Role, plan: Plan) {
    let cables = u8::try_from(plan.families.len()).expect("few");
    let Some(net) = Net::new(cables) else { return };
    if role == Role::Client {
        // The kernel announces its second address; our side joins from each of its own.
        for (n, family) in (1..).zip(&plan.families).skip(1) {
            net.add_endpoint(Net::kernel_address(*family, n), n, "signal");
        }
    }
    let before = net.counters();
    let checksum = plan.checksum.0 || plan.checksum.1;
    let mut route = Route::open(&net, role, plan);
    let ends = route.join();
    // Only a connection that has carried data is fully established and may have more subflows. // rfc8684:C15
    both_ways(&ends.ours, &ends.kernel, 1000);
    route.wait_for_subflows(usize::from(cables));
    let [forth, back] = both_ways(&ends.ours, &ends.kernel, size());
    println!(
        "{role:?}: to the kernel {:?}, from the kernel {:?}",
        forth.took, back.took
    );

    // Copies of data that has already arrived may still be on their way.
    let (subflows, conn) = wait_until("both sides to tell the same", || {
        let subflows = kernel::subflows(&net.kernel).expect("ss is installed");
        let conn = route.program.connection();
        let told = differences(role, &subflows, &conn);
        if told.is_empty() {
            Ok((subflows, conn))
        } else {
            Err(told)
        }
    });
    let sockets = kernel::mptcp_sockets(&net.kernel).expect("ss is installed");
    assert_views_agree(&subflows, &conn, cables);
    assert_eq!(conn.level, "multipath");
    assert_eq!(conn.checksum, checksum);
    // `ss -M` counts the subflows beyond the first, in the line below the connection's.
    let established = sockets.split("ESTAB").nth(1).expect("it is still open");
    let told = established
        .split_once("subflows:")
        .and_then(|(_, rest)| rest.split_ascii_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    assert_eq!(subflows.len(), 1 + told, "{sockets}");
    finish(&ends.ours, &ends.kernel);
    drop(ends);
    route.program.wait_until_idle();

    let grown = net.counters().since(&before);
    let multipath: BTreeMap<_, _> = grown
        .iter()
        .filter(|(name, _)| name.starts_with("MPTcpExt"))
        .collect();
    println!("{multipath:?}");
    assert_no_complaint(&grown);
    let counter = match role {
        Role::Client => "MPTcpExtMPJoinAckRx",
        Role::Server => "MPTcpExtMPJoinSynAckRx",
    };
    let joins = grown.get(counter).copied().unwrap_or(0);
    assert!(joins >= u64::from(cables) - 1, "{counter} grew by {joins}");
    let said = route.program.interrupt();
    assert!(said.contains("1 connections (1 to the end"), "{said}");
}

macro_rules! transfers {
    ($($name:ident: $role:ident $families:expr, $checksum:expr;)*) => {$(
        #[test]
        fn $name() {
            transfer(Role::$role, Plan { checksum: $checksum, ..Plan::new(&$families) });
        }
    )*};
}

transfers! {
    we_connect_by_ipv4_with_checksums: Client [V4, V4], (true, true);
    we_connect_by_ipv4_without_checksums: Client [V4, V4], (false, false);
    we_connect_by_ipv6_with_checksums: Client [V6, V6], (true, true);
    we_connect_by_ipv6_without_checksums: Client [V6, V6], (false, false);
    we_connect_by_one_of_each_with_checksums: Client [V4, V6], (true, true);
    we_connect_by_one_of_each_without_checksums: Client [V4, V6], (false, false);
    we_listen_on_ipv4_with_checksums: Server [V4, V4], (true, true);
    we_listen_on_ipv4_without_checksums: Server [V4, V4], (false, false);
    we_listen_on_ipv6_with_checksums: Server [V6, V6], (true, true);
    we_listen_on_ipv6_without_checksums: Server [V6, V6], (false, false);
    we_listen_on_one_of_each_with_checksums: Server [V4, V6], (true, true);
    we_listen_on_one_of_each_without_checksums: Server [V4, V6], (false, false);
    // rfc8684:C16: one side that wants them is enough
    we_connect_and_only_the_kernel_wants_checksums: Client [V4, V4], (false, true);
    we_listen_and_only_the_kernel_wants_checksums: Server [V4, V4], (false, true);
    we_connect_and_only_we_want_checksums: Client [V6, V4], (true, false);
    we_listen_and_only_we_want_checksums: Server [V6, V4], (true, false);
}

#[test]
fn we_connect_from_the_hosts_own_addresses() {
    transfer(
        Role::Client,
        Plan {
            own: Own::Shared,
            ..Plan::new(&[V4, V6])
        },
    );
}

#[test]
fn we_listen_on_the_hosts_own_addresses() {
    transfer(
        Role::Server,
        Plan {
            own: Own::Shared,
            ..Plan::new(&[V4, V6])
        },
    );
}

#[test]
fn we_connect_without_offloads() {
    transfer(
        Role::Client,
        Plan {
            more: vec!["--offload".into(), "off".into()],
            ..Plan::new(&[V4, V4])
        },
    );
}
