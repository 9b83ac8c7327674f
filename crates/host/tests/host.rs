//! What the kernel makes of our changes, in network namespaces of the tests' own; nft(8) and ip(8) read what was set.

use std::net::SocketAddr;
use std::process::Command;

use manypath_host::nat::{Nat, Uplink};
use manypath_host::{Firewall, Guard, Setup, Share, Take, Turn};
use nix::sched::{CloneFlags, unshare};

/// Runs a test on a thread in a namespace that has the interface `v1` with 10.77.1.2 and fd77:1::2. Where that is not permitted
/// the test is skipped.
fn inside(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            eprintln!("skipped: no network namespaces here ({error})");
            return;
        }
        for line in [
            "link set lo up",
            "link add v1 type veth peer name v2",
            "link set v1 up",
            "link set v2 up",
            "addr add 10.77.1.2/24 dev v1",
            "addr add fd77:1::2/64 dev v1 nodad",
        ] {
            run("ip", line);
        }
        test();
    });
    thread.join().expect("the test's own assertions hold");
}

fn run(program: &str, line: &str) -> String {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = Command::new(program)
        .args(line.split(' '))
        .env("PATH", path)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {line}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn ruleset() -> String {
    run("nft", "list ruleset")
}

fn has(text: &str, line: &str) -> bool {
    text.lines().any(|l| l.trim() == line)
}

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("a literal address")
}

fn guards() -> [Guard; 3] {
    let share = Share {
        listen: vec![443],
        own: vec![65280..=65535],
    };
    [
        Guard {
            iface: "v1".into(),
            addr: addr("10.77.1.2:0").ip(),
            share: Some(share.clone()),
        },
        Guard {
            iface: "v1".into(),
            addr: addr("[fd77:1::2]:0").ip(),
            share: Some(share),
        },
        Guard {
            iface: "v2".into(),
            addr: addr("10.77.1.9:0").ip(),
            share: None,
        },
    ]
}

fn guarded(mut setup: Setup) -> (Setup, Firewall) {
    let firewall = setup.guard(&guards()).expect("permitted");
    let ends = [
        (addr("10.77.1.2:65300"), addr("192.0.2.1:443")),
        (addr("[fd77:1::2]:65301"), addr("[2001:db8::1]:80")),
    ];
    assert!(firewall.wants(ends[0].0) && firewall.wants(ends[1].0));
    assert!(!firewall.wants(addr("10.77.1.2:443")) && !firewall.wants(addr("10.77.1.9:1000")));
    firewall.open(&ends).expect("permitted");
    firewall.open(&ends[..1]).expect("it is told already");
    (setup, firewall)
}

#[test]
fn nft_shows_the_guard_that_was_meant() {
    inside(|| {
        let (mut setup, firewall) = guarded(Setup::new().expect("a journal"));
        let shown = ruleset();
        for line in [
            "type filter hook ingress device \"v1\" priority -400; policy accept;",
            "type filter hook ingress device \"v2\" priority -400; policy accept;",
            "ip frag-off & 16383 == 0 ip saddr . tcp sport . ip daddr . tcp dport @tuples4 drop",
            "ip6 nexthdr tcp ip6 saddr . tcp sport . ip6 daddr . tcp dport @tuples6 drop",
            "ip daddr 10.77.1.2 ip frag-off & 16383 == 0 tcp dport 443 drop",
            "ip6 daddr fd77:1::2 ip6 nexthdr tcp tcp dport 443 drop",
            "ip daddr 10.77.1.9 drop",
            "type filter hook input priority -400; policy accept;",
            "ip saddr . tcp sport . ip daddr . tcp dport @tuples4 drop",
            "iifname \"v1\" ip daddr 10.77.1.2 tcp dport 443 drop",
            "iifname \"v1\" ip6 daddr fd77:1::2 ip6 nexthdr tcp tcp dport 443 drop",
            "type filter hook output priority -400; policy accept;",
            "tcp flags & rst == rst ip6 daddr . tcp dport . ip6 saddr . tcp sport @tuples6 drop",
            "tcp flags & rst == rst ip6 saddr fd77:1::2 tcp sport 443 drop",
            "elements = { 192.0.2.1 . 443 . 10.77.1.2 . 65300 }",
            "elements = { 2001:db8::1 . 80 . fd77:1::2 . 65301 }",
        ] {
            assert!(has(&shown, line), "{line} is missing in {shown}");
        }
        let joins = |l: &&str| l.contains("tcp dport 65280-65535 ") && l.ends_with(" drop");
        assert_eq!(shown.lines().filter(joins).count(), 4, "{shown}");
        firewall
            .retain(|local, _| local.is_ipv6())
            .expect("permitted");
        let shown = ruleset();
        assert!(!shown.contains("192.0.2.1") && shown.contains("2001:db8::1"));
        setup.undo();
        assert_eq!(ruleset(), "");
        firewall
            .open(&[(addr("10.77.1.2:65300"), addr("192.0.2.1:443"))])
            .expect("nothing is told when all is over");
    });
}

#[test]
fn thousands_of_connections_are_told_and_put_back() {
    inside(|| {
        let (mut setup, firewall) = guarded(Setup::with_exposed_tables().expect("a journal"));
        let peer = |n: u16| {
            (
                addr("10.77.1.2:65300"),
                SocketAddr::from(([192, 0, 2, 2], n)),
            )
        };
        let all: Vec<_> = (1..=10_000).map(peer).collect();
        firewall.open(&all).expect("permitted");
        let shown = |text: String| text.matches("192.0.2.2 . ").count();
        assert_eq!(shown(ruleset()), 10_000);
        run("nft", "flush ruleset");
        let (restored, result) = setup.repair();
        result.expect("permitted");
        assert_eq!(restored.len(), 1, "{restored:?}");
        assert_eq!(shown(ruleset()), 10_000);
        assert!(setup.repair().0.is_empty(), "it is there");
    });
}

#[test]
fn a_table_of_the_process_cannot_be_flushed_by_others() {
    inside(|| {
        let (mut setup, _firewall) = guarded(Setup::new().expect("a journal"));
        if setup.is_exposed() {
            eprintln!("skipped: this kernel's tables belong to nobody");
            return;
        }
        let before = ruleset();
        run("nft", "flush ruleset");
        assert_eq!(ruleset(), before);
        assert!(setup.repair().0.is_empty());
    });
}

#[test]
fn an_exposed_table_is_put_back_whole_whatever_was_taken() {
    inside(|| {
        let (mut setup, firewall) = guarded(Setup::with_exposed_tables().expect("a journal"));
        let before = ruleset();
        let name = before
            .lines()
            .find_map(|l| l.strip_prefix("table inet ")?.strip_suffix(" {"))
            .expect("it is in force")
            .to_owned();
        for change in [
            "flush ruleset".to_owned(),
            format!("delete table inet {name}"),
            format!("flush chain inet {name} guard0"),
        ] {
            run("nft", &change);
            let (restored, result) = setup.repair();
            result.expect("permitted");
            assert_eq!(restored.len(), 1, "{change}");
            assert_eq!(ruleset(), before, "{change}");
        }
        // A new connection finds it out as well.
        run("nft", "flush ruleset");
        firewall
            .open(&[(addr("10.77.1.2:65302"), addr("192.0.2.1:443"))])
            .expect("put back");
        assert!(ruleset().contains("65302") && ruleset().contains("65300"));
    });
}

#[test]
fn routes_and_rules_of_a_path_are_put_back() {
    inside(|| {
        let mut setup = Setup::new().expect("a journal");
        // Any interface does for routing.
        let index = std::fs::read_to_string("/sys/class/net/v2/ifindex");
        let index: u32 = run("ip", "-o link show v2")
            .split(':')
            .next()
            .and_then(|n| n.parse().ok())
            .or(index.ok().and_then(|n| n.trim().parse().ok()))
            .expect("a number");
        let mut nat = Nat::new("v2", index, 1500, vec![80], &mut setup, &[]).expect("permitted");
        let uplink = Uplink {
            index,
            iface: "v2".into(),
            addr: addr("10.77.1.2:0").ip(),
            gateway: None,
            passes: true,
            networks: vec![(addr("10.77.1.2:0").ip(), 24)],
            beyond: Vec::new(),
        };
        nat.set_paths(&mut setup, &[uplink]).expect("permitted");
        let shown = ruleset();
        for line in [
            "type nat hook postrouting priority srcnat; policy accept;",
            "ip saddr 198.18.0.2 oifname \"v2\" snat ip to 10.77.1.2",
            "type nat hook prerouting priority dstnat; policy accept;",
            "iifname \"v2\" ip daddr 10.77.1.2 tcp dport 80 dnat ip to 198.18.0.2",
        ] {
            assert!(has(&shown, line), "{line} is missing in {shown}");
        }
        let routing = || run("ip", "rule") + &run("ip", "route show table all");
        let before = routing();
        assert!(before.contains("from 198.18.0.2 lookup"), "{before}");
        assert!(nat.repair().0.is_empty(), "it is there");
        let table = before
            .split("from 198.18.0.2 lookup ")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next())
            .expect("a table");
        run("ip", "rule del from 198.18.0.2");
        run("ip", &format!("route flush table {table}"));
        let (restored, result) = nat.repair();
        result.expect("permitted");
        assert_eq!(restored.len(), 3, "{restored:?}");
        assert_eq!(routing(), before);
        setup.undo();
        assert!(!routing().contains("198.18.0.2 lookup"));
        assert_eq!(ruleset(), "");
    });
}

#[test]
fn processes_share_ports_and_networks_by_their_journals() {
    inside(|| {
        let listener = std::net::TcpListener::bind("10.77.1.2:65400").expect("a free port");
        let before = run("sysctl", "-n net.ipv4.ip_local_reserved_ports");
        let mut all: Vec<Setup> = (0..10).map(|_| Setup::new().expect("a journal")).collect();
        let mut rows: Vec<_> = all
            .iter_mut()
            .map(|setup| setup.reserve_ports(256).expect("ten processes start"))
            .collect();
        assert!(rows.iter().all(|row| !row.contains(&65400)), "{rows:?}");
        rows.sort_by_key(|row| *row.start());
        assert!(
            rows.windows(2).all(|w| w[0].end() < w[1].start()),
            "{rows:?}"
        );
        // One that grows need not move away from what it has.
        let grown = all[0].reserve_ports(512).expect("room");
        assert_eq!(grown.len(), 512);
        assert!(!grown.contains(&65400));
        all.clear();
        assert_eq!(run("sysctl", "-n net.ipv4.ip_local_reserved_ports"), before);
        drop(listener);
    });
}

/// Connections of `v1` to some ports, by both ways.
fn takes() -> [Take; 2] {
    let take = |turn, to, from| Take {
        interface: "v1".into(),
        from,
        ports: vec![80..=80, 8000..=8999],
        turn,
        to,
        ipv6: true,
    };
    [
        take(
            Turn::Redirect,
            1235,
            vec![
                (addr("192.168.1.0:0").ip(), 24),
                (addr("[fd02::]:0").ip(), 63),
            ],
        ),
        take(Turn::Tproxy, 1236, Vec::new()),
    ]
}

#[test]
fn connections_are_turned_to_a_listener_and_no_more_when_all_is_put_back() {
    inside(|| {
        let routing = || {
            let rules = run("ip", "rule") + &run("ip", "-6 rule");
            rules + &run("ip", "route show table all") + &run("ip", "-6 route show table all")
        };
        let before = routing();
        let mut setup = Setup::new().expect("a journal");
        setup.take(&takes()).expect("permitted");
        let shown = ruleset();
        for line in [
            "type nat hook prerouting priority dstnat; policy accept;",
            "iifname \"v1\" ip saddr 192.168.1.0/24 fib daddr type != local tcp dport 80 redirect to :1235",
            "iifname \"v1\" ip6 saddr fd02::/63 fib daddr type != local tcp dport 8000-8999 redirect to :1235",
            "type filter hook prerouting priority mangle; policy accept;",
            "meta l4proto tcp socket wildcard 0 socket transparent 1 meta mark set 0x6d707900 accept",
        ] {
            assert!(has(&shown, line), "{line} is missing in {shown}");
        }
        let handed = |l: &&str| l.ends_with("tproxy to :1236 meta mark set 0x6d707900 accept");
        assert_eq!(shown.lines().filter(handed).count(), 4, "{shown}");
        let led = "from all fwmark 0x6d707900 lookup 6900000";
        assert_eq!(routing().matches(led).count(), 2, "{}", routing());
        // Another process has a mark of its own.
        let mut other = Setup::new().expect("a journal");
        other.take(&takes()[1..]).expect("permitted");
        assert!(routing().contains("fwmark 0x6d707901 lookup 6900001"));
        other.undo();
        assert_eq!(routing().matches(led).count(), 2, "{}", routing());
        // What others remove is put back, and what is there is left as it is.
        run("ip", "rule del fwmark 0x6d707900");
        run("ip", "-6 route flush table 6900000");
        assert_eq!(setup.repair().0.len(), 1);
        assert_eq!(routing().matches(led).count(), 2, "{}", routing());
        assert!(setup.repair().0.is_empty());
        // Without a wish nothing is turned; connections that were handed over go on.
        setup.take(&[]).expect("permitted");
        let shown = ruleset();
        assert!(
            !shown.contains("to :123") && shown.contains("socket transparent 1"),
            "{shown}"
        );
        setup.undo();
        assert_eq!((ruleset(), routing()), (String::new(), before));
        // Nothing is led anywhere for redirection alone, and a rule that nothing matches keeps what was redirected going.
        let mut setup = Setup::new().expect("a journal");
        setup.take(&[]).expect("permitted");
        assert_eq!(ruleset(), "");
        setup.take(&takes()[..1]).expect("permitted");
        assert!(ruleset().contains("redirect to :1235"));
        setup.take(&[]).expect("permitted");
        let shown = ruleset();
        assert!(
            shown.contains("redirect to :0") && !shown.contains("to :1235"),
            "{shown}"
        );
        assert!(!routing().contains("6900000"), "{}", routing());
        setup.undo();
        assert_eq!(ruleset(), "");
    });
}
