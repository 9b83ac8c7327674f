//! Two hosts in network namespaces, made by the test itself: the kernel's and ours, joined by Ethernet cables (veth).
//!
//! Namespaces belong to threads and vanish with them, so nothing is left behind however a test ends.

// Every test binary uses its own part.
#![allow(dead_code, unreachable_pub)]

use manypath_io::sys::namespace;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Runs a program that must succeed.
pub fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().expect("a program"))
        .args(words)
        .output()
        .unwrap_or_else(|e| panic!("{line}: {e}"));
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Has the kernel accept joins; false where it does not answer: a crash in its Multipath TCP leaves generic netlink locked, out of reach of signals.
fn permit_joins() -> bool {
    static STUCK: AtomicBool = AtomicBool::new(false);
    if STUCK.load(Ordering::Relaxed) {
        return false;
    }
    let (done, answer) = mpsc::channel();
    let words = "mptcp limits set subflows 8 add_addr_accepted 8".split(' ');
    let mut command = Command::new("ip");
    // Nobody may wait for the end of an output that such a child keeps open.
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.args(words).stderr(Stdio::null());
    let mut child = command.spawn().expect("iproute2");
    std::thread::spawn(move || {
        let _ = done.send(child.wait());
    });
    match answer.recv_timeout(Duration::from_secs(10)) {
        Ok(status) => {
            assert!(status.is_ok_and(|status| status.success()), "the limits");
            true
        }
        Err(_) => {
            STUCK.store(true, Ordering::Relaxed);
            false
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread in a namespace of its own that does what it is told.
pub struct Host {
    jobs: mpsc::Sender<Job>,
    pub tid: i32,
}

impl Host {
    /// `None`, with the reason printed, where namespaces are forbidden.
    pub fn new() -> Option<Host> {
        let (jobs, todo) = mpsc::channel::<Job>();
        let (made, result) = mpsc::channel();
        std::thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            let _ = made.send(namespace::unshare_network().map(|()| tid));
            while let Ok(job) = todo.recv() {
                job();
            }
        });
        match result.recv().expect("the thread answers") {
            Ok(tid) => {
                let host = Host { jobs, tid };
                host.run(|| run("ip link set lo up"));
                Some(host)
            }
            Err(e) => {
                eprintln!("skipped: no network namespace to be had ({e})");
                None
            }
        }
    }

    /// Does something in the namespace and waits for it.
    pub fn run<R: Send + 'static>(&self, f: impl FnOnce() -> R + Send + 'static) -> R {
        let (done, result) = mpsc::channel();
        let job = Box::new(move || {
            let _ = done.send(f());
        });
        self.jobs.send(job).expect("the thread lives");
        result
            .recv_timeout(Duration::from_secs(90))
            .expect("the job ends in time, without a panic")
    }

    /// Starts something in the namespace on a thread of its own.
    pub fn start<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> std::thread::JoinHandle<R> {
        self.run(move || std::thread::spawn(f))
    }

    /// Runs a future in the namespace.
    pub fn block_on<F, R>(&self, f: impl FnOnce() -> F + Send + 'static) -> R
    where
        F: Future<Output = R>,
        R: Send + 'static,
    {
        self.run(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime")
                .block_on(async {
                    tokio::time::timeout(Duration::from_secs(60), f())
                        .await
                        .expect("it ends in time")
                })
        })
    }
}

/// Two hosts and `cables` cables: `vN` at both ends, 10.77.N.1 and fd77:N::1 on the kernel's side (N from 1).
pub struct Lab {
    pub kernel: Host,
    pub ours: Host,
}

impl Lab {
    pub fn new(cables: u8) -> Option<Lab> {
        let (kernel, ours) = (Host::new()?, Host::new()?);
        let tid = ours.tid;
        let permits = kernel.run(move || {
            for n in 1..=cables {
                run(&format!(
                    "ip link add v{n} type veth peer name v{n} netns {tid}"
                ));
                run(&format!("ip link set v{n} up"));
                run(&format!("ip addr add 10.77.{n}.1/24 dev v{n}"));
                run(&format!("ip addr add fd77:{n}::1/64 dev v{n} nodad"));
            }
            permit_joins()
        });
        if !permits {
            eprintln!("skipped: the kernel's generic netlink does not answer, see dmesg");
            return None;
        }
        ours.run(move || {
            for n in 1..=cables {
                run(&format!("ip link set v{n} up"));
            }
        });
        Some(Lab { kernel, ours })
    }

    /// Gives our host the addresses 10.77.N.2 and fd77:N::2 of its own.
    pub fn address_ours(&self, cables: u8) {
        self.ours.run(move || {
            for n in 1..=cables {
                run(&format!("ip addr add 10.77.{n}.2/24 dev v{n}"));
                run(&format!("ip addr add fd77:{n}::2/64 dev v{n} nodad"));
            }
        });
    }
}

/// Whether TUN devices can be made at all; says why not.
pub fn tun_is_allowed() -> bool {
    match std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
    {
        Ok(_) => true,
        Err(e) => {
            eprintln!("skipped: /dev/net/tun cannot be opened ({e})");
            false
        }
    }
}

/// A listener of the kernel's Multipath TCP.
pub fn kernel_mptcp_listener(addr: SocketAddr) -> io::Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketType, bind, ipproto, listen, socket, sockopt};
    let family = if addr.is_ipv6() {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let socket: OwnedFd = socket(family, SocketType::STREAM, Some(ipproto::MPTCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // Where the kernel's default is BBR, its pacing would be measured instead.
    let _ = sockopt::set_tcp_congestion(&socket, "cubic");
    bind(&socket, &addr)?;
    listen(&socket, 128)?;
    Ok(socket.into())
}

/// A connection of the kernel's Multipath TCP.
pub fn kernel_mptcp_connect(addr: SocketAddr) -> io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, connect, ipproto, socket};
    let family = if addr.is_ipv6() {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let socket: OwnedFd = socket(family, SocketType::STREAM, Some(ipproto::MPTCP))?;
    connect(&socket, &addr)?;
    Ok(socket.into())
}

/// Serves `count` connections one after the other: reads everything, then sends it all back.
pub fn kernel_echo(listener: TcpListener, count: usize) -> io::Result<()> {
    for _ in 0..count {
        let (mut stream, _) = listener.accept()?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all)?;
        stream.write_all(&all)?;
        stream.shutdown(std::net::Shutdown::Write)?;
    }
    Ok(())
}

/// Bytes in which every position is recognisable.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// A literal address.
pub fn addr(text: &str) -> SocketAddr {
    text.parse().expect("a literal address")
}
