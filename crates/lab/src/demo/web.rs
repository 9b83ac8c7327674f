//! A web server on the kernel's Multipath TCP or on plain TCP: a stock one where there is one, else a small one of our own.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use super::{DemoError, await_listener};
use crate::netns::{NetNs, Process};

/// What the server's sockets speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// The kernel's Multipath TCP.
    Multipath,
    /// Plain TCP.
    Tcp,
}

impl Transport {
    const fn protocol(self) -> Protocol {
        match self {
            Self::Multipath => Protocol::MPTCP,
            Self::Tcp => Protocol::TCP,
        }
    }
}

/// A server at work; it ends with this guard.
#[derive(Debug)]
pub(crate) enum Web {
    /// A stock program, which is made to open Multipath TCP sockets from outside.
    Stock {
        name: &'static str,
        _process: Process,
    },
    /// Our own.
    Own { _server: OwnServer },
}

impl Web {
    /// Which server of Multipath TCP it is.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Stock { name, .. } => {
                format!("{name} under mptcpize, on the kernel's Multipath TCP")
            }
            Self::Own { .. } => {
                "a small server of our own on the kernel's Multipath TCP".to_owned()
            }
        }
    }
}

/// Serves the files of `folder` at a port of every address of the namespace.
pub(crate) fn start(
    ns: &NetNs,
    folder: &Path,
    port: u16,
    transport: Transport,
) -> Result<Web, DemoError> {
    for name in ["nginx", "python3"] {
        if let Some(process) = stock(ns, name, folder, port, transport)? {
            return Ok(Web::Stock {
                name,
                _process: process,
            });
        }
    }
    let failed = |source: io::Error| DemoError::Program {
        program: "the web server".to_owned(),
        message: format!("no socket: {source}"),
    };
    OwnServer::start(ns, folder, port, transport)
        .map(|server| Web::Own { _server: server })
        .map_err(failed)
}

/// A stock server, under `mptcpize` for Multipath TCP, or nothing when either is missing or does not start: the next one is tried
/// then.
fn stock(
    ns: &NetNs,
    name: &'static str,
    folder: &Path,
    port: u16,
    transport: Transport,
) -> Result<Option<Process>, DemoError> {
    let log = folder.join(format!("{name}.log"));
    let file = |source| DemoError::File {
        path: log.clone(),
        source,
    };
    let errors = std::fs::File::create(&log).map_err(file)?;
    let mut command = match transport {
        Transport::Multipath => {
            let mut command = Command::new("mptcpize");
            command.arg("run").arg(name);
            command
        }
        Transport::Tcp => Command::new(name),
    };
    match name {
        "nginx" => {
            let configuration = folder.join("nginx.conf");
            std::fs::write(&configuration, nginx_configuration(folder, port)).map_err(
                |source| DemoError::File {
                    path: configuration.clone(),
                    source,
                },
            )?;
            command
                .arg("-p")
                .arg(folder)
                .arg("-e")
                .arg("stderr")
                .arg("-c")
                .arg(configuration);
        }
        _ => {
            command
                .args(["-m", "http.server", "--bind", "0.0.0.0", "--directory"])
                .arg(folder)
                .arg(port.to_string());
        }
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors);
    let Ok(mut process) = ns.spawn(command) else {
        return Ok(None);
    };
    Ok(await_listener(ns, port, name, &mut process, &log)
        .is_ok()
        .then_some(process))
}

/// One process in the foreground that needs nothing outside its folder and may run as anybody.
fn nginx_configuration(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("  {kind}_temp_path {folder}/{kind};\n"))
        .collect();
    format!(
        "user root root;\ndaemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log stderr;\n\
         events {{ worker_connections 64; }}\n\
         http {{\n{temporary}  access_log off;\n  sendfile on;\n  default_type application/octet-stream;\n  \
         server {{ listen {port}; root {folder}; }}\n}}\n"
    )
}

/// A thread that answers every request for a file of one folder.
#[derive(Debug)]
pub(crate) struct OwnServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl OwnServer {
    fn start(ns: &NetNs, folder: &Path, port: u16, transport: Transport) -> io::Result<Self> {
        let listener = ns.run(move || -> io::Result<TcpListener> {
            let protocol = Some(transport.protocol());
            let socket = Socket::new(Domain::IPV4, Type::STREAM, protocol)?;
            socket.set_reuse_address(true)?;
            // The kernel serves joins to its other addresses only on a socket bound to all of them.
            socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
            socket.listen(16)?;
            Ok(socket.into())
        })?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, folder) = (Arc::clone(&stop), folder.to_owned());
        let thread = std::thread::Builder::new()
            .name("web-server".to_owned())
            .spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    match listener.accept() {
                        Ok((stream, _)) => {
                            let folder = folder.clone();
                            // A connection that breaks is the client's to report.
                            std::thread::spawn(move || answer(&stream, &folder));
                        }
                        Err(_) => std::thread::sleep(Duration::from_millis(5)),
                    }
                }
            })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The longest request read; more is not a request for one of our files.
const LONGEST_REQUEST: u64 = 16_384;

fn answer(stream: &TcpStream, folder: &Path) -> io::Result<()> {
    use io::Read;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut lines = BufReader::new(stream.take(LONGEST_REQUEST)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let mut out = stream;
    match wanted(&request, folder).and_then(|path| std::fs::File::open(path).ok()) {
        Some(mut file) => {
            let length = file.metadata()?.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            out.write_all(head.as_bytes())?;
            io::copy(&mut file, &mut out)?;
        }
        None => out.write_all(
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        )?,
    }
    out.flush()
}

/// The file that a request line asks for: a plain name in the folder, nothing above or below it.
fn wanted(request: &str, folder: &Path) -> Option<PathBuf> {
    let mut words = request.split(' ');
    let ("GET", Some(target)) = (words.next()?, words.next()) else {
        return None;
    };
    let name = target.strip_prefix('/')?;
    let plain = !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')
        && !name.starts_with('.');
    plain.then(|| folder.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_in_the_folder_are_served() {
        let folder = Path::new("/srv");
        assert_eq!(
            wanted("GET /file.bin HTTP/1.1", folder),
            Some(PathBuf::from("/srv/file.bin"))
        );
        for bad in [
            "GET /../etc/passwd HTTP/1.1",
            "GET / HTTP/1.1",
            "GET /.hidden HTTP/1.1",
            "POST /f HTTP/1.1",
            "",
            "GET",
        ] {
            assert_eq!(wanted(bad, folder), None, "{bad}");
        }
    }

    #[test]
    fn our_own_server_answers_over_a_socket_of_either_kind() {
        let Ok(ns) = NetNs::new("web-test") else {
            return;
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("f"), b"content").expect("writable");
        let Ok(_server) = OwnServer::start(&ns, folder.path(), 8080, Transport::Multipath) else {
            return;
        };
        assert!(ns.listens(8080));
        let ask = |line: &'static str| {
            ns.run(move || -> io::Result<String> {
                let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, 8080))?;
                stream.write_all(line.as_bytes())?;
                io::read_to_string(stream)
            })
        };
        let text = ask("GET /f HTTP/1.1\r\nHost: x\r\n\r\n").expect("answered");
        assert!(
            text.starts_with("HTTP/1.1 200") && text.ends_with("\r\n\r\ncontent"),
            "{text}"
        );
        assert!(
            ask("GET /g HTTP/1.1\r\n\r\n")
                .expect("answered")
                .starts_with("HTTP/1.1 404")
        );
    }
}
