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
fn a_class_that_may_carry_no_more_stands_still_until_it_may_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("quotas.json");
    let target = echo();
    let config = |amount: &str| {
        format!(
            "{METRICS}{}[quotas]\nfile = {file:?}\n[[class]]\nname = \"all\"\nquota = {{ amount = \"{amount}\", period = \"month\", reset = \"1st 00:00 UTC\", then = \"never\" }}\n",
            fixed("one", target)
        )
    };
    let mut proxy = Proxy::start(&config("100KB"));
    let through = proxy.address_of("one listens on");
    let metrics = proxy.address_of("metrics on");
    proxy.listen_no_more();
    let running = connect(through);
    running.set_read_timeout(None).expect("open");
    // More than passes between two looks at the quota.
    const BYTES: u64 = 200_000_000;
    let transfer = std::thread::spawn(move || {
        let mut write = running.try_clone().expect("a descriptor");
        let zeros = || std::io::repeat(0).take(BYTES);
        let writes = std::thread::spawn(move || std::io::copy(&mut zeros(), &mut write));
        let read = std::io::copy(&mut running.take(BYTES), &mut std::io::sink());
        (writes.join().expect("no panic").ok(), read.ok())
    });
    wait_for("the quota to be used up", || {
        let all = get(metrics, "/metrics");
        let mut lines = all.lines();
        let limit = lines.find(|l| l.starts_with("manypath_limit_rate_bytes_per_second"));
        limit.map(|_| ())
    });
    let refused = connect(through).read(&mut [0]);
    assert!(matches!(refused, Ok(0) | Err(_)), "{refused:?}");
    wait_for("the running one to wait", || {
        let waits = get(metrics, "/metrics");
        let mut waits = waits
            .lines()
            .filter(|l| l.starts_with("manypath_limit_waits_total"));
        waits.any(|line| !line.ends_with(" 0")).then_some(())
    });
    assert!(!transfer.is_finished());
    wait_for("the reload", || {
        let output = proxy.reload(&config("1000GB"));
        output.status.success().then_some(())
    });
    let whole = (Some(BYTES), Some(BYTES));
    assert_eq!(transfer.join().expect("no panic"), whole);
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
