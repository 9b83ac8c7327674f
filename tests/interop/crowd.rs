//! A crowd at the control socket of a real stack: a hundred controllers that want to hear everything, and some that behave badly,
//! beside many connections over a cable in memory. And one of another user.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use manypath_control::client::Client;
use manypath_control::engine::Engine;
use manypath_control::server::Server;
use manypath_control::wire::{Filter, Request};
use manypath_io::{Host, MpListener, MpStream};
use manypath_proxy::live::Live;
use manypath_tests::amount;
use manypath_tests::program::{binary, manypath, runtime_dir};
use rustix::thread::{Gid, Uid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, oneshot};

const CONTROLLERS: usize = 100;
/// Connections that are opened at one time.
const ABREAST: usize = 50;
/// A test that hangs ends.
const STUCK: Duration = Duration::from_secs(300);

/// Process ids that no process has: the socket's name is all that they are for.
fn unique() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    (1 << 30) + NEXT.fetch_add(1, Ordering::Relaxed)
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

fn block_on<T>(what: impl Future<Output = T>) -> T {
    let limited = async { tokio::time::timeout(STUCK, what).await };
    runtime().block_on(limited).expect("it does not hang")
}

/// A stack with a control socket, in a thread of its own, and what makes it go on.
struct Stack {
    socket: PathBuf,
    pid: u32,
    /// Opens all connections but the first.
    open: Option<oneshot::Sender<()>>,
    /// Hears when they are open.
    opened: mpsc::Receiver<()>,
    /// Closes them.
    close: Option<oneshot::Sender<()>>,
    /// Ends the process, as controllers see it.
    leave: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Stack {
    /// One connection is open when this returns.
    fn start(folder: &Path, count: usize) -> Self {
        let (ready, is_ready) = mpsc::channel();
        let (opens, opened) = mpsc::channel();
        let (open, may_open) = oneshot::channel();
        let (close, may_close) = oneshot::channel();
        let (leave, may_leave) = oneshot::channel();
        let (folder, pid) = (folder.to_owned(), unique());
        let thread = std::thread::spawn(move || {
            block_on(async {
                let (near, far) = Host::memory_pair().expect("a cable");
                let server =
                    Server::start_in(&folder, pid, "a crowd".into(), Live::new(near.clone()));
                let server = server.expect("a socket");
                let listener = MpListener::bind(&far, target()).expect("a listener");
                tokio::spawn(echo(listener));
                let first = talk(&near).await;
                ready.send(server.path().to_owned()).expect("it waits");
                may_open.await.expect("it lives");
                let mut streams = vec![first];
                streams.extend(many(&near, count - 1).await);
                opens.send(()).expect("it waits");
                may_close.await.expect("it lives");
                for mut stream in streams {
                    stream.shutdown().await.expect("it closes");
                    let rest = stream.read(&mut [0]).await.expect("it closes");
                    assert_eq!(rest, 0);
                }
                may_leave.await.expect("it lives");
            });
        });
        let socket = is_ready.recv().expect("it begins");
        Self {
            socket,
            pid,
            open: Some(open),
            opened,
            close: Some(close),
            leave: Some(leave),
            thread: Some(thread),
        }
    }

    fn open(&mut self) {
        let open = self.open.take().expect("once");
        open.send(()).expect("it waits");
    }

    fn wait_until_opened(&self) {
        self.opened.recv_timeout(STUCK).expect("all are opened");
    }

    fn close(&mut self) {
        let close = self.close.take().expect("once");
        close.send(()).expect("it waits");
    }

    fn end(&mut self) {
        let leave = self.leave.take().expect("once");
        leave.send(()).expect("it waits");
        let thread = self.thread.take().expect("once");
        thread.join().expect("every byte came back");
    }
}

fn target() -> std::net::SocketAddr {
    std::net::SocketAddr::from(([10, 0, 0, 2], 80))
}

async fn echo(listener: MpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut text = [0; 64];
            while let Ok(count @ 1..) = stream.read(&mut text).await {
                stream.write_all(&text[..count]).await?;
            }
            stream.shutdown().await
        });
    }
}

/// A connection over which something went both ways.
async fn talk(host: &Host) -> MpStream {
    let mut stream = MpStream::connect(host, target()).await.expect("it listens");
    stream.write_all(b"a crowd").await.expect("it is open");
    let mut got = [0; 7];
    stream.read_exact(&mut got).await.expect("an echo");
    assert_eq!(&got, b"a crowd");
    stream
}

async fn many(host: &Host, count: usize) -> Vec<MpStream> {
    let places = std::sync::Arc::new(Semaphore::new(ABREAST));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..count {
        let (host, places) = (host.clone(), std::sync::Arc::clone(&places));
        tasks.spawn(async move {
            let _place = places.acquire().await;
            talk(&host).await
        });
    }
    tasks.join_all().await
}

/// What one controller heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heard {
    created: usize,
    closed: usize,
    /// Events that were announced as lost.
    lost: u64,
}

/// Listens until so many connections have ended. An event that is missing without a word is an error.
async fn listen(mut client: Client, count: usize) -> Result<Heard, String> {
    let mut heard = Heard::default();
    let mut last = None;
    while heard.closed < count {
        let event = client.next_event().await.map_err(|e| e.to_string())?;
        let Some(event) = event else {
            return Err(format!("the session ended after {heard:?}"));
        };
        let expected = last.map(|last: u64| last + 1 + event.events.unwrap_or(0));
        if expected.is_some_and(|expected| expected != event.seq) {
            return Err(format!("{event:?} follows {last:?}"));
        }
        last = Some(event.seq);
        heard.lost += event.events.unwrap_or(0);
        match event.event.as_str() {
            "created" => heard.created += 1,
            "closed" => heard.closed += 1,
            _ => {}
        }
    }
    Ok(heard)
}

/// What decides about the oldest connection.
async fn policy_of_the_first(socket: &Path) -> String {
    let mut client = Client::connect(socket).await.expect("open");
    let all = client.list().await.expect("a list");
    all[0].path_manager.clone()
}

/// Wants everything and takes nothing.
async fn stuck(socket: &Path) -> tokio::net::UnixStream {
    let mut stream = tokio::net::UnixStream::connect(socket).await.expect("open");
    let text = "{\"request\":\"subscribe\",\"sample_ms\":10,\"with_sample\":true}\n";
    stream.write_all(text.as_bytes()).await.expect("room");
    stream
}

/// Says what nobody should say. That its session may end at once is part of it.
async fn hostile(socket: &Path) {
    let lines = [
        "{\"request\":\"dance\"}\n".to_owned(),
        "[".repeat(60_000) + "\n",
        "{\"request\":\"show\",\"connection\":\"-1.x\"}\n".to_owned(),
        "{\"request\":\"subflow_destroy\",\"connection\":\"1.1\",\"subflow\":4294967295}\n"
            .to_owned(),
        "{\"request\":\"list\"}\n".repeat(1000),
        "\u{0}\u{feff}\n".to_owned(),
        "x".repeat(1 << 20),
    ];
    for line in lines {
        let mut stream = tokio::net::UnixStream::connect(socket).await.expect("open");
        // It is hung up on in the middle of some.
        let _ = stream.write_all(line.as_bytes()).await;
    }
}

/// A controller beside the process that owns everything, killed without a word.
fn killed(pid: u32, meanwhile: impl FnOnce()) {
    let mut command = manypath(["ctl", "--pid", &pid.to_string(), "run", "fullmesh"]);
    let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("it starts");
    let mut said = BufReader::new(process.stderr.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it speaks");
    assert!(line.contains("decides until"), "{line}");
    meanwhile();
    process.kill().expect("it runs");
    process.wait().expect("its end");
}

/// A hundred controllers hear of each connection, in order and without a gap; one that is stuck, one that is hostile and one
/// that is killed while it owns everything change nothing about that, nor about the connections.
#[test]
fn a_crowd_of_controllers_hears_everything() {
    let count = amount("MANYPATH_CROWD", 500, 10_000);
    let count = usize::try_from(count).expect("a small number");
    // It may have to be built first, which is no part of what may take so long and not longer.
    binary();
    let mut stack = Stack::start(&runtime_dir().join("manypath"), count);
    let (socket, pid) = (stack.socket.clone(), stack.pid);
    let heard = block_on(async {
        let _stuck = stuck(&socket).await;
        let own = policy_of_the_first(&socket).await;
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..CONTROLLERS {
            let mut client = Client::connect(&socket).await.expect("open");
            client.subscribe(Filter::default()).await.expect("heard");
            all.spawn(listen(client, count));
        }
        let stack = tokio::task::spawn_blocking(move || {
            killed(pid, || stack.open());
            stack.wait_until_opened();
            stack
        });
        hostile(&socket).await;
        let mut stack = stack.await.expect("no panic");
        // What the killed one owned is decided again by what decided before.
        let mut client = Client::connect(&socket).await.expect("open");
        loop {
            let all = client.list().await.expect("a list");
            if all.iter().all(|conn| conn.path_manager == own) {
                assert_eq!(all.len(), count);
                break;
            }
        }
        stack.close();
        let heard = all.join_all().await;
        let end = tokio::task::spawn_blocking(move || stack.end());
        end.await.expect("no panic");
        heard
    });
    let whole = Heard {
        // The first was there before anybody listened.
        created: count - 1,
        closed: count,
        lost: 0,
    };
    for one in heard {
        assert_eq!(one, Ok(whole));
    }
}

/// What a stranger is told, if it gets so far.
#[derive(Debug)]
struct Answer {
    uid: u32,
    text: std::io::Result<String>,
}

/// Asks as another user, as a thread of ours that has become that user for good.
fn as_stranger(socket: &Path, lines: &'static str) -> Option<Answer> {
    // Nobody in particular, and neither the kernel's nor a distribution's `nobody`.
    const STRANGER: u32 = 54_321;
    let socket = socket.to_owned();
    let thread = std::thread::spawn(move || {
        let (uid, gid) = (Uid::from_raw(STRANGER), Gid::from_raw(STRANGER));
        rustix::thread::set_thread_groups(&[]).ok()?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).ok()?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).ok()?;
        let ask = || {
            let mut stream = UnixStream::connect(&socket)?;
            stream.set_read_timeout(Some(STUCK))?;
            // It may be hung up on before it has said everything.
            let _ = stream.write_all(lines.as_bytes());
            let mut text = String::new();
            match stream.read_to_string(&mut text) {
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(text),
                Err(error) => Err(error),
                Ok(_) => Ok(text),
            }
        };
        Some(Answer {
            uid: STRANGER,
            text: ask(),
        })
    });
    thread.join().expect("no panic")
}

/// Another user does not get to the socket; where an administrator has opened all folders, it is told that it may not.
#[test]
fn another_user_sees_and_touches_nothing() {
    const LINES: &str = "{\"request\":\"list\"}\n{\"request\":\"subscribe\"}\n{\"request\":\"claim\",\"force\":true}\n";
    let base = tempfile::tempdir().expect("a folder");
    let folder = base.path().join("manypath");
    let mut stack = Stack::start(&folder, 1);
    let socket = stack.socket.clone();
    let before = block_on(policy_of_the_first(&socket));
    match as_stranger(&socket, LINES) {
        None => eprintln!("skipped: only root can become another user"),
        Some(Answer { uid, text }) => {
            let error = text.expect_err("the folder is closed");
            assert_eq!(
                error.kind(),
                std::io::ErrorKind::PermissionDenied,
                "as {uid}: {error}"
            );
            for (path, mode) in [
                (base.path(), 0o755),
                (folder.as_path(), 0o755),
                (&socket, 0o777),
            ] {
                let mode = std::fs::Permissions::from_mode(mode);
                std::fs::set_permissions(path, mode).expect("they are ours");
            }
            let answer = as_stranger(&socket, LINES).expect("it could before");
            let text = answer.text.expect("a word");
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(text.contains("\"denied\""), "{text}");
        }
    }
    block_on(async {
        let mut client = Client::connect(&socket).await.expect("open");
        assert_eq!(policy_of_the_first(&socket).await, before);
        let reply = client.ask(Request::Claim {
            connection: None,
            force: false,
        });
        let reply = reply.await.expect("a reply");
        assert!(format!("{reply:?}").contains("Done"), "{reply:?}");
    });
    stack.open();
    stack.wait_until_opened();
    stack.close();
    stack.end();
}
