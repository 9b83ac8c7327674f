//! How fast our stack moves bytes to and from the kernel's Multipath TCP over one or two cables: goodput, and CPU
//! seconds of this process (both ends and the kernel on their behalf) per gigabyte. Needs root (or `unshare -Urn`).
//!
//! `stack_rates [SECONDS]`

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Lab, addr, kernel_mptcp_listener, run};
use manypath_io::{Attach, Connect, Host};
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// CPU seconds of this process, both ends and the kernel on their behalf included. (Other work on the machine does not count.)
fn busy() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn report(what: &str, bytes: u64, took: f64, cpu: f64) {
    let gigabytes = bytes as f64 / 1e9;
    println!(
        "{what:<56} {:6.2} Gbit/s  {:6.3} CPU s/GB",
        gigabytes * 8.0 / took,
        cpu / gigabytes
    );
}

#[derive(Clone, Copy)]
struct Case {
    paths: u8,
    attach: Attach,
    plain_cables: bool,
    offload: bool,
    checksum: bool,
    sending: bool,
}

fn build(case: Case) -> std::io::Result<Host> {
    let host = if case.attach == Attach::Tun { 2 } else { 10 };
    let specs = (1..=case.paths).map(|n| {
        format!("v{n}=10.77.{n}.{host}")
            .parse()
            .expect("a good path")
    });
    let mut options = Host::builder()
        .paths(specs)
        .attach(case.attach)
        .offload(case.offload);
    let mut conn = manypath_stack::ConnOptions {
        path_manager: manypath_stack::PathManager::FullMesh,
        ..Default::default()
    };
    conn.checksum = case.checksum;
    options = options.conn_options(conn.clone()).accept_options(conn);
    options.build()
}

fn measure(lab: &Lab, case: Case, seconds: u64) {
    let listener = lab
        .kernel
        .run(|| kernel_mptcp_listener(addr("0.0.0.0:5000")))
        .expect("a listener");
    let time = Duration::from_secs(seconds);
    let peer = lab.kernel.start(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut buffer = vec![0; 256 * 1024];
        let mut total = 0u64;
        if case.sending {
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                total += count as u64;
            }
        } else {
            let start = Instant::now();
            while start.elapsed() < time && stream.write_all(&buffer).is_ok() {
                total += buffer.len() as u64;
            }
        }
        total
    });
    let result = lab.ours.block_on(move || async move {
        let host = build(case)?;
        let mut stream = Connect::new(&host).connect(addr("10.77.1.1:5000")).await?;
        // Give the joins a moment, so that both cables work from the start.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let (start, before) = (Instant::now(), busy());
        let mut buffer = vec![0; 256 * 1024];
        let mut total = 0u64;
        if case.sending {
            while start.elapsed() < time {
                total += stream.write(&buffer).await? as u64;
            }
            let took = (start.elapsed().as_secs_f64(), busy() - before);
            stream.shutdown().await?;
            while stream.read(&mut buffer).await? > 0 {}
            let info = host.counters();
            std::io::Result::Ok((total, took, format!("{info}")))
        } else {
            loop {
                match stream.read(&mut buffer).await? {
                    0 => break,
                    count => total += count as u64,
                }
            }
            let took = (start.elapsed().as_secs_f64(), busy() - before);
            Ok((total, took, format!("{}", host.counters())))
        }
    });
    match result {
        Ok((total, (took, cpu), counters)) => {
            let what = format!(
                "{} {} {} path(s) {} checksum {}",
                match case.attach {
                    Attach::Tun => "tun   ",
                    Attach::Auto | Attach::Packet => "packet",
                },
                if case.sending { "sends   " } else { "receives" },
                case.paths,
                match (case.plain_cables, case.offload) {
                    (false, _) => "offload",
                    (true, true) => "bursts ",
                    (true, false) => "plain  ",
                },
                if case.checksum { "on" } else { "off" },
            );
            report(&what, total, took, cpu);
            if std::env::var_os("COUNTERS").is_some() {
                println!("{counters}");
            }
        }
        Err(e) => println!("failed: {e}"),
    }
    let _ = peer.join();
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|s| s.parse().ok()).unwrap_or(2);
    let only = arguments.next().unwrap_or_default();
    let Some(lab) = Lab::new(2) else { return };
    lab.address_ours(2);
    for (plain_cables, offload) in [(false, true), (true, true), (true, false)] {
        if plain_cables {
            for host in [&lab.kernel, &lab.ours] {
                host.run(|| {
                    for n in 1..=2 {
                        run(&format!("ethtool -K v{n} tso off gso off gro off tx off"));
                    }
                });
            }
        }
        for attach in [Attach::Packet, Attach::Tun] {
            for paths in [1, 2] {
                for checksum in [false, true] {
                    for sending in [true, false] {
                        let case = Case {
                            paths,
                            attach,
                            plain_cables,
                            offload,
                            checksum,
                            sending,
                        };
                        let name =
                            format!("{attach:?}{paths}{checksum}{sending}{plain_cables}{offload}");
                        if only.is_empty() || name.starts_with(&only) {
                            measure(&lab, case, seconds);
                        }
                    }
                }
            }
        }
    }
}
