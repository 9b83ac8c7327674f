//! `manypath ctl limit --save`: what is ordered holds after a reload, too.

use std::fs;

use crate::{Proxy, echo, fixed, manypath, text, wait_for};

fn ctl(proxy: &Proxy, args: &[&str]) -> (bool, String) {
    let output = manypath(proxy.folder.path()).arg("ctl").args(args).output();
    let output = output.expect("it runs");
    (output.status.success(), text(&output.stderr))
}

/// What the process says of the only limit. One that has no time to answer within a second is asked again.
fn rate(proxy: &Proxy) -> u64 {
    wait_for("an answer", || {
        let output = manypath(proxy.folder.path())
            .args(["status", "--json"])
            .output();
        let output = output.expect("it runs");
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let found = all.pointer("/processes/0/limits/0/bits_per_second");
        found.and_then(serde_json::Value::as_u64)
    })
}

#[test]
fn a_limit_that_is_saved_holds_after_a_reload_and_the_file_keeps_its_comments() {
    let config = format!(
        "# of the gateway\n{}[[class]]\nname = \"all\" # everybody\nrate = {{ down = \"20mbit\" }} # until May\n",
        fixed("one", echo())
    );
    let mut proxy = Proxy::start(&config);
    proxy.address_of("one listens on");
    proxy.listen_no_more();
    assert_eq!(rate(&proxy), 20_000_000);
    let order = ["limit", "class", "all/down", "5mbit"];
    assert_eq!(ctl(&proxy, &order), (true, String::new()));
    assert_eq!(rate(&proxy), 5_000_000);
    let file = || fs::read_to_string(proxy.path("proxy.toml")).expect("it is there");
    assert_eq!(file(), config, "an order alone changes no file");
    let (done, said) = ctl(&proxy, &["limit", "class", "all/down", "8mbit", "--save"]);
    assert!(done, "{said}");
    let saved = config.replace("20mbit", "8mbit");
    assert_eq!(file(), saved);
    assert!(proxy.reload(&saved).status.success());
    assert_eq!(rate(&proxy), 8_000_000);
    let (done, said) = ctl(&proxy, &["limit", "class", "nobody", "8mbit", "--save"]);
    assert!(!done && said.contains("there is no class nobody"), "{said}");
    let (done, said) = ctl(&proxy, &["limit", "connection", "3.1", "8mbit", "--save"]);
    assert!(!done && said.contains("no place in a file"), "{said}");
    assert_eq!(file(), saved);
}
