//! Network namespaces without names.
//!
//! A [`NetNs`] is a namespace that exists only because a thread of ours lives in it. There is no entry under
//! `/run/netns` and no file to remove: when the guard drops, the program ends, or somebody kills it, the thread ends, the
//! children that it started receive `SIGKILL`, and the kernel takes the interfaces, addresses, routes and rules away.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use manypath_io::sys::lab::die_with_parent;
use nix::sched::{CloneFlags, unshare};

/// Why a private network could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum NetNsError {
    /// The system does not let us have namespaces of our own.
    #[error("this system does not permit network namespaces: {0}")]
    Forbidden(String),
    /// The kernel answers no more.
    #[error(
        "the kernel's generic netlink does not answer: a crash in its Multipath TCP leaves it so (see dmesg) until the machine is started again"
    )]
    Stuck,
    /// A thread or process could not be started.
    #[error("cannot start {what}: {source}")]
    Start {
        /// What should have been started.
        what: String,
        /// Why it was not.
        source: io::Error,
    },
    /// A program is not installed.
    #[error("{program} is not installed; it comes with the package {package}")]
    Missing {
        /// The program.
        program: String,
        /// Debian's package that has it.
        package: String,
    },
    /// A command of the `ip` family refused.
    #[error("{command}: {message}")]
    Command {
        /// The command as it was given.
        command: String,
        /// What it printed.
        message: String,
    },
    /// A kernel setting could not be changed.
    #[error("cannot set {key} to {value}: {source}")]
    Sysctl {
        /// Name with dots.
        key: String,
        /// The value wanted.
        value: String,
        /// Why it was refused.
        source: io::Error,
    },
}

impl NetNsError {
    /// Why private networks are not to be had here, where that is so; a simulation may stand in for them.
    ///
    /// # Errors
    /// The error itself, where they are and something else went wrong.
    pub fn into_reason(self) -> Result<String, Self> {
        match self {
            Self::Forbidden(why) => Ok(why),
            Self::Stuck => Ok(self.to_string()),
            other => Err(other),
        }
    }

    /// `program` did not start.
    fn not_started(program: &str, source: io::Error) -> Self {
        if source.kind() != io::ErrorKind::NotFound || program.contains('/') {
            let what = program.to_owned();
            return Self::Start { what, source };
        }
        let package = match program {
            "ip" | "tc" | "ss" => "iproute2",
            "nft" => "nftables",
            same => same,
        };
        Self::Missing {
            program: program.to_owned(),
            package: package.to_owned(),
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace held by a thread of this process. See the module's text for what happens when it goes.
pub struct NetNs {
    name: String,
    path: PathBuf,
    /// `None` only while dropping.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for NetNs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetNs")
            .field("name", &self.name)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl NetNs {
    /// A new, empty namespace with its loopback up. `name` appears in messages and thread names only.
    ///
    /// # Errors
    /// [`NetNsError::Forbidden`] without `CAP_SYS_ADMIN` in the user namespace: see [`privilege`].
    pub fn new(name: &str) -> Result<Self, NetNsError> {
        let (jobs, inbox) = channel::<Job>();
        let (tell, told) = channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let made = unshare(CloneFlags::CLONE_NEWNET).map(|()| rustix::thread::gettid());
                let failed = made.is_err();
                // The receiver waits for exactly this message; if it is gone there is nobody left to serve.
                if tell.send(made).is_err() || failed {
                    return;
                }
                for job in inbox {
                    job();
                }
            })
            .map_err(|source| NetNsError::Start {
                what: format!("the thread of namespace {name}"),
                source,
            })?;
        let tid = match told.recv() {
            Ok(Ok(tid)) => tid,
            Ok(Err(errno)) => return Err(NetNsError::Forbidden(errno.to_string())),
            Err(_) => return Err(NetNsError::Forbidden("its thread ended at once".to_owned())),
        };
        let path = PathBuf::from(format!(
            "/proc/{}/task/{}/ns/net",
            std::process::id(),
            tid.as_raw_nonzero()
        ));
        let ns = Self {
            name: name.to_owned(),
            path,
            jobs: Some(jobs),
            thread: Some(thread),
        };
        ns.ip(["link set lo up"])?;
        Ok(ns)
    }

    /// The name given at creation.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A path that names this namespace to `ip link ... netns PATH` and to `setns`, as long as the guard lives.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Runs `job` on the thread that lives in the namespace and returns its result. Jobs run one after the other.
    /// Sockets made by the job belong to this namespace for ever, whoever uses them afterwards.
    ///
    /// # Panics
    /// If `job` panics, with the same payload.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = channel();
        let boxed: Job = Box::new(move || {
            // A receiver that went away no longer wants the result.
            let _ = tell.send(catch_unwind(AssertUnwindSafe(job)));
        });
        let jobs = self
            .jobs
            .as_ref()
            .expect("the sender is taken only in drop");
        jobs.send(boxed)
            .expect("the namespace thread ends only after the sender is gone");
        match told
            .recv()
            .expect("a job always reports, even when it panics")
        {
            Ok(value) => value,
            Err(payload) => resume_unwind(payload),
        }
    }

    /// Starts a thread that lives in this namespace. The namespace lasts at least as long as the thread.
    ///
    /// # Errors
    /// When the system refuses another thread.
    pub fn thread<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, NetNsError> {
        let builder = std::thread::Builder::new().name(name.to_owned());
        // A new thread begins in the namespaces of the thread that creates it.
        self.run(move || builder.spawn(body))
            .map_err(|source| NetNsError::Start {
                what: format!("thread {name}"),
                source,
            })
    }

    /// Starts a command inside; one of administrators is found as well. It is killed when the returned guard drops, and also when this namespace or the whole
    /// program ends in any other way.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn spawn(&self, mut command: Command) -> Result<Process, NetNsError> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.run(move || die_with_parent(with_tools(&mut command)).spawn())
            .map(Process)
            .map_err(|source| NetNsError::not_started(&program, source))
    }

    /// Runs a command inside to its end and returns what it printed, as [`NetNs::spawn`] does.
    ///
    /// # Errors
    /// When the program cannot be started. An exit status other than zero is not an error here.
    pub fn output(&self, mut command: Command) -> Result<Output, NetNsError> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.run(move || die_with_parent(with_tools(&mut command)).output())
            .map_err(|source| NetNsError::not_started(&program, source))
    }

    /// Carries out lines of the `ip` command (without the word `ip`), all in one process.
    ///
    /// # Errors
    /// The first line that fails ends it, with what `ip` said.
    pub fn ip<S: AsRef<str>>(&self, lines: impl IntoIterator<Item = S>) -> Result<(), NetNsError> {
        self.batch(
            &["-batch", "-"],
            lines.into_iter().map(|l| l.as_ref().to_owned()).collect(),
        )
    }

    /// The same for IPv6, for objects whose family the command cannot tell from the addresses (`rule`).
    ///
    /// # Errors
    /// As [`NetNs::ip`].
    pub fn ip6<S: AsRef<str>>(&self, lines: impl IntoIterator<Item = S>) -> Result<(), NetNsError> {
        self.batch(
            &["-6", "-batch", "-"],
            lines.into_iter().map(|l| l.as_ref().to_owned()).collect(),
        )
    }

    fn batch(
        &self,
        arguments: &'static [&'static str],
        lines: Vec<String>,
    ) -> Result<(), NetNsError> {
        let mut command = Command::new("ip");
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let script = lines.join("\n") + "\n";
        let output = self
            .run(move || -> io::Result<Output> {
                let mut child = die_with_parent(with_tools(&mut command)).spawn()?;
                let mut stdin = child.stdin.take().expect("stdin was asked to be a pipe");
                // A broken pipe means that ip gave up; its own message says why.
                let _ = stdin.write_all(script.as_bytes());
                drop(stdin);
                child.wait_with_output()
            })
            .map_err(|source| NetNsError::not_started("ip", source))?;
        if output.status.success() {
            return Ok(());
        }
        Err(NetNsError::Command {
            command: format!("ip in {}: {}", self.name, lines.join("; ")),
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }

    /// Sets a kernel parameter of this namespace, `net.ipv4.tcp_sack` for example.
    ///
    /// # Errors
    /// When the parameter does not exist, or is not ours to change.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), NetNsError> {
        // Dots separate, slashes stand for dots inside an interface's name, as sysctl(8) has it.
        let swapped: String = key
            .chars()
            .map(|c| match c {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect();
        let path = format!("/proc/sys/{swapped}");
        let text = value.to_owned();
        self.run(move || std::fs::write(path, text))
            .map_err(|source| NetNsError::Sysctl {
                key: key.to_owned(),
                value: value.to_owned(),
                source,
            })
    }

    /// Whether a TCP socket of this namespace listens on a port, found out without connecting to it.
    #[must_use]
    pub fn listens(&self, port: u16) -> bool {
        let tables = ["tcp", "tcp6"].map(|kind| format!("/proc/thread-self/net/{kind}"));
        let end = format!(":{port:04X}");
        self.run(move || {
            tables
                .iter()
                .filter_map(|path| std::fs::read_to_string(path).ok())
                .any(|table| {
                    // Second field: the local address; fourth: the state, 0A for listening.
                    table.lines().skip(1).any(|line| {
                        let mut fields = line.split_ascii_whitespace().skip(1);
                        fields.next().is_some_and(|local| local.ends_with(&end))
                            && fields.nth(1) == Some("0A")
                    })
                })
        })
    }

    /// Joins this namespace and another by a pair of virtual Ethernet interfaces, both up, MTU 1500.
    ///
    /// # Errors
    /// When `ip` refuses, for instance because a name is taken.
    pub fn veth(&self, here: &str, other: &NetNs, there: &str) -> Result<(), NetNsError> {
        self.ip([
            format!(
                "link add name {here} type veth peer name {there} netns {}",
                other.path.display()
            ),
            format!("link set {here} up"),
        ])?;
        other.ip([format!("link set {there} up")])
    }
}

impl Drop for NetNs {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panicking job was already reported to whoever asked for it.
            let _ = thread.join();
        }
    }
}

/// A child process that is killed and reaped when the guard drops.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// The child, to wait for it or to take its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Processor time that the child has used so far, in seconds (user and system), at 10 ms steps.
    #[must_use]
    pub fn cpu_seconds(&self) -> Option<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).ok()?;
        // The second field is the name in brackets and may hold anything; the numbers follow the last bracket.
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
        let user: f64 = fields.next()?.parse().ok()?;
        let system: f64 = fields.next()?.parse().ok()?;
        Some((user + system) / 100.0)
    }

    /// Asks it to end (`SIGTERM`), and kills it when it has not after `patience`.
    pub fn stop(&mut self, patience: std::time::Duration) {
        use nix::sys::signal::{Signal, kill};
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        // Not yet waited for, so the number still names our child. Linux's process numbers are below 2^22.
        if let Ok(pid) = i32::try_from(self.0.id()) {
            let _ = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM);
        }
        let end = std::time::Instant::now() + patience;
        while std::time::Instant::now() < end {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors mean that it is gone already, which is what we want.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What we may do about namespaces here.
#[derive(Debug)]
pub enum Privilege {
    /// Network namespaces can be made at once.
    Ready,
    /// They can be made inside a user namespace of our own: replace this process by the command.
    Enter(Box<Command>),
    /// They cannot be had; the text says why.
    Forbidden(String),
}

/// Set in the environment of a process that [`Privilege::Enter`] started, so that it does not try again.
const ENTERED: &str = "MANYPATH_IN_USER_NAMESPACE";

/// Servers and tools of administrators are where an ordinary user's shell does not look.
fn with_tools(command: &mut Command) -> &mut Command {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    command.env("PATH", path)
}

/// Finds out whether namespaces can be had, as root or as an ordinary user. Tries it out and leaves nothing behind.
#[must_use]
pub fn privilege() -> Privilege {
    let direct = match NetNs::new("probe") {
        Ok(_) => return Privilege::Ready,
        Err(error @ NetNsError::Forbidden(_)) => error.to_string(),
        Err(other) => return Privilege::Forbidden(other.to_string()),
    };
    if std::env::var_os(ENTERED).is_some() {
        return Privilege::Forbidden(direct);
    }
    // A process with several threads cannot enter a user namespace, so a fresh one must. Whether the system permits it
    // has to be known before we replace ourselves.
    let wrapper = ["--user", "--map-root-user", "--net"];
    let probe = Command::new("unshare")
        .args(wrapper)
        .args(["--", "ip", "link", "set", "lo", "up"])
        .output();
    match probe {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Privilege::Forbidden(format!("{direct}; in a user namespace: {said}"));
        }
        Err(error) => {
            return Privilege::Forbidden(format!("{direct}; cannot run unshare: {error}"));
        }
    }
    let this = match std::env::current_exe() {
        Ok(path) => path,
        Err(error) => return Privilege::Forbidden(format!("cannot find our own program: {error}")),
    };
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut command = Command::new("unshare");
    command
        .args(wrapper)
        .arg("--")
        .arg(this)
        .args(arguments)
        .env(ENTERED, "1");
    Privilege::Enter(Box::new(command))
}

/// How long the kernel may take for an answer that it has at hand.
const ANSWER: Duration = Duration::from_secs(10);

/// Whether the kernel answers a command of its Multipath TCP. It no longer does after a task of it has crashed in such a command, holding the lock of
/// generic netlink: who asks waits until the machine is started again, and no signal ends that.
pub(crate) fn netlink_answers() -> bool {
    static ANSWERS: OnceLock<bool> = OnceLock::new();
    *ANSWERS.get_or_init(|| {
        let mut command = Command::new("ip");
        command.args(["mptcp", "limits", "show"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // Whoever needs `ip` tells that it is missing.
        let Ok(mut child) = with_tools(&mut command).stderr(Stdio::null()).spawn() else {
            return true;
        };
        let (done, answer) = channel();
        std::thread::spawn(move || {
            let _ = done.send(child.wait().is_ok());
        });
        answer.recv_timeout(ANSWER).unwrap_or(false)
    })
}

/// Makes sure that namespaces can be made, if need be by starting this very program again, with the same arguments,
/// inside a user namespace. In that case it does not return. Call it before anything that must not happen twice.
///
/// # Errors
/// [`NetNsError::Forbidden`] with the reason when namespaces cannot be had, [`NetNsError::Stuck`] when they would be of no use.
pub fn acquire() -> Result<(), NetNsError> {
    match privilege() {
        Privilege::Ready if !netlink_answers() => Err(NetNsError::Stuck),
        Privilege::Ready => Ok(()),
        Privilege::Enter(mut command) => {
            let source = command.exec();
            Err(NetNsError::Start {
                what: "unshare".to_owned(),
                source,
            })
        }
        Privilege::Forbidden(why) => Err(NetNsError::Forbidden(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permitted() -> bool {
        matches!(privilege(), Privilege::Ready)
    }

    #[test]
    fn a_namespace_is_private_and_goes_with_its_guard() {
        if !permitted() {
            return;
        }
        let ours = std::fs::read_link("/proc/self/ns/net").expect("every Linux has it");
        let ns = NetNs::new("lab-test").expect("permitted");
        let inside =
            ns.run(|| std::fs::read_link("/proc/thread-self/ns/net").expect("every Linux has it"));
        assert_ne!(ours, inside);
        let child = ns.output({
            let mut c = Command::new("readlink");
            c.arg("/proc/self/ns/net");
            c
        });
        let child = String::from_utf8(child.expect("readlink runs").stdout).expect("ASCII");
        assert_eq!(child.trim(), inside.to_string_lossy());
        let path = ns.path().to_owned();
        drop(ns);
        // A thread is joined a moment before the kernel takes it out of /proc.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while path.exists() {
            assert!(std::time::Instant::now() < deadline, "it is still there");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_veth_pair_carries_packets_between_namespaces() {
        if !permitted() {
            return;
        }
        let a = NetNs::new("lab-a").expect("permitted");
        let b = NetNs::new("lab-b").expect("permitted");
        a.veth("left", &b, "right").expect("names are free");
        a.ip(["addr add 10.99.0.1/24 dev left"]).expect("valid");
        b.ip(["addr add 10.99.0.2/24 dev right"]).expect("valid");
        let listener = b
            .run(|| std::net::TcpListener::bind("10.99.0.2:0"))
            .expect("address is ours");
        let address = listener.local_addr().expect("bound");
        let peer = a
            .run(move || std::net::TcpStream::connect(address))
            .expect("reachable");
        assert_eq!(
            peer.local_addr().expect("connected").ip().to_string(),
            "10.99.0.1"
        );
    }

    #[test]
    fn a_refused_command_says_what_and_why() {
        if !permitted() {
            return;
        }
        let ns = NetNs::new("lab-test").expect("permitted");
        let error = ns
            .ip(["addr add 10.0.0.1/24 dev nonesuch"])
            .expect_err("there is no such interface");
        let text = error.to_string();
        assert!(text.contains("nonesuch"), "{text}");
        let error = ns
            .sysctl("net.ipv4.nonesuch", "1")
            .expect_err("there is no such parameter");
        assert!(error.to_string().contains("net.ipv4.nonesuch"));
    }

    #[test]
    fn a_child_dies_with_its_guard_and_with_its_namespace() {
        if !permitted() {
            return;
        }
        let ns = NetNs::new("lab-test").expect("permitted");
        let sleep = || {
            let mut c = Command::new("sleep");
            c.arg("1000");
            c
        };
        let mut guarded = ns.spawn(sleep()).expect("sleep exists");
        let pid = guarded.child().id();
        drop(guarded);
        assert!(!PathBuf::from(format!("/proc/{pid}")).exists());

        let mut left = ns.spawn(sleep()).expect("sleep exists");
        drop(ns);
        // The guard still lives, but the thread that started the child does not.
        let status = left.child().wait().expect("our child");
        assert!(!status.success());
    }
}
