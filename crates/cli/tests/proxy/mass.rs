//! Many connections through one process. What it holds is read from its metrics, from procfs and from the kernel's table of
//! sockets. Those that take long are ignored by default;
//! `cargo test --release -p manypath-cli --test proxy mass:: -- --ignored --test-threads 1` runs them.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

/// Threads of clients.
const CLIENTS: usize = 32;

/// How a client and a server end a connection, beginning with who does it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The client's half, then the server's.
    ClientFirst,
    /// The server's half, then the client's.
    ServerFirst,
    /// Both halves without waiting for each other.
    Both,
    /// The client goes with an answer unread, which is a reset.
    ClientBreaks,
    /// The server does so.
    ServerBreaks,
    /// The client's half; the server stays silent, until the proxy ends it.
    ServerSilent,
    /// The server's half; the client stays silent.
    ClientSilent,
}

impl Order {
    /// Those that wait for the proxy's limit are few.
    fn nth(n: usize) -> Self {
        match n % 200 {
            0 => Self::ServerSilent,
            100 => Self::ClientSilent,
            n => match n % 5 {
                0 => Self::ClientFirst,
                1 => Self::ServerFirst,
                2 => Self::Both,
                3 => Self::ClientBreaks,
                _ => Self::ServerBreaks,
            },
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::ClientFirst => b'c',
            Self::ServerFirst => b's',
            Self::Both => b'b',
            Self::ClientBreaks => b'x',
            Self::ServerBreaks => b'y',
            Self::ServerSilent => b'm',
            Self::ClientSilent => b'n',
        }
    }
}

fn end_of(stream: &mut TcpStream) -> std::io::Result<()> {
    match stream.read(&mut [0; 16])? {
        0 => Ok(()),
        _ => Err(std::io::Error::other("more than was sent")),
    }
}

/// A server that ends each connection as its first byte says, which it sends back.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let addr = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || served(&mut stream));
        }
    });
    addr
}

fn served(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    if byte == *b"y" {
        // What comes behind is not read.
        stream.peek(&mut [0])?;
        return Ok(());
    }
    stream.write_all(&byte)?;
    match byte[0] {
        b's' | b'b' | b'n' => stream.shutdown(std::net::Shutdown::Write)?,
        // What the proxy does is what ends it: an end, and then a reset.
        b'm' => {
            end_of(stream)?;
            while stream.write(&[0]).is_ok() {
                std::thread::sleep(Duration::from_millis(250));
            }
            return Ok(());
        }
        _ => {}
    }
    end_of(stream)
}

/// One connection from its request to its end.
fn carried(mut stream: TcpStream, order: Order) -> std::io::Result<()> {
    let half = |stream: &TcpStream| stream.shutdown(std::net::Shutdown::Write);
    stream.write_all(&[order.byte()])?;
    if order == Order::ServerBreaks {
        let _ = stream.write_all(b"!");
        // A reset, or an end where the proxy had it before.
        let _ = end_of(&mut stream);
        return Ok(());
    }
    if order == Order::ClientBreaks {
        stream.peek(&mut [0])?;
        return Ok(());
    }
    stream.read_exact(&mut [0])?;
    match order {
        Order::ServerFirst => {
            end_of(&mut stream)?;
            half(&stream)
        }
        // The proxy's limit is what ends it, which a reset tells.
        Order::ServerSilent => {
            half(&stream)?;
            let _ = end_of(&mut stream);
            Ok(())
        }
        Order::ClientSilent => {
            end_of(&mut stream)?;
            let limit = Instant::now() + PATIENCE;
            while stream.take_error()?.is_none() && Instant::now() < limit {
                std::thread::sleep(LOOK);
            }
            Ok(())
        }
        _ => {
            half(&stream)?;
            end_of(&mut stream)
        }
    }
}

/// A proxy with a listener of each kind.
struct Mass {
    proxy: Proxy,
    http: SocketAddr,
    socks5: SocketAddr,
    fixed: SocketAddr,
    metrics: SocketAddr,
    to: SocketAddr,
}

impl Mass {
    fn start(to: SocketAddr) -> Self {
        let listen = |opening: &str| {
            format!(
                "[[listen]]\non = \"127.0.0.1:0\"\nopening = \"{opening}\"\noutside = \"tcp\"\n"
            )
        };
        let rule = "[[rule]]\nto = \"127.0.0.0/8\"\nport = \"1-65535\"\nthen = \"allow\"\n";
        let limits = "[limits]\nhalf_closed = \"1s\"\nconnections = 12000\n";
        let config =
            listen("http") + &listen("socks5") + &fixed("fixed", to) + rule + limits + METRICS;
        let mut proxy = Proxy::start(&config);
        let http = proxy.address_of("http 127.0.0.1:0 listens on");
        let socks5 = proxy.address_of("socks5 127.0.0.1:0 listens on");
        let fixed = proxy.address_of("fixed listens on");
        let metrics = proxy.address_of("metrics on");
        proxy.listen_no_more();
        Self {
            proxy,
            http,
            socks5,
            fixed,
            metrics,
            to,
        }
    }

    /// A connection to the server by one of the openings.
    fn open(&self, n: usize) -> std::io::Result<TcpStream> {
        let at = [self.http, self.socks5, self.fixed][n % 3];
        let mut stream = TcpStream::connect(at)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        match n % 3 {
            0 => {
                let words = format!("CONNECT {} HTTP/1.1\r\n\r\n", self.to);
                stream.write_all(words.as_bytes())?;
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte)?;
                    head.push(byte[0]);
                }
                assert!(head.starts_with(b"HTTP/1.1 200"), "{}", text(&head));
            }
            1 => {
                let SocketAddr::V4(to) = self.to else {
                    unreachable!("loopback of IPv4");
                };
                let words = [&[5, 1, 0, 5, 1, 0, 1], &to.ip().octets()[..]];
                let port = to.port().to_be_bytes();
                stream.write_all(&[words.concat(), port.to_vec()].concat())?;
                let mut reply = [0; 12];
                stream.read_exact(&mut reply)?;
                assert_eq!(reply[3], 0);
            }
            _ => {}
        }
        Ok(stream)
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.proxy.child.id())).expect("it runs")
    }

    fn files(&self) -> usize {
        let folder = fs::read_dir(format!("/proc/{}/fd", self.proxy.child.id()));
        folder.expect("it runs").count()
    }

    /// Resident memory, in kB.
    fn memory(&self) -> u64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let word = line.and_then(|line| line.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).expect("procfs")
    }

    /// Connections that it counts as open.
    fn open_connections(&self) -> f64 {
        let all = get(self.metrics, "/metrics");
        let open = all
            .lines()
            .filter(|line| line.starts_with("manypath_proxy_connections_open{"));
        let count = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
        open.filter_map(count).sum()
    }

    /// The kernel's sockets at the proxy's own ports that are neither listeners nor in TIME-WAIT, which belongs to nobody.
    fn sockets(&self) -> usize {
        let table = fs::read_to_string("/proc/net/tcp").expect("procfs");
        let ports = [self.http, self.socks5, self.fixed].map(|at| format!(":{:04X}", at.port()));
        let is_left = |line: &&str| {
            let mut words = line.split_whitespace();
            let (local, state) = (words.nth(1).unwrap_or(""), words.nth(1).unwrap_or(""));
            ports.iter().any(|port| local.ends_with(port)) && !matches!(state, "0A" | "06")
        };
        table.lines().filter(is_left).count()
    }

    /// Waits until nothing is left of what was carried.
    fn settles(&self, files: usize) {
        wait_for("the end of all connections", || {
            // One descriptor is that of the answer.
            let over = self.open_connections() == 0.0 && self.sockets() == 0;
            (over && self.files() <= files).then_some(())
        });
    }

    /// Carries so many connections, some at one time.
    fn carry(&self, count: usize, order: impl Fn(usize) -> Order + Sync) {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        if n >= count {
                            return;
                        }
                        let order = order(n);
                        let result = self.open(n).and_then(|stream| carried(stream, order));
                        result.unwrap_or_else(|error| panic!("{n}, {order:?}: {error}"));
                    }
                });
            }
        });
    }
}

fn every_order_leaves_nothing(count: usize) {
    let mass = Mass::start(server());
    // What it opens once.
    mass.carry(CLIENTS * 3, |_| Order::ClientFirst);
    mass.settles(usize::MAX);
    let files = mass.files();
    mass.carry(count, Order::nth);
    mass.settles(files);
}

#[test]
fn every_order_of_half_close_leaves_no_socket() {
    every_order_leaves_nothing(1000);
}

#[test]
#[ignore = "ten thousand connections"]
fn every_order_of_half_close_ten_thousand_times_leaves_no_socket() {
    every_order_leaves_nothing(10_000);
}

/// Counts tables, descriptors and memory before and after: `more` connections that end in order.
fn clean_closes_leave_nothing(more: usize) {
    let mass = Mass::start(server());
    mass.carry(1000, |_| Order::ClientFirst);
    mass.settles(usize::MAX);
    let (files, memory) = (mass.files(), mass.memory());
    mass.carry(more, |_| Order::ClientFirst);
    mass.settles(files);
    let grown = mass.memory().saturating_sub(memory);
    assert!(grown < 4096, "{grown} kB more after {more} connections");
    let all = get(mass.metrics, "/metrics");
    let finished = all
        .lines()
        .filter(|line| line.contains("carried_total{") && line.contains("result=\"finished\""));
    let count = |line: &str| line.rsplit(' ').next()?.parse::<usize>().ok();
    let finished: usize = finished.filter_map(count).sum();
    assert_eq!(finished, 1000 + more);
}

#[test]
fn clean_closes_leave_every_table_empty() {
    clean_closes_leave_nothing(2000);
}

#[test]
#[ignore = "a hundred thousand connections"]
fn a_hundred_thousand_clean_closes_leave_every_table_empty() {
    clean_closes_leave_nothing(100_000);
}

/// So many connections, or as many as the limit of open files lets this process and the proxy have two descriptors each for.
fn with_files_for(count: usize) -> usize {
    const SPARE: u64 = 200;
    let wanted = 2 * count as u64 + SPARE;
    let limit = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= wanted);
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit
            .maximum
            .filter(|_| enough(limit.maximum))
            .or(Some(wanted)),
    };
    if enough(limit.current) || setrlimit(Resource::Nofile, raised).is_ok() {
        return count;
    }
    let files = limit.maximum.unwrap_or(wanted);
    let hard = Rlimit {
        current: Some(files),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, hard).expect("what is allowed");
    let fit = usize::try_from(files.saturating_sub(SPARE) / 2).expect("few");
    eprintln!("{fit} connections, not {count}: `ulimit -n` does not allow {wanted} descriptors");
    fit
}

fn idle_connections_fit(count: usize, most: u64) {
    let count = with_files_for(count);
    // It keeps what it accepts.
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let to = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        listener
            .incoming()
            .map_while(Result::ok)
            .collect::<Vec<_>>()
    });
    let mass = Mass::start(to);
    let (files, empty) = (mass.files(), mass.memory());
    let open: Vec<TcpStream> = (0..count).map(|n| mass.open(n).expect("carried")).collect();
    wait_for("all connections", || {
        (mass.open_connections() >= count as f64).then_some(())
    });
    let full = mass.memory();
    eprintln!("{count} idle connections: {full} kB resident, {empty} kB before");
    assert!(full < most, "{full} kB");
    drop(open);
    // The server keeps its own ends, half-closed, until the limit.
    mass.settles(files + 1);
}

#[test]
fn idle_connections_take_little_memory() {
    // A build without optimisation begins with more, and each task has twice the size.
    idle_connections_fit(1000, 80 * 1024);
}

#[test]
#[ignore = "ten thousand connections, for a release build"]
fn ten_thousand_idle_connections_take_less_than_150_mb() {
    idle_connections_fit(10_000, 150_000_000 / 1024);
}

fn new_connections_never_fail(each_second: u32, seconds: u32) {
    let mass = Mass::start(server());
    mass.carry(1000, |_| Order::ClientFirst);
    mass.settles(usize::MAX);
    let (files, memory) = (mass.files(), mass.memory());
    let began = Instant::now();
    let (next, late) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let count = (each_second * seconds) as usize;
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return;
                    }
                    let due = Duration::from_secs(1) * u32::try_from(n).expect("few") / each_second;
                    let now = began.elapsed();
                    std::thread::sleep(due.saturating_sub(now));
                    if now > due + Duration::from_secs(1) {
                        late.fetch_add(1, Ordering::Relaxed);
                    }
                    let result = mass.open(n).and_then(|s| carried(s, Order::ClientFirst));
                    result.unwrap_or_else(|error| panic!("connection {n}: {error}"));
                }
            });
        }
    });
    let took = began.elapsed();
    let late = late.into_inner();
    eprintln!("{count} connections in {took:?}, {late} of them more than a second late");
    mass.settles(files);
    let grown = mass.memory().saturating_sub(memory);
    assert!(grown < 8192, "{grown} kB more");
    assert!(late * 100 < count, "{late} of {count} were late");
}

#[test]
fn new_connections_at_a_steady_rate_never_fail() {
    new_connections_never_fail(200, 3);
}

#[test]
#[ignore = "a minute, for a release build"]
fn a_thousand_new_connections_a_second_for_a_minute_never_fail() {
    new_connections_never_fail(1000, 60);
}
