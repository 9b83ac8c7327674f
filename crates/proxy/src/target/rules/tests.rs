//! Tables of decisions.

use super::*;

const OWN: &str = "198.51.100.7";

fn rule(then: Then) -> Rule {
    Rule {
        client: Vec::new(),
        user: Vec::new(),
        to: Vec::new(),
        port: Vec::new(),
        then,
    }
}

fn to(then: Then, patterns: &[&str]) -> Rule {
    let to = patterns.iter().map(|text| text.parse().expect(text));
    Rule {
        to: to.collect(),
        ..rule(then)
    }
}

/// `host` is a name, or a literal.
fn ask<'a>(host: &'a str, port: u16) -> Question<'a> {
    let address: Option<IpAddr> = host.parse().ok();
    Question {
        client: "192.0.2.1".parse().expect("a literal"),
        user: None,
        name: address.is_none().then_some(host),
        address,
        port,
        tunnel: false,
    }
}

fn judge(rules: &[Rule], asked: &Question<'_>) -> Verdict {
    let special = |addr| Special::of(addr, |addr| addr.to_string() == OWN);
    decide(rules, asked, asked.address.and_then(special))
}

#[test]
fn without_rules_special_addresses_alone_are_refused() {
    for (host, special) in [
        ("203.0.113.1", None),
        ("10.0.0.1", None),
        ("2001:db8::1", None),
        ("127.0.0.1", Some(Special::Loopback)),
        ("::ffff:127.0.0.1", Some(Special::Loopback)),
        (OWN, Some(Special::Own)),
    ] {
        let wanted = match special {
            None => Verdict::Allowed,
            Some(special) => Verdict::Denied(Denial::Special(special)),
        };
        assert_eq!(judge(&[], &ask(host, 80)), wanted, "{host}");
    }
}

#[test]
fn a_special_address_needs_a_rule_that_names_its_network() {
    let loopback = Verdict::Denied(Denial::Special(Special::Loopback));
    for (rules, wanted) in [
        (vec![rule(Then::Allow)], loopback),
        (vec![to(Then::Allow, &["0.0.0.0/0"])], loopback),
        (vec![to(Then::Allow, &["127.0.0.0/8"])], Verdict::Allowed),
        (
            vec![to(Then::Allow, &["0.0.0.0/0", "127.0.0.1"])],
            Verdict::Allowed,
        ),
        (
            vec![rule(Then::Allow), to(Then::Allow, &["127.0.0.1"])],
            loopback,
        ),
    ] {
        assert_eq!(judge(&rules, &ask("127.0.0.1", 80)), wanted, "{rules:?}");
    }
    // A name that somebody points at the loopback is no network.
    let rules = [to(Then::Allow, &["home.example"])];
    let found = Question {
        address: Some(std::net::Ipv4Addr::LOCALHOST.into()),
        ..ask("home.example", 80)
    };
    assert_eq!(judge(&rules, &found), loopback);
}

#[test]
fn the_first_match_decides_and_what_none_matches_is_denied() {
    let rules = [
        to(Then::Deny, &["ads.example.net"]),
        to(Then::Allow, &["*.example.net", "198.51.100.0/24"]),
        Rule {
            port: vec![8000..=8999],
            ..to(Then::Allow, &["example.org"])
        },
    ];
    for (host, port, wanted) in [
        ("ads.example.net", 80, Verdict::Denied(Denial::Rule(1))),
        ("ADS.Example.NET.", 80, Verdict::Denied(Denial::Rule(1))),
        ("www.example.net", 80, Verdict::Allowed),
        ("a.b.example.net", 80, Verdict::Allowed),
        // The name itself is not below itself, and may yet have an address of the network.
        ("example.net", 80, Verdict::DependsOnAddress),
        ("badexample.net", 80, Verdict::DependsOnAddress),
        ("198.51.100.9", 80, Verdict::Allowed),
        (OWN, 80, Verdict::Allowed),
        ("203.0.113.9", 80, Verdict::Denied(Denial::NoRule)),
    ] {
        assert_eq!(judge(&rules, &ask(host, port)), wanted, "{host}:{port}");
    }
    let found = |host, addr: &str, port| Question {
        address: Some(addr.parse().expect("a literal")),
        ..ask(host, port)
    };
    for (asked, wanted) in [
        (found("example.net", "198.51.100.9", 80), Verdict::Allowed),
        (
            found("example.net", "203.0.113.9", 80),
            Verdict::Denied(Denial::NoRule),
        ),
        (found("example.org", "203.0.113.9", 8080), Verdict::Allowed),
        (
            found("example.org", "203.0.113.9", 80),
            Verdict::Denied(Denial::NoRule),
        ),
    ] {
        assert_eq!(judge(&rules, &asked), wanted, "{asked:?}");
    }
}

#[test]
fn clients_and_users_are_told_apart() {
    let rules = [
        Rule {
            client: vec!["192.0.2.0/28".parse().expect("a network")],
            ..rule(Then::Allow)
        },
        Rule {
            user: vec!["alice".to_owned()],
            ..rule(Then::Allow)
        },
    ];
    let base = ask("203.0.113.1", 80);
    for (client, user, allowed) in [
        ("192.0.2.1", None, true),
        ("::ffff:192.0.2.1", None, true),
        ("192.0.2.16", None, false),
        ("192.0.2.16", Some("alice"), true),
        ("192.0.2.16", Some("bob"), false),
        ("192.0.2.16", Some("Alice"), false),
    ] {
        let asked = Question {
            client: client.parse().expect("a literal"),
            user,
            ..base
        };
        let verdict = judge(&rules, &asked);
        assert_eq!(verdict == Verdict::Allowed, allowed, "{asked:?}");
    }
}

#[test]
fn connect_goes_to_443_unless_a_rule_names_ports() {
    let ssh = Rule {
        port: vec![22..=22],
        ..rule(Then::Allow)
    };
    let all = [rule(Then::Allow)];
    let with_ssh = [ssh, rule(Then::Allow)];
    for (rules, port, allowed) in [
        (&[][..], 443, true),
        (&[][..], 22, false),
        (&all[..], 443, true),
        (&all[..], 8443, false),
        (&with_ssh[..], 22, true),
        (&with_ssh[..], 25, false),
    ] {
        let asked = Question {
            tunnel: true,
            ..ask("203.0.113.1", port)
        };
        let wanted = match allowed {
            true => Verdict::Allowed,
            false => Verdict::Denied(Denial::ConnectPort),
        };
        assert_eq!(judge(rules, &asked), wanted, "{port} with {rules:?}");
        // Other requests may go anywhere.
        assert_eq!(judge(rules, &ask("203.0.113.1", port)), Verdict::Allowed);
    }
}

#[test]
fn networks_and_names_are_read_strictly() {
    for text in [
        "192.0.2.0/24",
        "192.0.2.1",
        "2001:db8::/32",
        "::1",
        "www.example.net",
        "*.example.net",
        "xn--bcher-kva.example",
        "localhost",
    ] {
        let pattern: Pattern = text.parse().expect(text);
        assert_eq!(pattern.to_string(), text);
    }
    for (text, part) in [
        ("192.0.2.1/24", "192.0.2.0/24 for the network"),
        ("192.0.2.0/33", "no network"),
        ("", "no name"),
        ("*", "no name"),
        ("www.*.net", "no name"),
        ("a..b", "no name"),
        ("bücher.example", "xn--"),
        ("http://a/", "no network"),
        ("a b", "no name"),
    ] {
        let error = text.parse::<Pattern>().expect_err(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_rule_reads_as_a_sentence() {
    let full = Rule {
        client: vec!["192.0.2.0/24".parse().expect("a network")],
        user: vec!["alice".to_owned()],
        port: vec![80..=80, 8000..=8999],
        ..to(Then::Allow, &["*.example.net", "203.0.113.0/24"])
    };
    assert_eq!(
        full.to_string(),
        "allow from 192.0.2.0/24 user alice to *.example.net, 203.0.113.0/24 port 80, 8000-8999"
    );
    assert_eq!(rule(Then::Deny).to_string(), "deny everything");
}
