//! What is refused as unsafe, and what is warned of.

use std::fs;

use super::*;
use crate::config::shown::{as_json, as_text};
use crate::users::line_for;

fn checked(text: &str) -> Result<Checked, Vec<String>> {
    let draft = read_text(text).expect("well-formed");
    check(draft).map_err(|faults| {
        let told = faults.iter();
        told.map(|fault| format!("{}:{} {}", fault.line, fault.column, fault.message))
            .collect()
    })
}

#[test]
fn a_listener_beyond_loopback_says_who_may_use_it() {
    let rule = "[[rule]]\nclient = \"192.168.1.0/24\"\nthen = \"allow\"\n";
    let anybody = "[[rule]]\nport = 443\nthen = \"allow\"\n";
    let one_of_two = &[rule, anybody].concat();
    for (on, opening, rule, fits) in [
        ("127.0.0.1:1", "http", "", true),
        ("[::1]:1", "socks5", "", true),
        ("localhost:1", "socks5", "", true),
        ("0.0.0.0:1", "http", "", false),
        ("[::]:1", "socks5", "", false),
        ("192.0.2.1:1", "http", "", false),
        ("mptcp:192.0.2.1:1", "http", "", false),
        ("proxy.example:1", "http", "", false),
        ("0.0.0.0:1", "http", rule, true),
        ("127.0.0.1:1", "http", anybody, true),
        ("0.0.0.0:1", "http", anybody, false),
        ("0.0.0.0:1", "http", one_of_two, false),
    ] {
        let text = format!("{rule}\n[[listen]]\non = \"{on}\"\nopening = \"{opening}\"\n");
        match checked(&text) {
            Ok(_) => assert!(fits, "{text}"),
            Err(told) => {
                assert!(!fits, "{text}: {told:?}");
                assert!(told[0].contains("say who may use it"), "{told:?}");
            }
        }
    }
    let fixed = "[[listen]]\non = \"0.0.0.0:1\"\nopening = \"fixed\"\nto = \"tcp:127.0.0.1:80\"\n";
    checked(fixed).expect("the operator has chosen the target");
}

#[test]
fn files_that_are_named_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    let users = path.display();
    let text = format!("[[listen]]\non = \"0.0.0.0:1\"\nopening = \"http\"\nusers = \"{users}\"\n");
    let told = checked(&text).expect_err("there is no such file");
    assert!(told[0].starts_with("1:1 `users`: cannot read "), "{told:?}");
    fs::write(&path, "alice\n# x\nbob:plain\n").expect("written");
    let told = checked(&text).expect_err("two bad lines");
    assert_eq!(told.len(), 2);
    assert!(told[1].contains("users:3: the hash is neither"), "{told:?}");
    fs::write(&path, line_for("alice", b"secret").expect("hashed")).expect("written");
    let all = checked(&text).expect("it is right");
    assert!(all.warnings[0].contains("passwords go over the network in clear"));
    let users = all.users_of(&all.config.listeners[0]).expect("users");
    assert!(users.authenticate("alice", b"secret"));
}

#[test]
fn rules_that_never_apply_are_told() {
    let listen = "[[listen]]\non = \"127.0.0.1:1\"\nopening = \"http\"\n";
    let told = checked(&format!(
        "{listen}[[rule]]\nuser = \"alice\"\nthen = \"allow\"\n"
    ));
    let told = told.expect_err("nobody is asked who it is");
    assert_eq!(
        told,
        ["4:1 `user` never matches: no [[listen]] has `users`"]
    );
    let warnings = |rules: &str| {
        checked(&format!("{listen}{rules}"))
            .expect("right")
            .warnings
    };
    let all = "[[rule]]\nthen = \"allow\"\n";
    assert!(warnings(&format!("{all}{all}"))[0].contains("rule 1 is for everything"));
    let deny = "[[rule]]\nto = \"a.example\"\nthen = \"deny\"\n";
    assert!(warnings(deny)[0].contains("no rule allows anything"));
    assert!(warnings(&format!("{deny}{all}")).is_empty());
    assert_eq!(checked("").expect_err("no listener").len(), 1);
}

#[test]
fn what_is_in_force_is_shown_with_its_defaults() {
    let text = "\
[[listen]]
on = \"127.0.0.1:3128\"
opening = \"http\"
[[listen]]
on = \"127.0.0.1:80\"
opening = \"fixed\"
to = \"mptcp:server.example:80\"
[[rule]]
to = \"*.example.net\"
then = \"allow\"
";
    let all = checked(text).expect("it is right");
    assert_eq!(
        as_text(&all),
        "\
listen    http 127.0.0.1:3128: http on tcp:127.0.0.1:3128, outside mptcp, no passwords
listen    fixed 127.0.0.1:80: fixed on tcp:127.0.0.1:80, to mptcp:server.example:80
rule  1   allow to *.example.net
rule      deny everything else
limits    all_connections 20000, connections 10000, per_client 2500, header_size 64Ki, header_time 10s, keep_alive 1m, idle 2h4m, half_closed 4m, udp_idle 2m, udp_targets 256, connect_time 30s, tcp_keepalive 2h
resolver  the host's
https     believes system
metrics   off
log       access off, json
"
    );
    let json = as_json(&all);
    assert_eq!(json["listen"][1]["to"], "mptcp:server.example:80");
    assert_eq!(json["limits"]["idle"], 7440.0);
    assert_eq!(json["rule"][0]["to"][0], "*.example.net");
    assert_eq!(json["otherwise"], "deny");
}
