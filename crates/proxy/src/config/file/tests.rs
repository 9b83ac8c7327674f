//! What a file may say, and how mistakes are told.

use super::*;
use crate::serve::Bounds;

/// All faults of a text, as `LINE:COLUMN message`.
fn faults(text: &str) -> Vec<String> {
    let faults = read_text(text).expect_err("it is wrong");
    let told = faults.iter();
    told.map(|fault| format!("{}:{} {}", fault.line, fault.column, fault.message))
        .collect()
}

fn config(text: &str) -> Config {
    match read_text(text) {
        Ok(draft) => draft.config,
        Err(faults) => panic!("{faults:?}"),
    }
}

#[test]
fn everything_that_can_be_said_is_read() {
    let all = config(
        r#"
        [[listen]]
        name = "front"
        on = "mptcp:192.0.2.1:3128"
        opening = "http"
        outside = "tcp"
        users = "/etc/manypath/users"
        tls = { cert = "/etc/tls/cert.pem", key = "/etc/tls/key.pem" }
        proxy_protocol = { in = true, from = "10.0.0.0/8", out = "v2" }
        forwarded = "x-forwarded-for"
        [[listen]]
        on = "[::1]:1080"
        opening = "socks5"
        [[listen]]
        on = "8.example:80"
        opening = "fixed"
        to = "kernel-mptcp:server.example:80"

        [[rule]]
        client = ["192.0.2.0/24", "2001:db8::1"]
        user = "alice"
        to = ["*.example.net", "203.0.113.0/24"]
        port = [443, "8000-8999"]
        then = "allow"
        [[rule]]
        then = "deny"

        [limits]
        all_connections = 300
        connections = 100
        per_client = 7
        header_size = "16Ki"
        header_time = "5s"
        keep_alive = "30s"
        idle = "off"
        half_closed = "1m"
        udp_idle = "3m"
        udp_targets = 9
        connect_time = "500ms"
        tcp_keepalive = "off"

        [metrics]
        on = "unix:/run/manypath/metrics.sock"
        [log]
        access = "/var/log/manypath/access.log"
        format = "text"
        "#,
    );
    let [front, socks, fixed] = all.listeners.as_slice() else {
        panic!("three of them: {:?}", all.listeners);
    };
    assert_eq!(&*front.spec.name, "front");
    assert_eq!(front.spec.on.to_string(), "mptcp:192.0.2.1:3128");
    assert_eq!(
        (front.spec.outside, socks.spec.outside),
        (Proto::Tcp, Proto::Mptcp)
    );
    assert_eq!(front.users.as_deref(), Some("/etc/manypath/users".as_ref()));
    assert!(front.spec.tls.is_some() && front.spec.proxy_in);
    assert_eq!(front.spec.proxy_out, Some(ProxyVersion::V2));
    assert_eq!(front.spec.forwarded, ForwardedHeader::XForwardedFor);
    assert_eq!(&*socks.spec.name, "socks5 [::1]:1080");
    assert_eq!(socks.spec.on.to_string(), "tcp:[::1]:1080");
    let to = "kernel-mptcp:server.example:80"
        .parse()
        .expect("an endpoint");
    assert_eq!(fixed.spec.opening, OpeningKind::Fixed(to));
    assert_eq!(
        all.rules[0].to_string(),
        "allow from 192.0.2.0/24, 2001:db8::1 user alice to *.example.net, 203.0.113.0/24 port 443, 8000-8999"
    );
    assert_eq!(all.rules[1].to_string(), "deny everything");
    let bounds = Bounds {
        header_bytes: 16 * 1024,
        header_time: Duration::from_secs(5),
        keep_alive: Duration::from_secs(30),
        idle: None,
        half_closed: Some(Duration::from_secs(60)),
        max_connections: 100,
        max_per_client: 7,
        udp_idle: Duration::from_secs(180),
        udp_targets: 9,
    };
    assert_eq!((&all.limits.bounds, &front.spec.bounds), (&bounds, &bounds));
    assert_eq!(all.limits.total, 300);
    let believes = |addr: &str| front.spec.believes(addr.parse().expect("an address"));
    assert!(believes("10.1.2.3") && !believes("192.0.2.1"));
    assert_eq!(all.limits.connect_time, Duration::from_millis(500));
    assert_eq!(all.limits.keepalive, None);
    assert_eq!(
        all.metrics.map(|on| on.to_string()).as_deref(),
        Some("unix:/run/manypath/metrics.sock")
    );
    assert_eq!(all.log.access.to_string(), "/var/log/manypath/access.log");
}

#[test]
fn one_client_has_a_quarter_of_fewer_connections() {
    let all = config("[limits]\nconnections = 10\n");
    assert_eq!(all.limits.bounds.max_per_client, 3);
    assert_eq!(config("").limits, Limits::default());
}

#[test]
fn all_mistakes_are_told_at_once_with_their_places() {
    let text = "\
[[listen]]
on = \"127.0.0.1:3128\"
openning = \"http\"
[[listen]]
on = 3128
opening = \"htpp\"
[limit]
connections = 5
[limits]
header-size = \"64Ki\"
idle = \"soon\"
connections = 0
";
    assert_eq!(
        faults(text),
        [
            "1:1 [[listen]] has no `opening`",
            "3:1 unknown key `openning` in [[listen]]: is `opening` meant?",
            "5:6 `on` is a number, and wants an address and port as \"127.0.0.1:3128\"",
            "6:11 `opening`: 'htpp' is none of http, socks5, convert, transparent, fixed",
            "7:2 unknown key `limit` in the file: is `limits` meant?",
            "10:1 unknown key `header-size` in [limits]: is `header_size` meant?",
            "11:8 `idle`: 'soon' is no time; write for example 10s, 500ms, 2m or 2h4m",
            "12:15 `connections` is 0, and wants a number from 1 to 10000000",
        ]
    );
}

#[test]
fn broken_toml_is_told_by_its_place() {
    let told = faults("[[listen]]\non = \n");
    assert!(told[0].starts_with("2:"), "{told:?}");
    let told = faults("[limits]\nidle = \"1s\"\nidle = \"2s\"\n");
    assert!(
        told[0].starts_with("3:1 ") && told[0].contains("duplicate"),
        "{told:?}"
    );
}

#[test]
fn values_that_would_be_limits_of_another_kind_are_refused() {
    for value in [
        "-1",
        "0",
        "18446744073709551616",
        "1.5",
        "nan",
        "\"\"",
        "\"5\"",
        "true",
        "[]",
        "1979-05-27",
    ] {
        let told = faults(&format!("[limits]\nconnections = {value}\n"));
        assert_eq!(told.len(), 1, "{value}: {told:?}");
        assert!(
            told[0].starts_with("2:15 `connections` is "),
            "{value}: {told:?}"
        );
    }
    for value in [
        "\"\"",
        "\"-1s\"",
        "\"0\"",
        "\"1e30\"",
        "\"1y\"",
        "\"NaN\"",
        "\"inf\"",
        "\"20000h\"",
        "1",
    ] {
        let told = faults(&format!("[limits]\nidle = {value}\n"));
        assert_eq!(told.len(), 1, "{value}: {told:?}");
    }
    for value in [
        "\"1\"",
        "\"2Mi\"",
        "-1",
        "\"1e9\"",
        "\"99999999999999999999\"",
    ] {
        let told = faults(&format!("[limits]\nheader_size = {value}\n"));
        assert_eq!(told.len(), 1, "{value}: {told:?}");
    }
}

#[test]
fn keys_of_another_opening_are_refused() {
    for (lines, part) in [
        (
            "opening = \"http\"\nto = \"tcp:a:1\"",
            "`to` is for opening = \"fixed\"",
        ),
        ("opening = \"fixed\"", "wants `to`"),
        (
            "opening = \"fixed\"\nto = \"tcp:a:0\"",
            "nobody can be reached at port 0",
        ),
        (
            "opening = \"fixed\"\nto = \"tcp:a:1\"\nusers = \"/u\"",
            "`users` is for openings that can ask",
        ),
        (
            "opening = \"fixed\"\nto = \"tcp:a:1\"\noutside = \"tcp\"",
            "`outside` is for openings whose client",
        ),
        (
            "opening = \"socks5\"\ntls = { cert = \"/c\", key = \"/k\" }",
            "`tls` is for opening = \"http\"",
        ),
        (
            "opening = \"http\"\ntls = { cert = \"/c\" }",
            "`tls` of [[listen]] has no `key`",
        ),
        (
            "opening = \"http\"\nusers = \"users\"",
            "is not a whole path",
        ),
        (
            "opening = \"http\"\nproxy_protocol = { out = \"v3\" }",
            "neither v1 nor v2",
        ),
        ("opening = \"http\"\nname = \"a b\"", "is no name"),
    ] {
        let told = faults(&format!("[[listen]]\non = \"127.0.0.1:1\"\n{lines}\n"));
        assert_eq!(told.len(), 1, "{lines}: {told:?}");
        assert!(told[0].contains(part), "{lines}: {told:?}");
    }
}

#[test]
fn what_a_transparent_listener_takes_is_read() {
    let listen = "[[listen]]\nopening = \"transparent\"\non = \"[::]:1235\"\n";
    let all = config(&format!(
        "{listen}take = {{ interface = [\"lan0\", \"lan1\"], from = \"192.168.1.0/24\", port = [80, \"8000-8999\"], mode = \"tproxy\" }}\n"
    ));
    let taken = all.listeners[0].spec.take.as_ref().expect("it takes");
    assert_eq!(
        taken.to_string(),
        "takes what comes by lan0, lan1 from 192.168.1.0/24 to port 80, 8000-8999 (tproxy)"
    );
    let all = config(&format!("{listen}take = {{ interface = \"lan0\" }}\n"));
    let taken = all.listeners[0].spec.take.as_ref().expect("it takes");
    assert_eq!(taken.to_string(), "takes what comes by lan0 (redirect)");
    let networks: Vec<String> = (0..26).map(|n| format!("\"10.{n}.0.0/16\"")).collect();
    let many = format!(
        "interface = \"lan0\", port = [1,2,3,4,5,6,7,8,9,10], from = [{}]",
        networks.join(",")
    );
    for (take, part) in [
        ("", "4:8 `take` has no `interface`"),
        ("interface = \"lo\"", "4:22 `interface`: what programs"),
        ("interface = \"a/b\"", "is no name of an interface"),
        ("interface = []", "is an empty list"),
        (
            "interface = \"lan0\", mode = \"drop\"",
            "4:37 `mode`: 'drop' is neither",
        ),
        ("interface = \"lan0\", from = \"lan\"", "is no network"),
        ("interface = \"lan0\", port = 0", "wants a number from 1"),
        ("interface = \"lan0\", prot = 80", "is `port` meant?"),
        (many.as_str(), "4:8 `take` makes 260 rules"),
    ] {
        let told = faults(&format!("{listen}take = {{ {take} }}\n"));
        assert_eq!(told.len(), 1, "{take}: {told:?}");
        assert!(told[0].contains(part), "{take}: {told:?}");
    }
    let take = "take = { interface = \"lan0\" }";
    for (on, opening, part) in [
        (
            "127.0.0.1:1235",
            "transparent",
            "wants a listener on every address",
        ),
        (
            "0.0.0.0:0",
            "transparent",
            "wants a listener on every address",
        ),
        (
            "[::]:1235",
            "http",
            "`take` is for opening = \"transparent\"",
        ),
    ] {
        let told = faults(&format!(
            "[[listen]]\non = \"{on}\"\nopening = \"{opening}\"\n{take}\n"
        ));
        assert_eq!(told.len(), 1, "{on}: {told:?}");
        assert!(
            told[0].starts_with("4:8 ") && told[0].contains(part),
            "{on}: {told:?}"
        );
    }
}

#[test]
fn the_clients_address_is_kept_where_answers_to_it_come_back_here() {
    let listen = "[[listen]]\non = \"[::]:1235\"\nkeep_client = true\n";
    let tproxy = "take = { interface = \"lan0\", mode = \"tproxy\" }";
    for (lines, part) in [
        ("opening = \"transparent\"\noutside = \"tcp\"", None),
        (
            &*format!("opening = \"transparent\"\noutside = \"tcp\"\n{tproxy}"),
            None,
        ),
        ("opening = \"transparent\"", Some("wants outside = \"tcp\"")),
        (
            "opening = \"transparent\"\noutside = \"kernel-mptcp\"",
            Some("wants outside"),
        ),
        (
            "opening = \"transparent\"\noutside = \"tcp\"\ntake = { interface = \"lan0\" }",
            Some("wants mode = \"tproxy\""),
        ),
        (
            "opening = \"http\"\noutside = \"tcp\"",
            Some("is for opening = \"transparent\""),
        ),
    ] {
        let text = format!("{listen}{lines}\n");
        let Some(part) = part else {
            assert!(config(&text).listeners[0].spec.keep_client);
            continue;
        };
        let told = faults(&text);
        assert_eq!(told.len(), 1, "{lines}: {told:?}");
        assert!(
            told[0].starts_with("3:15 ") && told[0].contains(part),
            "{told:?}"
        );
    }
}

#[test]
fn two_listeners_cannot_be_at_one_place() {
    let listen = "[[listen]]\nopening = \"http\"\non = \"127.0.0.1:3128\"\n";
    let told = faults(&format!("{listen}{listen}"));
    assert_eq!(told[0], "4:1 two listeners are called http 127.0.0.1:3128");
    assert_eq!(told[1], "6:6 two listeners are on 127.0.0.1:3128");
}

#[test]
fn metrics_stay_on_this_host() {
    for (on, part) in [
        ("0.0.0.0:9464", "no loopback address"),
        ("192.0.2.1:9464", "no loopback address"),
        ("localhost:9464", "neither ADDRESS:PORT"),
        ("unix:metrics.sock", "a whole path"),
    ] {
        let told = faults(&format!("[metrics]\non = \"{on}\"\n"));
        assert!(told[0].contains(part), "{on}: {told:?}");
    }
}

#[test]
fn a_list_that_would_mean_nobody_is_refused() {
    let told = faults("[[rule]]\nclient = []\nthen = \"allow\"\n");
    assert_eq!(
        told,
        ["2:10 `client` is an empty list: leave it out to mean any"]
    );
    let told = faults("[[rule]]\nport = [0, \"9-8\", 70000]\nto = \"192.0.2.1/24\"\n");
    assert_eq!(told.len(), 5, "{told:?}");
}

#[test]
fn whose_headers_are_believed_is_said_where_there_are_any() {
    let listen = "[[listen]]\non = \"127.0.0.1:1\"\nopening = \"socks5\"\n";
    let told = faults(&format!(
        "{listen}proxy_protocol = {{ from = \"10.0.0.1\" }}\n"
    ));
    assert_eq!(
        told,
        ["4:27 `from` is for in = true: it says whose headers are believed"]
    );
}

proptest::proptest! {
    /// The documented file with pieces taken out and others put in: whatever comes of it, nothing panics, and each fault has a
    /// place in the text.
    #[test]
    fn faults_of_any_text_have_places_in_it(
        edits in proptest::collection::vec((0usize..6000, 0usize..60, "[ -~\n]{0,12}|\\PC{0,4}"), 0..8),
    ) {
        let mut text = include_str!("../../../../../docs/proxy.toml").to_owned();
        for (at, length, with) in edits {
            let near = |at: usize| (0..=at.min(text.len())).rev().find(|n| text.is_char_boundary(*n));
            let (from, to) = (near(at).unwrap_or(0), near(at + length).unwrap_or(0));
            text.replace_range(from..to, &with);
        }
        if let Err(faults) = read_text(&text) {
            proptest::prop_assert!(!faults.is_empty());
            let lines = text.matches('\n').count() + 1;
            for fault in faults {
                proptest::prop_assert!((1..=lines).contains(&fault.line), "{:?}", fault);
                proptest::prop_assert!(fault.column > 0 && !fault.message.is_empty());
            }
        }
    }
}
