//! `manypath proxy`, `check`, `reload` and `password` as a user has them, over the host's TCP on the loopback.

mod mass;
mod quotas;
mod saving;
mod stock;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long anything may take before it counts as never.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at what tells nobody when it changes.
const LOOK: Duration = Duration::from_millis(20);

fn manypath(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manypath"));
    // Its control sockets are nobody else's, nor are others found.
    command.env("XDG_RUNTIME_DIR", folder).current_dir(folder);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until a look finds something.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what} never came");
        std::thread::sleep(LOOK);
    }
}

/// A running proxy, its file, and where it listens.
struct Proxy {
    folder: TempDir,
    child: Child,
    /// What it says, until nobody listens.
    said: Option<BufReader<std::process::ChildStderr>>,
}

impl Proxy {
    fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("proxy.toml"), config).expect("written");
        Self::start_in(folder)
    }

    fn start_in(folder: TempDir) -> Self {
        // Who is not root stays who it is.
        Self::run(
            folder,
            &["proxy", "--user", "root", "--config", "proxy.toml"],
        )
    }

    fn run(folder: TempDir, args: &[&str]) -> Self {
        let mut child = manypath(folder.path())
            .args(args)
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let said = Some(BufReader::new(child.stderr.take().expect("piped")));
        Self {
            folder,
            child,
            said,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Reads what it says until a line has `what` and an address behind it.
    fn address_of(&mut self, what: &str) -> SocketAddr {
        let mut before = String::new();
        loop {
            let mut line = String::new();
            let said = self.said.as_mut().expect("somebody listens");
            let read = said.read_line(&mut line).expect("text");
            assert!(read > 0, "it ended, and said: {before}");
            if line.contains(what) {
                let last = line.trim().rsplit(' ').next().expect("a word");
                return last.parse().expect("an address");
            }
            before.push_str(&line);
        }
    }

    /// Lets it say what it wants, so that it never waits for a reader.
    fn listen_no_more(&mut self) {
        if let Some(said) = self.said.take() {
            std::thread::spawn(move || std::io::copy(&mut { said }, &mut std::io::sink()));
        }
    }

    fn reload(&self, config: &str) -> Output {
        fs::write(self.path("proxy.toml"), config).expect("written");
        manypath(self.folder.path())
            .arg("reload")
            .output()
            .expect("it runs")
    }

    /// Waits for lines of the access log.
    fn log(&self, name: &str, lines: usize) -> Vec<serde_json::Value> {
        wait_for("a line of the access log", || {
            let all = fs::read_to_string(self.path(name)).ok()?;
            let all: Vec<_> = all.lines().map(serde_json::from_str).collect();
            let all: Result<Vec<serde_json::Value>, _> = all.into_iter().collect();
            all.ok().filter(|all| all.len() >= lines)
        })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers every connection's bytes with the same bytes.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let addr = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut from = stream.try_clone().expect("a descriptor");
                let _ = std::io::copy(&mut from, &mut &stream);
                let _ = stream.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    addr
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("open");
    stream
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("bound").port()
}

/// One byte there and back.
fn ask(stream: &mut TcpStream) {
    stream.write_all(b"?").expect("written");
    stream.read_exact(&mut [0]).expect("answered");
}

fn get(addr: SocketAddr, path: &str) -> String {
    let mut stream = connect(addr);
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}

/// The value of a metric without labels.
fn metric(addr: SocketAddr, name: &str) -> Option<f64> {
    let all = get(addr, "/metrics");
    let line = all.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

fn fixed(name: &str, to: SocketAddr) -> String {
    format!(
        "[[listen]]\nname = \"{name}\"\non = \"127.0.0.1:0\"\nopening = \"fixed\"\nto = \"tcp:{to}\"\n"
    )
}

const METRICS: &str = "[metrics]\non = \"127.0.0.1:0\"\n";

#[test]
fn mistakes_of_a_file_are_told_with_line_column_and_the_nearest_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("proxy.toml");
    fs::write(&file, "[[listen]]\non = \"127.0.0.1:1\"\nopening = \"http\"\nusres = \"/u\"\n[limits]\nidle = 5\n").expect("written");
    for command in [
        &["check", "proxy.toml"][..],
        &["proxy", "--config", "proxy.toml"],
    ] {
        let output = manypath(folder.path())
            .args(command)
            .output()
            .expect("it runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        for line in [
            "proxy.toml:4:1: unknown key `usres` in [[listen]]: is `users` meant?",
            "proxy.toml:6:8: `idle` is a number, and wants a time as \"10s\", or \"off\"",
        ] {
            assert!(said.contains(line), "{said}");
        }
    }
    let output = manypath(folder.path())
        .args(["check", "none.toml"])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot read none.toml"));
}

#[test]
fn the_documented_file_has_every_key_with_its_default() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/proxy.toml");
    let folder = tempfile::tempdir().expect("a folder");
    let check = |file: &Path| -> serde_json::Value {
        let output = manypath(folder.path())
            .arg("check")
            .arg(file)
            .arg("--json")
            .output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let documented = check(&docs);
    let least = folder.path().join("least.toml");
    fs::write(
        &least,
        "[[listen]]\non = \"127.0.0.1:3128\"\nopening = \"http\"\n",
    )
    .expect("written");
    let defaults = check(&least);
    assert_eq!(documented["limits"], defaults["limits"]);
    assert_eq!(documented["log"], defaults["log"]);
    let text = fs::read_to_string(&docs).expect("text");
    for key in defaults["limits"].as_object().expect("a table").keys() {
        assert!(
            text.contains(&format!("\n{key}")),
            "{key} is not documented"
        );
    }
}

#[test]
fn a_reload_changes_what_is_served_and_keeps_what_is_carried() {
    let echo = echo();
    let first = fixed("first", echo) + METRICS;
    let mut proxy = Proxy::start(&first);
    let at = proxy.address_of("first listens on");
    let metrics = proxy.address_of("metrics on");
    let mut held = connect(at);
    ask(&mut held);
    // A second listener beside it.
    let both = fixed("first", echo) + "[limits]\nidle = \"1h\"\n" + METRICS;
    let output = proxy.reload(&both);
    assert!(output.status.success(), "{}", text(&output.stderr));
    ask(&mut held);
    ask(&mut connect(at));
    assert_eq!(
        metric(metrics, "manypath_config_last_reload_successful"),
        Some(1.0)
    );
    // What was sized for the old limits is made anew at the same place.
    let port = free_port();
    let at_port = |limit: u32| {
        let listen = fixed("first", echo).replace("127.0.0.1:0", &format!("127.0.0.1:{port}"));
        format!("{listen}[limits]\nconnections = {limit}\n{METRICS}")
    };
    let place = SocketAddr::from(([127, 0, 0, 1], port));
    assert!(proxy.reload(&at_port(100)).status.success());
    let mut sized = connect(place);
    ask(&mut sized);
    let output = proxy.reload(&at_port(200));
    assert!(output.status.success(), "{}", text(&output.stderr));
    ask(&mut connect(place));
    ask(&mut sized);
    // The first one goes: what it carries stays.
    let output = proxy.reload(&(fixed("second", echo) + METRICS));
    assert!(output.status.success(), "{}", text(&output.stderr));
    ask(&mut held);
    wait_for("a refusal", || {
        TcpStream::connect(at).is_err().then_some(())
    });
    ask(&mut held);
}

#[test]
fn a_file_that_breaks_at_a_reload_changes_nothing_and_is_told() {
    let echo = echo();
    let good = fixed("first", echo) + METRICS;
    let mut proxy = Proxy::start(&good);
    let at = proxy.address_of("first listens on");
    let metrics = proxy.address_of("metrics on");
    let mut held = connect(at);
    ask(&mut held);
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let taken_at = taken.local_addr().expect("bound");
    for (broken, told) in [
        (
            format!("{good}[limits]\nidel = \"1h\"\n"),
            "is `idle` meant?".to_owned(),
        ),
        (String::new(), "there is no [[listen]]".to_owned()),
        (
            good.replace("127.0.0.1:0\"\nopening", &format!("{taken_at}\"\nopening")),
            format!("listen on tcp:{taken_at}"),
        ),
    ] {
        let output = proxy.reload(&broken);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&told), "{said}");
        ask(&mut held);
        ask(&mut connect(at));
        assert_eq!(
            metric(metrics, "manypath_config_last_reload_successful"),
            Some(0.0)
        );
    }
    let failures = "manypath_config_reloads_total{result=\"failure\"}";
    assert_eq!(metric(metrics, failures), Some(3.0));
    assert!(proxy.reload(&good).status.success());
    assert_eq!(
        metric(metrics, "manypath_config_last_reload_successful"),
        Some(1.0)
    );
}

#[test]
fn a_hangup_is_a_reload() {
    let mut proxy = Proxy::start(&(fixed("first", echo()) + METRICS));
    let at = proxy.address_of("first listens on");
    let metrics = proxy.address_of("metrics on");
    let kill = Command::new("kill")
        .args(["-HUP", &proxy.child.id().to_string()])
        .status();
    assert!(kill.expect("it runs").success());
    let successes = "manypath_config_reloads_total{result=\"success\"}";
    wait_for("the reload", || {
        metric(metrics, successes).filter(|n| *n == 1.0)
    });
    ask(&mut connect(at));
}

#[test]
fn what_was_carried_is_logged_and_the_log_is_opened_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("access.log");
    let config = fixed("first", echo()) + &format!("[log]\naccess = \"{}\"\n", log.display());
    fs::write(folder.path().join("proxy.toml"), &config).expect("written");
    let mut proxy = Proxy::start_in(folder);
    let at = proxy.address_of("first listens on");
    let mut stream = connect(at);
    let from = stream.local_addr().expect("open");
    ask(&mut stream);
    drop(stream);
    let line = proxy.log("access.log", 1).remove(0);
    assert_eq!(line["client"], from.to_string());
    assert_eq!(
        (&line["listener"], &line["opening"]),
        (&"first".into(), &"fixed".into())
    );
    assert_eq!(
        (&line["bytes_forth"], &line["bytes_back"]),
        (&1.into(), &1.into())
    );
    assert!(
        line["seconds"]
            .as_f64()
            .is_some_and(|n| n < PATIENCE.as_secs_f64()),
        "{line}"
    );
    fs::rename(&log, proxy.path("access.log.1")).expect("moved");
    assert!(proxy.reload(&config).status.success());
    ask(&mut connect(at));
    assert_eq!(proxy.log("access.log", 1).len(), 1);
    assert_eq!(proxy.log("access.log.1", 1).len(), 1);
}

#[test]
fn metrics_are_clean_and_health_follows_the_listeners() {
    let class = "[[class]]\nname = \"all\"\nrate = { up = \"8mbit\" }\n";
    let mut proxy = Proxy::start(&(fixed("first", echo()) + METRICS + class));
    let at = proxy.address_of("first listens on");
    let metrics = proxy.address_of("metrics on");
    ask(&mut connect(at));
    let ended = "manypath_proxy_carried_total{";
    wait_for("the end of it", || {
        get(metrics, "/metrics").contains(ended).then_some(())
    });
    assert!(get(metrics, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(metrics, "/readyz").starts_with("HTTP/1.1 200"));
    let answer = get(metrics, "/metrics");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    let label = "manypath_proxy_connections_total{listener=\"first\"} 1";
    assert!(body.contains(label), "{body}");
    let limit = "manypath_limit_rate_bytes_per_second{of=\"class\",name=\"all/up\"} 1000000";
    assert!(body.contains(limit), "{body}");
    assert!(
        body.contains("manypath_limit_held_seconds_total{"),
        "{body}"
    );
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        eprintln!("skipped: there is no promtool (package prometheus)");
        return;
    };
    let mut stdin = promtool.stdin.take().expect("piped");
    stdin.write_all(body.as_bytes()).expect("read");
    drop(stdin);
    let output = promtool.wait_with_output().expect("it ends");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(
        output.status.success() && said.trim().is_empty(),
        "{said}\n{body}"
    );
}

#[test]
fn a_user_with_a_password_gets_through_and_no_credential_is_logged() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = |name: &str, password: &str| {
        let mut child = manypath(folder.path())
            .args(["password", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(password.as_bytes()).expect("read");
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success());
        text(&output.stdout)
    };
    let line = made("alice", "open-sesame\n");
    assert!(
        line.starts_with("alice:$argon2id$") && line.ends_with('\n'),
        "{line}"
    );
    let (users, log) = (
        folder.path().join("users"),
        folder.path().join("access.log"),
    );
    fs::write(&users, line).expect("written");
    let config = format!(
        "[[listen]]\non = \"127.0.0.1:0\"\nopening = \"http\"\noutside = \"tcp\"\nusers = \"{}\"\n\
         [[rule]]\nuser = \"alice\"\nto = \"127.0.0.0/8\"\nport = \"1-65535\"\nthen = \"allow\"\n\
         [log]\naccess = \"{}\"\n",
        users.display(),
        log.display()
    );
    fs::write(folder.path().join("proxy.toml"), config).expect("written");
    let mut proxy = Proxy::start_in(folder);
    let at = proxy.address_of("listens on");
    let echo = echo();
    let tunnel = |credentials: Option<&str>| {
        let mut stream = connect(at);
        let field = credentials.map(|c| format!("Proxy-Authorization: Basic {c}\r\n"));
        let field = field.unwrap_or_default();
        let head = format!("CONNECT {echo} HTTP/1.1\r\nHost: {echo}\r\n{field}\r\n");
        stream.write_all(head.as_bytes()).expect("written");
        let mut answer = BufReader::new(stream.try_clone().expect("a descriptor"));
        let mut status = String::new();
        answer.read_line(&mut status).expect("answered");
        if status.contains(" 200 ") {
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                answer.read_line(&mut line).expect("answered");
            }
            ask(&mut stream);
        }
        status
    };
    // alice:open-sesame, alice:xyzzy, and nothing.
    assert!(tunnel(Some("YWxpY2U6b3Blbi1zZXNhbWU=")).contains(" 200 "));
    assert!(tunnel(Some("YWxpY2U6eHl6enk=")).contains(" 407 "));
    assert!(tunnel(None).contains(" 407 "));
    let lines = proxy.log("access.log", 3);
    let carried = lines
        .iter()
        .find(|line| line["user"] == "alice")
        .expect("a line");
    assert_eq!(carried["target"], echo.to_string());
    let all = fs::read_to_string(&log).expect("text");
    for secret in ["sesame", "YWxp", "xyzzy"] {
        assert!(!all.contains(secret), "{all}");
    }
    assert!(
        all.contains("user_wrong") && all.contains("user_missing"),
        "{all}"
    );
}

/// A number of `/proc/PID/status`.
fn status(pid: u32, key: &str) -> u64 {
    let all = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = all.lines().find_map(|line| line.strip_prefix(key));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).expect("a number")
}

#[test]
fn idle_tunnels_cost_little_and_leave_nothing_behind() {
    // 10,000 of them are to fit into 150 MB.
    const MOST_EACH: u64 = 15_000;
    let _ = manypath_io::raise_file_limit();
    let files = manypath_io::free_files().map_or(1024, |files| files.most);
    let count = 4000.min(usize::try_from(files).expect("it fits") / 2 - 100);
    let backend = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let to = backend.local_addr().expect("bound");
    let config = "[[listen]]\non = \"127.0.0.1:0\"\nopening = \"http\"\noutside = \"tcp\"\n\
                  [[rule]]\nto = \"127.0.0.0/8\"\nport = \"1-65535\"\nthen = \"allow\"\n";
    let mut proxy = Proxy::start(config);
    let at = proxy.address_of("listens on");
    let pid = proxy.child.id();
    let open_files = || {
        fs::read_dir(format!("/proc/{pid}/fd"))
            .expect("it runs")
            .count()
    };
    let head = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    let open = || {
        let mut stream = connect(at);
        stream.write_all(head.as_bytes()).expect("written");
        let (served, _) = backend.accept().expect("connected");
        let mut answer = [0; 64];
        let n = stream.read(&mut answer).expect("answered");
        assert!(answer[..n].starts_with(b"HTTP/1.1 200"));
        (stream, served)
    };
    drop(open());
    let files_before = open_files();
    let before = status(pid, "VmRSS:");
    let held: Vec<_> = (0..count).map(|_| open()).collect();
    let each = (status(pid, "VmRSS:") - before) * 1024 / count as u64;
    assert!(each < MOST_EACH, "{each} bytes each");
    drop(held);
    wait_for("the end of all of them", || {
        (open_files() <= files_before).then_some(())
    });
}

#[test]
fn a_service_that_gave_up_root_reads_its_file_and_opens_its_log_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let logs = folder.path().join("logs");
    fs::create_dir(&logs).expect("a folder");
    // Whoever the service becomes reads the one and writes into the other.
    for (path, mode) in [(folder.path(), 0o755), (&logs, 0o777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    }
    let config = format!(
        "{}[metrics]\non = \"unix:{logs}/metrics.sock\"\n[log]\naccess = \"{logs}/access.log\"\n",
        fixed("first", echo()),
        logs = logs.display()
    );
    fs::write(folder.path().join("proxy.toml"), &config).expect("written");
    let mut proxy = Proxy::run(folder, &["proxy", "--config", "proxy.toml"]);
    let at = proxy.address_of("first listens on");
    ask(&mut connect(at));
    assert_eq!(proxy.log("logs/access.log", 1).len(), 1);
    fs::rename(logs.join("access.log"), logs.join("moved")).expect("moved");
    let output = proxy.reload(&config);
    assert!(output.status.success(), "{}", text(&output.stderr));
    ask(&mut connect(at));
    assert_eq!(proxy.log("logs/access.log", 1).len(), 1);
    UnixStream::connect(logs.join("metrics.sock")).expect("it listens");
}

#[test]
fn one_line_makes_an_http_and_a_socks5_proxy_that_keep_clients_from_this_host() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("access.log").display().to_string();
    let args = [
        "proxy",
        "--user",
        "root",
        "--outside",
        "tcp",
        "--access-log",
        &log,
    ];
    let args = [
        &args[..],
        &["--http", "127.0.0.1:0", "--socks5", "127.0.0.1:0"],
    ]
    .concat();
    let mut proxy = Proxy::run(folder, &args);
    let http = proxy.address_of("http 127.0.0.1:0 listens on");
    let socks5 = proxy.address_of("socks5 127.0.0.1:0 listens on");
    let echo = echo();
    assert!(get(http, &format!("http://{echo}/")).starts_with("HTTP/1.1 403 "));
    let mut stream = connect(socks5);
    // No password; CONNECT to an IPv4 address (RFC 1928 sections 3 and 4).
    stream.write_all(&[5, 1, 0]).expect("written");
    let mut method = [0; 2];
    stream.read_exact(&mut method).expect("answered");
    assert_eq!(method, [5, 0]);
    let [high, low] = echo.port().to_be_bytes();
    let request = [5, 1, 0, 1, 127, 0, 0, 1, high, low];
    stream.write_all(&request).expect("written");
    let mut reply = [0; 2];
    stream.read_exact(&mut reply).expect("answered");
    assert_eq!(reply, [5, 2], "not allowed by the ruleset");
    let lines = proxy.log("access.log", 2);
    assert!(
        lines.iter().all(|line| line["reason"] == "address"),
        "{lines:?}"
    );
}

#[test]
fn an_open_proxy_beyond_loopback_does_not_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = manypath(folder.path())
        .args(["proxy", "--http", "0.0.0.0:0", "--outside", "tcp"])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("say who may use it"));
}
