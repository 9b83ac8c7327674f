//! Two processes that are given one file of quotas.

use std::io::{Read, Write};
use std::net::SocketAddr;

use crate::{METRICS, Proxy, connect, echo, fixed, get, manypath, text, wait_for};

/// A metric of the only quota.
fn quota(metrics: SocketAddr, name: &str) -> Option<f64> {
    let all = get(metrics, "/metrics");
    let of_it =
        |line: &&str| line.starts_with(name) && line.as_bytes().get(name.len()) == Some(&b'{');
    let line = all.lines().find(of_it)?;
    line.rsplit(' ').next()?.parse().ok()
}

/// So many bytes there and back.
fn carry(through: SocketAddr, bytes: usize) {
    let mut stream = connect(through);
    stream.write_all(&vec![b'x'; bytes]).expect("written");
    stream.read_exact(&mut vec![0; bytes]).expect("answered");
}

#[test]
fn a_second_process_on_one_file_says_so_and_goes_on_with_both_counts() {
    let target = echo();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("quotas.json");
    let config = format!(
        "{METRICS}{}[quotas]\nfile = {file:?}\n[[class]]\nname = \"all\"\nquota = {{ amount = \"1GB\", period = \"month\", reset = \"1st 00:00 UTC\", then = \"rate 1mbit\" }}\n",
        fixed("one", target)
    );
    let mut first = Proxy::start(&config);
    let through = first.address_of("one listens on");
    let first_metrics = first.address_of("metrics on");
    first.listen_no_more();
    carry(through, 100_000);
    let used = |metrics, least: f64| {
        wait_for("the count", || {
            quota(metrics, "manypath_quota_used_bytes").filter(|used| *used >= least)
        })
    };
    used(first_metrics, 200_000.0);
    wait_for("the count to be kept", || {
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        kept.contains("\"bytes\": 200000").then_some(())
    });

    let mut second = Proxy::start(&config);
    let (pid, mut told) = (first.child.id(), String::new());
    let through = {
        let said = second.said.as_mut().expect("somebody listens");
        loop {
            let mut line = String::new();
            let read = std::io::BufRead::read_line(said, &mut line).expect("text");
            assert!(read > 0, "it ended, and said: {told}");
            told.push_str(&line);
            if let Some((_, at)) = line.split_once("one listens on ") {
                break at.trim().parse().expect("an address");
            }
        }
    };
    for part in [
        format!("process {pid} keeps its quotas in"),
        "[quotas]".to_owned(),
    ] {
        assert!(told.contains(&part), "{part}: {told}");
    }
    let second_metrics = second.address_of("metrics on");
    second.listen_no_more();
    carry(through, 50_000);
    used(second_metrics, 300_000.0);
    assert_eq!(quota(second_metrics, "manypath_quota_kept"), Some(0.0));
    let pid = second.child.id().to_string();
    let reset = ["ctl", "--pid", &pid, "reset-quota", "class", "all"];
    let refused = manypath(second.folder.path()).args(reset).output();
    let refused = refused.expect("it runs");
    let said = text(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("order it there"),
        "{said}"
    );

    // As `kill -9` ends it.
    drop(first);
    wait_for("the second to keep the counts", || {
        let kept = quota(second_metrics, "manypath_quota_kept");
        kept.filter(|kept| *kept == 1.0)
    });
    let both = used(second_metrics, 300_000.0);
    assert_eq!(both, 300_000.0);
    wait_for("the file to have both", || {
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        kept.contains("\"bytes\": 300000").then_some(())
    });
}
