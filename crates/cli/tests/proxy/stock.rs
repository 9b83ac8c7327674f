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
