//! The control socket as its clients see it: text lines, subscriptions, ownership, slow and hostile readers.

use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use manypath_control::client::{Client, collect_in};
use manypath_control::engine::{Engine, Next};
use manypath_control::place;
use manypath_control::remote::{Runner, view};
use manypath_control::report::{ConnReport, MemoryReport, Overview, PathReport};
use manypath_control::server::{Backend, News, Server};
use manypath_control::wire::{DecisionReport, EventReport, Filter, Reply, Request, Wanted};
use manypath_stack::api::{
    Command, Done, Event, EventKind, IfaceId, PathManager, StackError, SubflowOrigin,
};
use manypath_stack::ids::{ConnId, SubflowId};
use manypath_stack::pm::controllers::View;
use manypath_tcp::time::Instant;
use manypath_wire::ids::AddrId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// Connections that do as they are told and remember it.
#[derive(Clone)]
struct Fake(Arc<Inner>);

struct Inner {
    policies: Mutex<BTreeMap<ConnId, PathManager>>,
    done: Mutex<Vec<String>>,
    /// What a report says about each connection.
    report: Mutex<ConnReport>,
    events: mpsc::Sender<Event>,
    receiver: Mutex<Option<mpsc::Receiver<Event>>>,
    told: mpsc::Sender<EventReport>,
    limits: Mutex<Option<mpsc::Receiver<EventReport>>>,
    lost: Arc<AtomicU64>,
    /// What clients have left unread, look by look, again and again.
    unread: Mutex<VecDeque<usize>>,
    paths: Mutex<Vec<PathReport>>,
}

impl Fake {
    fn new(names: &[&str]) -> Self {
        Self::with(names, ConnReport::default())
    }

    fn with(names: &[&str], report: ConnReport) -> Self {
        let (events, receiver) = mpsc::channel(1 << 17);
        let (told, limits) = mpsc::channel(16);
        let policies = names.iter().map(|name| (id(name), PathManager::FullMesh));
        Self(Arc::new(Inner {
            policies: Mutex::new(policies.collect()),
            done: Mutex::default(),
            report: Mutex::new(report),
            events,
            receiver: Mutex::new(Some(receiver)),
            told,
            limits: Mutex::new(Some(limits)),
            lost: Arc::default(),
            unread: Mutex::default(),
            paths: Mutex::default(),
        }))
    }

    fn happen(&self, conn: Option<&str>, kind: EventKind) {
        let event = Event {
            at: Instant::from_secs(1),
            conn: conn.map(id),
            kind,
        };
        self.0.events.try_send(event).expect("room");
    }

    fn done(&self) -> Vec<String> {
        self.0.done.lock().expect("lock").clone()
    }

    fn report(&self, id: ConnId) -> ConnReport {
        ConnReport {
            id: id.to_string(),
            ..self.0.report.lock().expect("lock").clone()
        }
    }
}

fn id(name: &str) -> ConnId {
    name.parse().expect("a name")
}

impl Backend for Fake {
    fn overview(&self) -> Overview {
        Overview {
            paths: self.0.paths.lock().expect("lock").clone(),
            memory: MemoryReport { used: 5, limit: 10 },
            counters: [("syn_limit".to_owned(), 3)].into(),
            ..Overview::default()
        }
    }

    fn connections(&self) -> Vec<ConnReport> {
        let policies = self.0.policies.lock().expect("lock");
        policies.keys().map(|id| self.report(*id)).collect()
    }

    fn connection(&self, id: ConnId) -> Option<ConnReport> {
        self.policy(id).map(|_| self.report(id))
    }

    fn view(&self, id: ConnId) -> Option<View> {
        self.connection(id).map(|conn| view(&conn))
    }

    fn decisions(&self, id: ConnId) -> Option<Vec<DecisionReport>> {
        self.policy(id).map(|policy| {
            vec![DecisionReport {
                decision: policy.to_string(),
                ..DecisionReport::default()
            }]
        })
    }

    fn policy(&self, id: ConnId) -> Option<PathManager> {
        self.0.policies.lock().expect("lock").get(&id).copied()
    }

    fn command(&self, id: ConnId, command: Command) -> Result<Done, StackError> {
        let mut policies = self.0.policies.lock().expect("lock");
        let policy = policies.get_mut(&id).ok_or(StackError::NoSuchHandle)?;
        self.0
            .done
            .lock()
            .expect("lock")
            .push(format!("{id}: {command}"));
        match command {
            Command::SetPolicy(new) => *policy = new,
            Command::Create(_) => return Ok(Done::Subflow(SubflowId(9))),
            _ => {}
        }
        Ok(Done::Done)
    }

    fn news(&self) -> News {
        let events = self.0.receiver.lock().expect("lock").take();
        News {
            events: events.expect("one server"),
            limits: self
                .0
                .limits
                .lock()
                .expect("lock")
                .take()
                .expect("one server"),
            lost: Arc::clone(&self.0.lost),
        }
    }

    fn now_us(&self) -> u64 {
        2_000_000
    }

    fn unread(&self, _: BorrowedFd<'_>) -> Option<usize> {
        let mut looks = self.0.unread.lock().expect("lock");
        let turn = usize::from(!looks.is_empty());
        looks.rotate_left(turn);
        looks.back().copied()
    }
}

struct Bench {
    fake: Fake,
    server: Server,
    folder: PathBuf,
    _base: tempfile::TempDir,
}

fn bench(fake: Fake) -> Bench {
    let base = tempfile::tempdir().expect("folder");
    let folder = base.path().join("manypath");
    let server = Server::start_in(&folder, 77, "a title".into(), fake.clone()).expect("server");
    Bench {
        fake,
        server,
        folder,
        _base: base,
    }
}

impl Bench {
    async fn client(&self) -> Client {
        Client::connect(self.server.path()).await.expect("session")
    }
}

fn show(connection: &str) -> Request {
    Request::Show {
        connection: connection.into(),
    }
}

fn create(connection: &str) -> Request {
    Request::SubflowCreate {
        connection: connection.into(),
        wanted: Wanted::default(),
    }
}

fn claim(connection: Option<&str>) -> Request {
    Request::Claim {
        connection: connection.map(Into::into),
        force: false,
    }
}

fn code(reply: &Reply) -> &str {
    match reply {
        Reply::Error { code, .. } => code,
        Reply::Done { .. } => "done",
        other => panic!("{other:?}"),
    }
}

/// Ends of a subflow that nobody looks at.
fn ends() -> manypath_wire::ids::FourTuple {
    let end = std::net::SocketAddr::from(([10, 0, 0, 1], 5_000));
    manypath_wire::ids::FourTuple::new(end, end)
}

const UP: EventKind = EventKind::JoinsAllowed;

#[tokio::test]
async fn processes_are_listed_and_stale_sockets_removed() {
    let bench = bench(Fake::new(&["1.1", "2.1"]));
    let stale = place::socket(&bench.folder, 78);
    drop(std::os::unix::net::UnixListener::bind(&stale).expect("socket"));
    assert!(stale.exists());
    let found = collect_in(std::slice::from_ref(&bench.folder)).await;
    assert!(found.silent.is_empty());
    assert_eq!(found.processes.len(), 1);
    assert_eq!(found.processes[0].title, "a title");
    assert_eq!(found.processes[0].connections.len(), 2);
    assert!(!stale.exists());
    let path = bench.server.path().to_path_buf();
    drop(bench.server);
    assert!(!path.exists());
}

/// One that refuses is left over: whoever looks for processes removes it.
#[tokio::test]
async fn a_process_that_starts_never_refuses() {
    let bench = bench(Fake::new(&["1.1"]));
    let (path, done) = (
        place::socket(&bench.folder, 100),
        Arc::new(AtomicBool::new(false)),
    );
    let told = Arc::clone(&done);
    let looks = tokio::task::spawn_blocking(move || {
        let refuses = |error: std::io::Error| error.kind() == ErrorKind::ConnectionRefused;
        let connect = || std::os::unix::net::UnixStream::connect(&path).is_err_and(refuses);
        std::iter::repeat_with(connect)
            .take_while(|_| !told.load(Ordering::Relaxed))
            .filter(|refused| *refused)
            .count()
    });
    // They live until all have begun: one that ends may refuse.
    let mut servers = Vec::new();
    for _ in 0..200 {
        let fake = Fake::new(&["1.1"]);
        let server = Server::start_in(&bench.folder, 100, String::new(), fake);
        servers.push(server.expect("it starts"));
    }
    done.store(true, Ordering::Relaxed);
    // A connection that waits in a full backlog ends when the runtime drops the listener, and does not count.
    drop(servers);
    assert_eq!(looks.await.expect("it looked"), 0);
}

/// A socket at which somebody listens and nobody answers.
fn silent(folder: &std::path::Path, pid: u32) -> std::os::unix::net::UnixListener {
    std::os::unix::net::UnixListener::bind(place::socket(folder, pid)).expect("socket")
}

#[tokio::test]
async fn unresponsive_processes_cost_one_second_together() {
    let bench = bench(Fake::new(&["1.1"]));
    let _silent: Vec<_> = (100..150).map(|pid| silent(&bench.folder, pid)).collect();
    let begun = std::time::Instant::now();
    let found = collect_in(std::slice::from_ref(&bench.folder)).await;
    let took = begun.elapsed();
    assert_eq!((found.processes.len(), found.silent.len()), (1, 50));
    // One after the other they would have taken fifty.
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test]
async fn a_reply_that_grows_beyond_all_bounds_is_given_up() {
    let bench = bench(Fake::new(&["1.1"]));
    let listener = silent(&bench.folder, 100);
    let liar = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = listener.accept().expect("asked");
        let head = br#"{"id":1,"reply":"process","process":{"connections":["#;
        // Small when it is written, and too much for the memory of the reader when it is read.
        let chunk = b"{},".repeat(100_000);
        let mut sent = stream.write_all(head);
        for _ in 0..40 {
            sent = sent.and_then(|()| stream.write_all(&chunk));
        }
        let _ = sent.and_then(|()| stream.write_all(b"{}]}}\n"));
    });
    let found = collect_in(std::slice::from_ref(&bench.folder)).await;
    liar.join().expect("it has told its lie");
    assert_eq!(found.processes.len(), 1, "the others are seen all the same");
    let (pid, error) = found.silent.first().expect("it is said");
    assert_eq!((*pid, error.kind()), (100, ErrorKind::InvalidData));
}

#[tokio::test]
async fn a_link_in_the_folder_is_not_followed_and_said() {
    let bench = bench(Fake::new(&["1.1"]));
    let link = place::socket(&bench.folder, 100);
    std::os::unix::fs::symlink(bench.server.path(), &link).expect("link");
    let found = collect_in(std::slice::from_ref(&bench.folder)).await;
    assert_eq!(found.processes.len(), 1);
    let (pid, error) = found.silent.first().expect("it is said");
    assert_eq!(*pid, 100);
    assert!(error.to_string().contains("symbolic link"), "{error}");
}

#[tokio::test]
async fn half_lines_and_idle_sessions_do_not_block_others() {
    let bench = bench(Fake::new(&["1.1"]));
    let mut held = Vec::new();
    for _ in 0..400 {
        let mut stream = UnixStream::connect(bench.server.path()).await.expect("in");
        // Those that find no place are told so and ended.
        let _ = stream.write_all(b"{\"requ").await;
        held.push(stream);
    }
    let begun = std::time::Instant::now();
    let mut refused = 0;
    loop {
        let found = collect_in(std::slice::from_ref(&bench.folder)).await;
        if found.processes.len() == 1 {
            break;
        }
        refused += 1;
        assert_eq!(found.silent.len(), 1, "not without a word");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}, refused {refused}");
    // Whoever did not come to the end of a line is gone.
    let mut rest = Vec::new();
    let end = tokio::time::timeout(Duration::from_secs(8), held[0].read_to_end(&mut rest)).await;
    assert!(end.is_ok(), "the first still holds its place");
}

#[tokio::test]
async fn with_all_places_taken_one_may_still_ask() {
    let bench = bench(Fake::new(&["1.1"]));
    let mut held = Vec::new();
    for _ in 0..224 {
        let mut client = bench.client().await;
        client.subscribe(Filter::default()).await.expect("done");
        held.push(client);
    }
    let mut late = bench.client().await;
    let reply = late.ask(Request::Subscribe(Filter::default())).await;
    assert_eq!(code(&reply.expect("reply")), "limit");
    let reply = late.ask(show("1.1")).await.expect("reply");
    assert!(matches!(reply, Reply::Connection { .. }), "{reply:?}");
    drop(held.pop());
    // It takes a moment until the place is known to be free.
    let mut freed = false;
    for _ in 0..100 {
        let mut next = bench.client().await;
        freed = next.subscribe(Filter::default()).await.is_ok();
        if freed {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(freed, "a place that was given up is not given again");
}

/// Two hundred readers that never read, each with events of its own, and a connection that has much to tell.
#[tokio::test]
async fn what_waits_for_readers_that_do_not_read_is_bounded_and_counted() {
    let big = ConnReport {
        scheduler: "x".repeat(100_000),
        ..ConnReport::default()
    };
    let bench = bench(Fake::with(&["1.1"], big));
    let mut slow = bench.client().await;
    let filter = Filter {
        with_sample: true,
        ..Filter::default()
    };
    slow.subscribe(filter).await.expect("done");
    let count = 400;
    for _ in 0..count {
        bench.fake.happen(Some("1.1"), UP);
    }
    // A reader that is not slow has heard all of them when the last one is told.
    let mut watcher = bench.client().await;
    while bench.fake.0.events.capacity() < bench.fake.0.events.max_capacity() {
        tokio::task::yield_now().await;
    }
    watcher.ask(show("1.1")).await.expect("reply");
    let (mut heard, mut lost) = (0, 0);
    while heard + lost < count {
        let event = slow.next_event().await.expect("line").expect("open");
        match event.event.as_str() {
            "established" => heard += 1,
            "lost" => lost += event.events.expect("events were lost"),
            other => panic!("{other}"),
        }
    }
    assert_eq!(heard + lost, count, "each is told or counted");
    // 16 MB and what the sockets hold, of 40.
    assert!((100..250).contains(&heard), "{heard} were kept");
}

#[tokio::test]
async fn paths_memory_and_counters_are_told() {
    let fake = Fake::new(&[]);
    let path = |iface: &str, missing: Option<&str>| PathReport {
        iface: iface.into(),
        up: missing.is_none(),
        missing: missing.map(str::to_owned),
        ..PathReport::default()
    };
    let paths = vec![path("eth0", None), path("wlan0", Some("it is down"))];
    *fake.0.paths.lock().expect("lock") = paths;
    let bench = bench(fake);
    let found = collect_in(std::slice::from_ref(&bench.folder)).await;
    let process = &found.processes[0];
    assert_eq!((process.memory.used, process.memory.limit), (5, 10));
    assert_eq!(process.counters["syn_limit"], 3);
    let shown: Vec<_> = process
        .paths
        .iter()
        .map(|p| (p.iface.as_str(), p.up))
        .collect();
    assert_eq!(shown, [("eth0", true), ("wlan0", false)]);
    assert!(process.paths[1].missing.is_some());
    // What is gone is none: a process tells what its stack has or wants now.
    *bench.fake.0.paths.lock().expect("lock") = vec![path("eth0", None)];
    let found = collect_in(std::slice::from_ref(&bench.folder)).await;
    assert_eq!(found.processes[0].paths.len(), 1);
}

#[tokio::test]
async fn a_client_that_knows_nothing_but_lines_can_do_everything() {
    let bench = bench(Fake::new(&["1.1"]));
    let mut stream = UnixStream::connect(bench.server.path())
        .await
        .expect("connected");
    let lines = concat!(
        r#"{"id":1,"request":"hello"}"#,
        "\n",
        r#"{"id":2,"request":"subflow_create","connection":"1.1","local":"10.1.0.1","backup":true}"#,
        "\n",
        r#"{"id":3,"request":"subflow_destroy","connection":"1.1","subflow":4,"reset":true}"#,
        "\n",
        r#"{"id":4,"request":"set_policy","connection":"1.1","policy":"refresh:subflows=3"}"#,
        "\n",
        r#"{"id":5,"request":"set_limits","connection":"1.1","subflows":3}"#,
        "\n",
        r#"{"id":6,"request":"announce","connection":"1.1","address":"10.1.0.1"}"#,
        "\n",
        r#"{"id":7,"request":"show","connection":"9.9"}"#,
        "\n",
        "nonsense\n",
    );
    stream.write_all(lines.as_bytes()).await.expect("written");
    let no_text = b"{\"id\":9,\"request\":\"\xff\"}\n{\"id\":10,\"request\":7}\n";
    stream.write_all(no_text).await.expect("written");
    stream.shutdown().await.expect("half closed");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("all replies");
    let replies: Vec<&str> = text.lines().collect();
    assert_eq!(
        replies[0],
        format!(
            r#"{{"id":1,"reply":"hello","version":1,"pid":{},"title":"a title"}}"#,
            std::process::id()
        )
    );
    assert_eq!(replies[1], r#"{"id":2,"reply":"done","subflow":9}"#);
    assert_eq!(
        replies[2..6],
        [3, 4, 5, 6].map(|id| format!(r#"{{"id":{id},"reply":"done"}}"#))
    );
    assert!(
        replies[6].contains(r#""code":"not_found""#),
        "{}",
        replies[6]
    );
    assert!(replies[7].contains(r#""code":"invalid""#), "{}", replies[7]);
    assert!(replies[8].contains(r#""code":"invalid""#), "{}", replies[8]);
    assert!(
        replies[9].starts_with(r#"{"id":10,"reply":"error""#),
        "{}",
        replies[9]
    );
    assert_eq!(replies.len(), 10);
    let done = [
        "1.1: create 10.1.0.1 -> * as backup",
        "1.1: reset subflow 4",
        "1.1: let refresh:subflows=3,every=2500ms decide",
        "1.1: limit the subflows to 3",
        "1.1: announce 10.1.0.1",
    ];
    assert_eq!(bench.fake.done(), done);
}

#[tokio::test]
async fn an_endless_line_ends_the_session() {
    let bench = bench(Fake::new(&[]));
    let mut stream = UnixStream::connect(bench.server.path())
        .await
        .expect("connected");
    let long = vec![b'x'; usize::try_from(manypath_control::wire::MAX_REQUEST).expect("small")];
    stream.write_all(&long).await.expect("written");
    let mut rest = String::new();
    stream
        .read_to_string(&mut rest)
        .await
        .expect("closed by the server");
    assert!(rest.contains("longer than 65536 bytes"), "{rest}");
}

#[tokio::test]
async fn a_subscription_to_what_never_comes_is_refused() {
    let bench = bench(Fake::new(&["1.1"]));
    let mut client = bench.client().await;
    let filter = Filter::of(["sub_establised"]);
    let reply = client.ask(Request::Subscribe(filter)).await.expect("reply");
    let Reply::Error { code, message } = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(code, "invalid");
    assert!(message.contains("'sub_establised'") && message.contains("sub_established"));
}

#[tokio::test]
async fn subscribers_hear_what_they_asked_for_in_order() {
    let bench = bench(Fake::new(&["1.1", "2.1"]));
    let mut all = bench.client().await;
    let mut some = bench.client().await;
    let _silent = bench.client().await;
    let subscribe = |filter| Request::Subscribe(filter);
    all.ask(subscribe(Filter::default())).await.expect("reply");
    let filter = Filter {
        events: vec!["established".into(), "new_local_addr".into()],
        connection: Some("2.1".into()),
        sample_ms: None,
        with_sample: false,
        with_view: false,
    };
    some.ask(subscribe(filter)).await.expect("reply");
    let addr = "10.1.0.1".parse().expect("address");
    let iface = manypath_stack::api::IfaceId(0);
    let timeout = EventKind::Timeout {
        subflow: SubflowId(0),
        tuple: ends(),
        rto: manypath_tcp::time::Duration::from_millis(400),
        backoffs: 1,
    };
    bench.fake.happen(Some("1.1"), UP);
    bench.fake.happen(Some("2.1"), timeout);
    bench.fake.happen(Some("2.1"), EventKind::Readable);
    bench.fake.happen(Some("2.1"), UP);
    bench.fake.happen(
        None,
        EventKind::LocalUp {
            iface,
            addr,
            backup: false,
        },
    );
    let mut heard = Vec::new();
    for _ in 0..4 {
        let event = all.next_event().await.expect("lines").expect("open");
        heard.push((event.seq, event.event, event.connection));
    }
    let (one, two) = (Some("1.1".to_owned()), Some("2.1".to_owned()));
    let expected = [
        (1, "established".to_owned(), one),
        (2, "timeout".to_owned(), two.clone()),
        (3, "established".to_owned(), two),
        (4, "new_local_addr".to_owned(), None),
    ];
    assert_eq!(heard, expected);
    for seq in [3, 4] {
        let event = some.next_event().await.expect("lines").expect("open");
        assert_eq!(event.seq, seq);
    }
    // Events do not get between a request and its reply.
    bench.fake.happen(Some("1.1"), UP);
    let reply = all.ask(show("1.1")).await.expect("reply");
    assert!(matches!(reply, Reply::Connection { .. }));
    assert_eq!(all.next_event().await.expect("line").expect("open").seq, 5);
}

#[tokio::test]
async fn one_owner_commands_and_a_killed_one_leaves_no_trace() {
    let bench = bench(Fake::new(&["1.1", "2.1"]));
    let mut owner = bench.client().await;
    let mut other = bench.client().await;
    let policy = |name| bench.fake.policy(id(name));
    let claimed = owner.ask(claim(Some("1.1"))).await.expect("reply");
    assert_eq!(code(&claimed), "done");
    assert_eq!(policy("1.1"), Some(PathManager::Userspace));
    assert_eq!(
        code(&owner.ask(create("1.1")).await.expect("reply")),
        "done"
    );
    // Looking is free, commanding is not, and what nobody owns is anybody's.
    assert!(matches!(
        other.ask(show("1.1")).await,
        Ok(Reply::Connection { .. })
    ));
    assert_eq!(
        code(&other.ask(create("1.1")).await.expect("reply")),
        "owned"
    );
    assert_eq!(
        code(&other.ask(claim(Some("1.1"))).await.expect("reply")),
        "owned"
    );
    assert_eq!(
        code(&other.ask(create("2.1")).await.expect("reply")),
        "done"
    );
    // The rest goes to whoever claims everything; connections that begin later as well.
    assert_eq!(code(&other.ask(claim(None)).await.expect("reply")), "done");
    assert_eq!(
        code(&owner.ask(create("2.1")).await.expect("reply")),
        "owned"
    );
    bench
        .fake
        .0
        .policies
        .lock()
        .expect("lock")
        .insert(id("3.1"), PathManager::Ndiffports(2));
    other
        .ask(Request::Subscribe(Filter::default()))
        .await
        .expect("reply");
    let tuple = manypath_wire::ids::FourTuple::new(
        "10.0.0.1:5000".parse().expect("address"),
        "192.0.2.1:80".parse().expect("address"),
    );
    let role = manypath_stack::api::Role::Initiator;
    bench.fake.happen(
        Some("3.1"),
        EventKind::Created {
            role,
            tuple,
            token: None,
        },
    );
    other.next_event().await.expect("line").expect("open");
    assert_eq!(
        code(&owner.ask(create("3.1")).await.expect("reply")),
        "owned"
    );
    // Gone without a word: the policies come back, and who claimed the rest gets what is free now.
    drop(other);
    while policy("2.1") != Some(PathManager::FullMesh) {
        tokio::task::yield_now().await;
    }
    assert_eq!(policy("3.1"), Some(PathManager::Ndiffports(2)));
    assert_eq!(
        code(&owner.ask(create("2.1")).await.expect("reply")),
        "done"
    );
}

#[tokio::test]
async fn what_one_gives_up_goes_to_whoever_claims_the_rest() {
    let bench = bench(Fake::new(&["1.1"]));
    let (mut owner, mut heir, mut other) = (
        bench.client().await,
        bench.client().await,
        bench.client().await,
    );
    let release = || Request::Release {
        connection: Some("1.1".into()),
    };
    owner.ask(claim(Some("1.1"))).await.expect("reply");
    heir.ask(claim(None)).await.expect("reply");
    owner.ask(release()).await.expect("reply");
    let reply = other.ask(create("1.1")).await.expect("reply");
    assert_eq!(code(&reply), "owned");
    assert_eq!(bench.fake.policy(id("1.1")), Some(PathManager::Userspace));
    // The heir itself may give it up.
    heir.ask(release()).await.expect("reply");
    let reply = other.ask(create("1.1")).await.expect("reply");
    assert_eq!(code(&reply), "done");
    assert_eq!(bench.fake.policy(id("1.1")), Some(PathManager::FullMesh));
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_reads_nothing_any_more_owns_nothing_any_more() {
    let bench = bench(Fake::new(&["1.1"]));
    let (mut stuck, mut watcher) = (bench.client().await, bench.client().await);
    let all = || Request::Subscribe(Filter::default());
    for client in [&mut stuck, &mut watcher] {
        client.ask(all()).await.expect("reply");
    }
    stuck.ask(claim(Some("1.1"))).await.expect("reply");
    bench.fake.0.unread.lock().expect("lock").push_back(500);
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(bench.fake.policy(id("1.1")), Some(PathManager::Userspace));
    wait_for(|| bench.fake.policy(id("1.1")) == Some(PathManager::FullMesh)).await;
    assert_eq!(stuck.next_event().await.expect("in order"), None);
    // Who owns nothing holds nobody up.
    bench.fake.happen(Some("1.1"), UP);
    let heard = watcher.next_event().await.expect("in order");
    assert_eq!(heard.expect("open").event, "established");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_reads_slowly_stays_one() {
    let bench = bench(Fake::new(&["1.1"]));
    let mut owner = bench.client().await;
    owner.ask(claim(None)).await.expect("reply");
    // It falls behind for a while, catches up a little, and falls behind again.
    let looks = [100, 200, 300, 400, 500, 600, 700, 800, 700];
    *bench.fake.0.unread.lock().expect("lock") = looks.into();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(bench.fake.policy(id("1.1")), Some(PathManager::Userspace));
    let reply = owner.ask(create("1.1")).await.expect("reply");
    assert_eq!(code(&reply), "done");
}

#[tokio::test]
async fn by_force_a_connection_changes_its_owner_which_is_named() {
    let bench = bench(Fake::new(&["1.1", "2.1"]));
    let (mut owner, mut other) = (bench.client().await, bench.client().await);
    let by_force = |connection: Option<&str>| Request::Claim {
        connection: connection.map(Into::into),
        force: true,
    };
    owner.ask(claim(None)).await.expect("reply");
    let told = Reply::Done {
        subflow: None,
        address_id: None,
        owned_by_others: Some(2),
    };
    assert_eq!(other.ask(claim(None)).await.expect("reply"), told);
    let Reply::Error { message, .. } = other.ask(create("1.1")).await.expect("reply") else {
        panic!("another one owns it");
    };
    let who = format!("process {}", std::process::id());
    assert!(message.contains(&who), "{message}");
    let taken = other.ask(by_force(Some("1.1"))).await.expect("reply");
    assert_eq!(code(&taken), "done");
    // A policy that the new owner chooses decides also when it is gone, unless somebody claims the rest.
    let chosen = Request::SetPolicy {
        connection: "1.1".into(),
        policy: "ndiffports=3".into(),
    };
    owner
        .ask(Request::Release { connection: None })
        .await
        .expect("reply");
    assert_eq!(code(&other.ask(chosen).await.expect("reply")), "done");
    drop(other);
    wait_for(|| bench.fake.policy(id("2.1")) == Some(PathManager::FullMesh)).await;
    assert_eq!(
        bench.fake.policy(id("1.1")),
        Some(PathManager::Ndiffports(3))
    );
}

#[tokio::test]
async fn waiting_for_events_of_an_absent_connection_ends_at_once() {
    let bench = bench(Fake::new(&["1.1"]));
    let mut client = bench.client().await;
    let of = |connection: &str| {
        Request::Subscribe(Filter {
            connection: Some(connection.into()),
            ..Filter::default()
        })
    };
    let reply = client.ask(of("9.9")).await.expect("reply");
    assert_eq!(code(&reply), "not_found");
    let reply = client.ask(of("1.1")).await.expect("reply");
    assert_eq!(code(&reply), "done");
}

#[tokio::test]
async fn a_slow_reader_loses_samples_and_no_event_and_is_told() {
    let big = ConnReport {
        scheduler: "x".repeat(20_000),
        ..ConnReport::default()
    };
    let bench = bench(Fake::with(&["1.1", "2.1", "3.1", "4.1"], big));
    let mut slow = bench.client().await;
    let filter = Filter {
        sample_ms: Some(10),
        with_sample: false,
        with_view: false,
        ..Filter::default()
    };
    slow.ask(Request::Subscribe(filter)).await.expect("reply");
    // More than the sockets and the queue hold, in samples; a reader that reads shows how far it has come.
    let mut watcher = bench.client().await;
    let sampled = Filter {
        events: vec!["sample".into()],
        connection: Some("1.1".into()),
        sample_ms: Some(10),
        with_sample: false,
        with_view: false,
    };
    watcher
        .ask(Request::Subscribe(sampled))
        .await
        .expect("reply");
    for n in 0..60 {
        watcher.next_event().await.expect("line").expect("open");
        if n % 2 == 0 {
            bench.fake.happen(Some("1.1"), UP);
        }
    }
    let (mut events, mut lost) = (0, 0);
    while events < 30 || lost == 0 {
        let event: EventReport = slow.next_event().await.expect("line").expect("open");
        match event.event.as_str() {
            "established" => events += 1,
            "lost" => lost += event.samples.expect("samples were lost, and no events"),
            _ => {}
        }
    }
    assert_eq!(events, 30);
}

#[tokio::test]
async fn events_that_a_process_could_not_keep_are_announced() {
    let bench = bench(Fake::new(&["1.1"]));
    let mut client = bench.client().await;
    client
        .ask(Request::Subscribe(Filter::default()))
        .await
        .expect("reply");
    bench.fake.0.lost.store(7, Ordering::Relaxed);
    bench.fake.happen(Some("1.1"), UP);
    assert_eq!(
        client
            .next_event()
            .await
            .expect("line")
            .expect("open")
            .event,
        "established"
    );
    let lost = client.next_event().await.expect("line").expect("open");
    assert_eq!((lost.event.as_str(), lost.events), ("lost", Some(7)));
}

#[tokio::test]
async fn ten_thousand_connections_and_a_hundred_controllers() {
    let names: Vec<String> = (0..10_000).map(|n| format!("{n}.1")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bench = bench(Fake::new(&names));
    let mut readers = Vec::new();
    // One that never reads, and one that goes away at once.
    let mut stuck = bench.client().await;
    stuck
        .ask(Request::Subscribe(Filter::default()))
        .await
        .expect("reply");
    for _ in 0..100 {
        let mut client = bench.client().await;
        client
            .ask(Request::Subscribe(Filter::default()))
            .await
            .expect("reply");
        readers.push(client);
    }
    drop(readers.pop());
    for name in &names {
        bench.fake.happen(Some(name), UP);
    }
    let read = readers.into_iter().map(|mut client| async move {
        for seq in 1..=10_000 {
            let event = client.next_event().await.expect("line").expect("open");
            assert_eq!(event.seq, seq);
        }
    });
    let tasks: Vec<_> = read.map(tokio::spawn).collect();
    for task in tasks {
        task.await.expect("nobody loses an event");
    }
    // And the one that did not read has them all as well.
    for seq in 1..=10_000 {
        let event = stuck.next_event().await.expect("line").expect("open");
        assert_eq!(event.seq, seq);
    }
}

#[tokio::test]
async fn an_event_includes_its_connection_on_request() {
    let bench = bench(Fake::new(&["1.1"]));
    let (mut curious, mut plain) = (bench.client().await, bench.client().await);
    let filter = Filter::default();
    plain.subscribe(filter.clone()).await.expect("done");
    let with_sample = true;
    curious
        .subscribe(Filter {
            with_sample,
            ..filter
        })
        .await
        .expect("done");
    bench.fake.happen(Some("1.1"), EventKind::JoinsAllowed);
    bench.fake.happen(Some("1.1"), EventKind::JoinsAllowed);
    let event = plain.next_event().await.expect("line").expect("open");
    assert_eq!((event.seq, event.sample), (1, None));
    let event = curious.next_event().await.expect("line").expect("open");
    assert_eq!(event.sample.map(|conn| conn.id), Some("1.1".into()));
    // The second event was told before this command: what it shows is out of date then, and says so by its absence.
    curious
        .create("1.1", Wanted::default())
        .await
        .expect("a subflow");
    curious.outdate("1.1");
    let event = curious.next_event().await.expect("line").expect("open");
    assert_eq!((event.seq, event.sample), (2, None));
}

#[tokio::test]
async fn a_controller_runs_beside_the_process() {
    let bench = one_with_a_backup();
    let client = bench.client().await;
    let run = tokio::spawn(async move { smart_backup(client).await });
    moves_away(bench, async { run.await.expect("no panic") }).await;
}

#[tokio::test]
async fn a_controller_may_have_a_thread_to_itself() {
    let bench = one_with_a_backup();
    let path = bench.server.path().to_owned();
    let run = tokio::task::spawn_blocking(move || {
        let client = manypath_control::blocking::Client::connect(&path).expect("session");
        let alone = tokio::runtime::Builder::new_current_thread().build();
        alone.expect("a runtime").block_on(smart_backup(client))
    });
    moves_away(bench, async { run.await.expect("no panic") }).await;
}

#[tokio::test]
async fn a_moment_may_come_before_an_event() {
    let bench = bench(Fake::new(&["1.1"]));
    let path = bench.server.path().to_owned();
    let fake = bench.fake.clone();
    let heard = tokio::task::spawn_blocking(move || {
        let mut client = manypath_control::blocking::Client::connect(&path).expect("session");
        let all = Request::Subscribe(Filter::default());
        assert_eq!(code(&client.ask(all).expect("reply")), "done");
        let soon = std::time::Instant::now() + Duration::from_millis(20);
        let first = client.next_event_by(Some(soon)).expect("no line");
        assert!(std::time::Instant::now() >= soon);
        fake.happen(Some("1.1"), UP);
        // Limits of before are none for a reply, nor for an event without any.
        assert_eq!(code(&client.ask(claim(None)).expect("reply")), "done");
        let second = client.next_event_by(None).expect("a line");
        let later = std::time::Instant::now() + Duration::from_millis(1);
        (
            first,
            second,
            client.next_event_by(Some(later)).expect("no line"),
        )
    });
    let (first, second, third) = heard.await.expect("no panic");
    assert_eq!((first, third), (Next::Moment, Next::Moment));
    let Next::Event(event) = second else {
        panic!("{second:?}");
    };
    assert_eq!(event.event, "established");
}

/// A connection with a second address, which is a backup.
fn one_with_a_backup() -> Bench {
    bench(Fake::with(&["1.1"], between(&["10.0.0.1"])))
}

/// What is said of it with subflows from these addresses.
fn between(locals: &[&str]) -> ConnReport {
    let text = r#"{"id":"1.1","may_join":true,"bytes_written":1000,
        "local_addresses":[{"address":"10.0.0.1","up":true},{"address":"10.1.0.1","up":true,"backup":true}],
        "remote_addresses":[{"address":"192.0.2.1:80"}],"subflows":[]}"#;
    let mut report: serde_json::Value = serde_json::from_str(text).expect("JSON");
    for (number, local) in locals.iter().enumerate() {
        let subflow = serde_json::json!({"id": number, "phase": "established",
            "local": format!("{local}:5000"), "remote": "192.0.2.1:80"});
        let subflows = report["subflows"].as_array_mut();
        subflows.expect("a list").push(subflow);
    }
    serde_json::from_value(report).expect("report")
}

/// Runs a controller to its end, and gives the reasons for what it did.
async fn smart_backup(client: impl Engine) -> Vec<&'static str> {
    let policy = PathManager::SmartBackup(manypath_stack::api::SmartBackup::default());
    let runner = Runner::start(client, policy, None, false, 1)
        .await
        .expect("runs");
    let mut deeds = Vec::new();
    let ended = runner
        .run(|deed| {
            deeds.push(deed.order.why);
            Ok(())
        })
        .await;
    ended.expect("in order");
    deeds
}

/// A time-out makes the controller look for another subflow, which has it leave the primary; and the end of the process ends it.
async fn moves_away(bench: Bench, run: impl Future<Output = Vec<&'static str>>) {
    let claimed = "1.1: let userspace decide".to_owned();
    wait_for(|| bench.fake.done() == [claimed.clone()]).await;
    let timeout = EventKind::Timeout {
        subflow: SubflowId(0),
        tuple: ends(),
        rto: manypath_tcp::time::Duration::from_millis(1_600),
        backoffs: 3,
    };
    bench.fake.happen(Some("1.1"), timeout);
    let done = [
        "1.1: let userspace decide",
        "1.1: create 10.1.0.1 -> *",
        "1.1: reset subflow 0",
    ];
    wait_for(|| bench.fake.done() == done[..2]).await;
    *bench.fake.0.report.lock().expect("lock") = between(&["10.0.0.1", "10.1.0.1"]);
    let up = EventKind::SubflowUp {
        subflow: SubflowId(1),
        tuple: ends(),
        iface: IfaceId(2),
        local_id: AddrId(1),
        remote_id: AddrId(0),
        backup: true,
        origin: SubflowOrigin::Command,
    };
    bench.fake.happen(Some("1.1"), up);
    wait_for(|| bench.fake.done() == done).await;
    drop(bench);
    let why = "the time-out of the primary passed the threshold";
    let ended = tokio::time::timeout(Duration::from_secs(10), run).await;
    let deeds = ended.expect("it ends with the process");
    assert_eq!(deeds, [why, "there is another subflow now"]);
}

/// Waits until something is so; what it waits for is a task's or a thread's.
async fn wait_for(so: impl Fn() -> bool) {
    let until = tokio::time::Instant::now() + Duration::from_secs(10);
    while !so() {
        assert!(tokio::time::Instant::now() < until, "it never came about");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn the_schema_names_every_word() {
    let schema = include_str!("../../../docs/control.schema.json");
    let schema: serde_json::Value = serde_json::from_str(schema).expect("JSON");
    let of = |what: &str| {
        let all = schema["$defs"][what]["oneOf"].as_array().expect("a list");
        let title = |one: &serde_json::Value| one["title"].as_str().expect("a title").to_owned();
        all.iter().map(title).collect::<Vec<_>>()
    };
    // An unknown word is refused with a list of those that are known.
    let error = serde_json::from_str::<Request>(r#"{"request":"dance"}"#).expect_err("unknown");
    for name in of("request") {
        assert!(
            error.to_string().contains(&format!("`{name}`")),
            "{name}: {error}"
        );
    }
    assert_eq!(
        error.to_string().matches('`').count() / 2,
        of("request").len() + 1
    );
    let error = serde_json::from_str::<Reply>(r#"{"reply":"dance"}"#).expect_err("unknown");
    assert_eq!(
        error.to_string().matches('`').count() / 2,
        of("reply").len() + 1
    );
    let fields = |what: &str| schema["$defs"][what]["properties"].clone();
    assert_eq!(
        fields("event")["event"]["enum"],
        serde_json::json!(manypath_control::wire::EVENTS)
    );
    let conn = serde_json::to_value(ConnReport::default()).expect("JSON");
    for name in conn.as_object().expect("an object").keys() {
        assert!(fields("connection").get(name).is_some(), "{name}");
    }
}

#[tokio::test]
async fn decisions_are_sent_to_sessions_that_subscribe_to_them() {
    let fake = Fake::new(&["1.1"]);
    let bench = bench(fake);
    let (mut named, mut all) = (bench.client().await, bench.client().await);
    named
        .subscribe(Filter::of(["decision"]))
        .await
        .expect("done");
    all.subscribe(Filter::default()).await.expect("done");
    // The log of the bench has one entry, without a number.
    bench
        .fake
        .happen(Some("1.1"), EventKind::Decided { number: 0 });
    bench.fake.happen(Some("1.1"), UP);
    let told = named.next_event().await.expect("line").expect("open");
    assert_eq!((told.event.as_str(), told.seq), ("decision", 0));
    assert!(told.decision.is_some());
    let told = all.next_event().await.expect("line").expect("open");
    assert_eq!((told.event.as_str(), told.seq), ("established", 1));
}

#[tokio::test]
async fn what_happens_to_limits_is_numbered_among_the_other_events() {
    let bench = bench(Fake::new(&["1.1"]));
    let mut client = bench.client().await;
    client.subscribe(Filter::default()).await.expect("done");
    let mut of_quotas = bench.client().await;
    let wanted = Filter::of(["quota_spent"]);
    of_quotas.subscribe(wanted).await.expect("done");
    for event in ["limit", "quota_spent"] {
        let report = EventReport {
            event: event.to_owned(),
            limit: Some(Box::default()),
            ..EventReport::default()
        };
        bench.fake.0.told.try_send(report).expect("room");
    }
    let mut told = Vec::new();
    for _ in 0..2 {
        told.push(client.next_event().await.expect("line").expect("open"));
    }
    bench.fake.happen(Some("1.1"), UP);
    told.push(client.next_event().await.expect("line").expect("open"));
    let names: Vec<_> = told.iter().map(|e| (e.event.as_str(), e.seq)).collect();
    assert_eq!(
        names,
        [("limit", 1), ("quota_spent", 2), ("established", 3)]
    );
    assert_eq!(told[0].at_us, 2_000_000);
    let only = of_quotas.next_event().await.expect("line").expect("open");
    assert_eq!((only.event.as_str(), only.seq), ("quota_spent", 2));
}
