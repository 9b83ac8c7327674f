//! A browser whose proxy is ours loads a page over two paths, of which one is cut.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use manypath_tests::net::{Family, Net, shell, tool};
use manypath_tests::nginx::nginx;
use manypath_tests::program::Program;
use manypath_tests::until::wait_until;

use crate::limits::carried;

/// Objects of the page beside itself, and bytes of each.
const OBJECTS: usize = 50;
const SIZE: usize = 100_000;

/// How long the browser may take: a dozen times what it does.
const TIME: Duration = Duration::from_secs(90);

/// A page that counts the pictures that have come. Each has a text of its own, so that a wrong one is no picture of that width.
fn write_page(folder: &Path) {
    let mut page = String::from(
        "<!doctype html><title>page</title><body data-right=\"0\"><script>\n\
         let right = 0;\n\
         function came(image, width) { if (image.naturalWidth === width) document.body.dataset.right = ++right; }\n\
         </script>\n",
    );
    for n in 1..=OBJECTS {
        let _ = writeln!(page, "<img src=\"{n}.svg\" onload=\"came(this, {n})\">");
        let head =
            format!("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{n}\" height=\"9\"><!-- ");
        let text = format!("{head}{}--></svg>", "x".repeat(SIZE - head.len()));
        std::fs::write(folder.join(format!("{n}.svg")), text).expect("a folder of ours");
    }
    std::fs::write(folder.join("index.html"), page).expect("a folder of ours");
}

/// A browser that prints the page when everything of it has come.
fn browser(profile: &Path, url: &str) -> Command {
    let mut command = tool("chromium");
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--no-first-run",
        "--proxy-server=http://127.0.0.1:3128",
        "--dump-dom",
    ]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command.arg(url);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// Waits until no address of ours is tentative: a browser gives up what it loads when an address comes.
fn wait_for_addresses(net: &Net) {
    wait_until("addresses that stay", || {
        let table = net
            .ours
            .run(|| std::fs::read_to_string("/proc/thread-self/net/if_inet6"));
        let table = table.expect("the table of addresses");
        // The fifth column has the flags: IFA_F_TENTATIVE of linux/if_addr.h.
        let flags = |line: &str| u32::from_str_radix(line.split_whitespace().nth(4)?, 16).ok();
        let tentative = |line: &str| flags(line).is_some_and(|flags| flags & 0x40 != 0);
        match table.lines().any(tentative) {
            false => Ok(()),
            true => Err(table),
        }
    });
}

#[test]
fn a_page_of_fifty_objects_is_whole_though_one_path_is_cut() {
    for name in ["chromium", "nginx", "mptcpize"] {
        if tool(name).arg("--version").output().is_err() {
            eprintln!("skipped: {name} is not installed");
            return;
        }
    }
    let Some(net) = Net::bridged(2) else { return };
    net.add_endpoint(Net::kernel_address(Family::V4, 2), 2, "signal");
    let middle = net.middle.as_ref().expect("switches");
    for n in 1..=2 {
        let line = format!("tc qdisc add dev o{n} root tbf rate 10mbit burst 16kb limit 100000");
        shell(middle, &line);
    }
    let (site, profile) = (tempfile::tempdir(), tempfile::tempdir());
    let (site, profile) = (site.expect("a folder"), profile.expect("a folder"));
    write_page(site.path());
    let http = format!(
        "access_log off; types {{ text/html html; image/svg+xml svg; }} server {{ listen 80; root {}; }}",
        site.path().display()
    );
    let nginx = nginx(&net.kernel, site.path(), &http, &["mptcpize", "run"]);
    let mut nginx = nginx.expect("it is installed");
    let target = Net::kernel_address(Family::V4, 1);
    let file = site.path().join("proxy.toml");
    let text = format!(
        "[[listen]]\non = \"127.0.0.1:3128\"\nopening = \"http\"\noutside = \"mptcp\"\n\
         [[rule]]\nto = \"{target}/32\"\nport = 80\nthen = \"allow\"\n"
    );
    std::fs::write(&file, text).expect("a folder of ours");
    let file = file.to_str().expect("UTF-8");
    let args = ["proxy", "--config", file, "--path", "v1", "--path", "v2"];
    let proxy = Program::start(&net.ours, args, "listens on");

    wait_for_addresses(&net);
    let came = |n| carried(&net.ours, n)[0];
    let url = format!("http://{target}/index.html");
    let mut page = net
        .ours
        .spawn(browser(profile.path(), &url))
        .expect("it starts");
    // Both carry, and the most of it is still to come.
    let part = (OBJECTS * SIZE / 10) as f64;
    wait_until("both paths to carry", || {
        let carried = [1, 2].map(came);
        let enough = carried.iter().all(|bytes| *bytes > part);
        let told = || (carried, proxy.said());
        enough.then_some(()).ok_or_else(told)
    });
    assert!(
        came(1) + came(2) < (OBJECTS * SIZE) as f64 / 2.0,
        "too late to cut"
    );
    net.swallow(1);
    let output = page.child().stdout.take().expect("a pipe");
    let (tells, told) = mpsc::channel();
    std::thread::spawn(move || tells.send(std::io::read_to_string(output)));
    let text = told.recv_timeout(TIME);
    let text = text.unwrap_or_else(|_| panic!("the browser waits: {}", proxy.said()));
    let text = text.expect("a page is text");
    assert!(
        text.contains(&format!("data-right=\"{OBJECTS}\"")),
        "{text}"
    );
    assert!(
        came(2) > (OBJECTS * SIZE) as f64 / 2.0,
        "the other path carries the rest"
    );
    nginx.stop(Duration::from_secs(3));
    proxy.interrupt();
}
