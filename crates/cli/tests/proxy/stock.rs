//! Programs as they come from their packages, through the proxy.

use super::*;

/// Serves the files of a folder by HTTP/1.1, one request a connection, as any static server does.
fn files_of(folder: &Path) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let addr = listener.local_addr().expect("bound");
    let folder = folder.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let folder = folder.clone();
            std::thread::spawn(move || serve(stream, &folder));
        }
    });
    addr
}

fn serve(mut stream: TcpStream, folder: &Path) -> std::io::Result<()> {
    let mut head = BufReader::new(stream.try_clone()?);
    let mut request = String::new();
    head.read_line(&mut request)?;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if head.read_line(&mut line)? == 0 {
            return Ok(());
        }
    }
    let path = request.split(' ').nth(1).unwrap_or("/");
    let path = path.split('?').next().unwrap_or(path);
    let (status, body) = match fs::read(folder.join(path.trim_start_matches('/'))) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)
}

/// An HTTP and a SOCKS5 listener that let programs of this host reach this host.
fn both() -> (Proxy, SocketAddr, SocketAddr) {
    let listen = |opening: &str| {
        format!("[[listen]]\non = \"127.0.0.1:0\"\nopening = \"{opening}\"\noutside = \"tcp\"\n")
    };
    let rule = "[[rule]]\nto = \"127.0.0.0/8\"\nport = \"1-65535\"\nthen = \"allow\"\n";
    let config = listen("http") + &listen("socks5") + rule;
    let mut proxy = Proxy::start(&config);
    let http = proxy.address_of("http 127.0.0.1:0 listens on");
    let socks5 = proxy.address_of("socks5 127.0.0.1:0 listens on");
    (proxy, http, socks5)
}

fn is_there(program: &str) -> bool {
    let there = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if there.is_err() {
        eprintln!("skipped: there is no {program}");
    }
    there.is_ok()
}

#[test]
fn curl_has_the_same_bytes_by_connect_by_a_plain_request_and_by_socks5() {
    if !is_there("curl") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut state = 1u64;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(300_000)
    .collect();
    fs::write(folder.path().join("file"), &bytes).expect("written");
    let server = files_of(folder.path());
    let (_proxy, http, socks5) = both();
    let url = format!("http://{server}/file");
    let ways = [
        vec!["-p".to_owned(), "-x".to_owned(), format!("http://{http}")],
        vec!["-x".to_owned(), format!("http://{http}")],
        vec!["-x".to_owned(), format!("socks5h://{socks5}")],
    ];
    for way in &ways {
        for round in 0..50 {
            let output = Command::new("curl")
                .args(["-sS", "--fail", "--noproxy", ""])
                .args(way)
                .arg(&url)
                .output()
                .expect("it runs");
            assert!(output.status.success(), "{way:?}: {}", text(&output.stderr));
            assert!(output.stdout == bytes, "{way:?}, round {round}");
        }
    }
}

#[test]
fn git_clones_through_http_and_through_socks5() {
    if !is_there("git") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@example.net"])
            .args(args)
            .current_dir(folder.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("no_proxy", "")
            .output()
            .expect("it runs");
        assert!(
            output.status.success(),
            "{args:?}: {}",
            text(&output.stderr)
        );
    };
    git(&["init", "--quiet", "work"]);
    fs::write(folder.path().join("work/file"), "what is in it\n").expect("written");
    git(&["-C", "work", "add", "file"]);
    git(&["-C", "work", "commit", "--quiet", "-m", "one"]);
    git(&["clone", "--quiet", "--bare", "work", "bare.git"]);
    git(&["-C", "bare.git", "update-server-info"]);
    let server = files_of(folder.path());
    let (_proxy, http, socks5) = both();
    for (i, proxy) in [format!("http://{http}"), format!("socks5h://{socks5}")]
        .iter()
        .enumerate()
    {
        let (setting, into) = (format!("http.proxy={proxy}"), format!("clone{i}"));
        let url = format!("http://{server}/bare.git");
        git(&["-c", &setting, "clone", "--quiet", &url, &into]);
        let file = fs::read_to_string(folder.path().join(into).join("file"));
        assert_eq!(file.expect("cloned"), "what is in it\n");
    }
}

/// A program that is ended with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // What it started itself ends with it.
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.0.wait();
    }
}

/// Where a program of administrators is, whose folder may not be searched.
fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let file = std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file());
    if file.is_none() {
        eprintln!("skipped: there is no {program}");
    }
    file
}

/// An SSH server of the user who runs the test, in a folder with keys for both ends; `None` where there is none.
fn sshd(folder: &Path) -> Option<(Server, u16)> {
    let (sshd, _) = (found("sshd")?, found("ssh-keygen")?);
    for key in ["host", "user"] {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f", key])
            .current_dir(folder)
            .status();
        assert!(made.expect("it runs").success());
    }
    fs::copy(folder.join("user.pub"), folder.join("authorized")).expect("copied");
    let (port, here) = (free_port(), folder.display());
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {here}/host\nAuthorizedKeysFile {here}/authorized\nPidFile none\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
    );
    fs::write(folder.join("sshd_config"), config).expect("written");
    let started = Command::new(sshd)
        .args(["-D", "-e", "-f"])
        .arg(folder.join("sshd_config"))
        .stderr(fs::File::create(folder.join("log")).expect("created"))
        .spawn();
    let mut server = Server(started.expect("it runs"));
    let up = wait_for("sshd", || {
        let ended = server.0.try_wait().expect("a child").is_some();
        let up = TcpStream::connect(("127.0.0.1", port)).is_ok();
        (ended || up).then_some(up)
    });
    if !up {
        let why = fs::read_to_string(folder.join("log")).unwrap_or_default();
        eprintln!("skipped: sshd does not start here: {why}");
    }
    up.then_some((server, port))
}

#[test]
fn ssh_goes_through_connect_and_through_socks5() {
    if found("ssh").is_none() || found("nc").is_none() {
        return;
    }
    let help = Command::new("nc").arg("-h").output().expect("it runs");
    if !text(&[help.stdout, help.stderr].concat()).contains("-X proto") {
        eprintln!("skipped: this nc knows no proxies");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let Some((_server, port)) = sshd(folder.path()) else {
        return;
    };
    let (_proxy, http, socks5) = both();
    let bytes = vec![b'x'; 1_000_000];
    fs::write(folder.path().join("bytes"), &bytes).expect("written");
    for (kind, proxy) in [("connect", http), ("5", socks5)] {
        let output = Command::new("ssh")
            .args(["-F", "none", "-i", "user", "-p", &port.to_string()])
            .args(["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"])
            .args(["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"])
            .arg("-o")
            .arg(format!("ProxyCommand=nc -X {kind} -x {proxy} %h %p"))
            .args(["127.0.0.1", "cat"])
            .current_dir(folder.path())
            .stdin(fs::File::open(folder.path().join("bytes")).expect("written"))
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{kind}: {}", text(&output.stderr));
        assert!(output.stdout == bytes, "{kind}");
    }
}

/// nginx with one file of 64 KiB.
fn nginx(folder: &Path) -> Option<(Server, u16)> {
    let nginx = found("nginx")?;
    fs::write(folder.join("file"), vec![b'x'; 65_536]).expect("written");
    let (port, here) = (free_port(), folder.display());
    let config = format!(
        "daemon off; master_process off; pid {here}/pid; error_log {here}/error; events {{}}\n\
         http {{ access_log off; client_body_temp_path {here}/a; proxy_temp_path {here}/b; fastcgi_temp_path {here}/c;\n\
         uwsgi_temp_path {here}/d; scgi_temp_path {here}/e; keepalive_requests 1000000;\n\
         server {{ listen 127.0.0.1:{port}; root {here}; }} }}\n"
    );
    fs::write(folder.join("nginx.conf"), config).expect("written");
    let started = Command::new(nginx)
        .arg("-c")
        .arg(folder.join("nginx.conf"))
        .stderr(Stdio::null())
        .spawn();
    let server = Server(started.expect("it runs"));
    wait_for("nginx", || TcpStream::connect(("127.0.0.1", port)).ok());
    Some((server, port))
}

#[test]
fn wrk_asks_nginx_through_the_proxy_without_a_failure() {
    if found("wrk").is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let Some((_server, port)) = nginx(folder.path()) else {
        return;
    };
    let (_proxy, http, _) = both();
    let script = format!(
        "request = function() return wrk.format('GET', 'http://127.0.0.1:{port}/file') end\n\
         done = function(summary) local e = summary.errors\n\
         print('failures', e.connect + e.read + e.write + e.status + e.timeout, 'requests', summary.requests) end\n"
    );
    fs::write(folder.path().join("wrk.lua"), script).expect("written");
    let output = Command::new("wrk")
        .args(["-t", "1", "-c", "50", "-d", "2s", "-s"])
        .arg(folder.path().join("wrk.lua"))
        .arg(format!("http://{http}/"))
        .output()
        .expect("it runs");
    let told = text(&output.stdout);
    assert!(output.status.success(), "{told}{}", text(&output.stderr));
    let line = told.lines().find(|line| line.starts_with("failures"));
    let words: Vec<&str> = line.expect("a summary").split_whitespace().collect();
    assert_eq!(words[1], "0", "{told}");
    assert_ne!(words[3], "0", "{told}");
}
