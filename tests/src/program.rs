//! The `manypath` program under test: found or built, started inside a namespace, listened to, asked, ended.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use manypath_control::report::{ConnReport, ProcessReport};
use manypath_lab::netns::{NetNs, Process};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::net::tool;
use crate::until::{wait_for, wait_until};

/// The program's file: `MANYPATH_BIN`, or the one beside this test, which is built first so that it is never an old one.
///
/// # Panics
/// When it cannot be built.
pub fn binary() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        if let Some(path) = std::env::var_os("MANYPATH_BIN") {
            return path.into();
        }
        let this = std::env::current_exe().expect("a running program has a file");
        // TARGET/PROFILE/deps/this
        let profile = this.ancestors().nth(2).expect("cargo's folders").to_owned();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build
            .args(["build", "--quiet", "--offline", "--package", "manypath-cli"])
            .arg("--target-dir")
            .arg(profile.parent().expect("cargo's folders"))
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        let status = build.status().expect("cargo runs");
        assert!(status.success(), "manypath cannot be built");
        profile.join("manypath")
    })
}

/// Where the processes of this test program can be asked; nobody else sees them there.
#[must_use]
pub fn runtime_dir() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| tempfile::tempdir().expect("a folder for sockets"))
        .path()
}

/// A command line of the program.
#[must_use]
pub fn manypath<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = tool(&binary().to_string_lossy());
    command
        .args(args)
        .env("XDG_RUNTIME_DIR", runtime_dir())
        .stdin(Stdio::null());
    command
}

/// A running program.
#[derive(Debug)]
pub struct Program {
    process: Process,
    said: Arc<Mutex<String>>,
    ears: Option<JoinHandle<()>>,
}

impl Program {
    /// Starts it inside a namespace, and waits until it has said `ready`.
    ///
    /// # Panics
    /// When it ends before, or says nothing of the kind in time.
    #[must_use]
    pub fn start<S: AsRef<std::ffi::OsStr>>(
        ns: &NetNs,
        args: impl IntoIterator<Item = S>,
        ready: &str,
    ) -> Self {
        Self::start_command(ns, manypath(args), ready)
    }

    /// The same for a command that starts it.
    ///
    /// # Panics
    /// As [`Program::start`].
    #[must_use]
    pub fn start_command(ns: &NetNs, mut command: Command, ready: &str) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut program = Self::spawn(ns, command);
        wait_for("the program to be ready", || {
            let said = program.said();
            if said.contains(ready) {
                return Some(());
            }
            let ended = program.process.child().try_wait().expect("it is our child");
            assert!(ended.is_none(), "it ended before it was ready: {said}");
            None
        });
        program
    }

    /// The same without waiting for anything.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn launch(ns: &NetNs, mut command: Command) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        Self::spawn(ns, command)
    }

    fn spawn(ns: &NetNs, command: Command) -> Self {
        let mut process = ns.spawn(command).expect("the program starts");
        let stderr = process.child().stderr.take().expect("stderr is a pipe");
        let said = Arc::new(Mutex::new(String::new()));
        let notes = Arc::clone(&said);
        let ears = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
                notes.push_str(&line);
                notes.push('\n');
            }
        });
        Self {
            process,
            said,
            ears: Some(ears),
        }
    }

    /// Runs a command inside a namespace to its end.
    ///
    /// # Panics
    /// When it does not end in time.
    #[must_use]
    pub fn run(ns: &NetNs, command: Command) -> (ExitStatus, String) {
        Self::launch(ns, command).end()
    }

    /// Starts `manypath forward`.
    ///
    /// # Panics
    /// As [`Program::start`].
    #[must_use]
    pub fn forward<S: Into<String>>(
        ns: &NetNs,
        listen: &str,
        to: &str,
        more: impl IntoIterator<Item = S>,
    ) -> Self {
        let mut args: Vec<String> = ["forward", "--listen", listen, "--to", to]
            .map(str::to_owned)
            .into();
        args.extend(more.into_iter().map(Into::into));
        Self::start(ns, args, "goes to")
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&mut self) -> u32 {
        self.process.child().id()
    }

    /// What it has written to standard error so far.
    #[must_use]
    pub fn said(&self) -> String {
        self.said
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it is no longer there.
    pub fn signal(&mut self, signal: Signal) {
        let pid = i32::try_from(self.pid()).expect("Linux's process ids are below 2^22");
        kill(Pid::from_raw(pid), signal).expect("it has not been waited for, so it is there");
    }

    /// Waits for its end. Answers how it ended and everything that it said.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn end(mut self) -> (ExitStatus, String) {
        let status = wait_until("the program to end", || {
            let ended = self.process.child().try_wait().expect("it is our child");
            ended.ok_or_else(|| self.said())
        });
        if let Some(ears) = self.ears.take() {
            // The pipe has ended with the program, so this returns.
            let _ = ears.join();
        }
        (status, self.said())
    }

    /// Ends it by Ctrl-C and answers what it said at the end.
    ///
    /// # Panics
    /// When it does not end in time, or with another exit code than the one for that.
    pub fn interrupt(mut self) -> String {
        self.signal(Signal::SIGINT);
        let (status, said) = self.end();
        assert_eq!(status.code(), Some(130), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    /// What `manypath status --json` tells about it.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn report(&mut self) -> ProcessReport {
        #[derive(serde::Deserialize)]
        struct Document {
            processes: Vec<ProcessReport>,
        }
        let pid = self.pid().to_string();
        let output = manypath(["status", "--json", "--pid", &pid])
            .output()
            .expect("the program starts");
        let document: Document = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
        });
        let mut processes = document.processes;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(processes.len(), 1, "nobody else has that id: {said}");
        processes.remove(0)
    }

    /// Its only connection of our stack.
    ///
    /// # Panics
    /// When there is none, or more than one.
    #[must_use]
    pub fn connection(&mut self) -> ConnReport {
        let mut all = self.report().connections;
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// Waits until its stack has no connections.
    ///
    /// # Panics
    /// When some stay.
    pub fn wait_until_idle(&mut self) {
        wait_for("all connections to be over", || {
            self.report().connections.is_empty().then_some(())
        });
    }

    /// Bytes of memory that it occupies now, apart from the pages of its program file, which the kernel can take away.
    ///
    /// # Panics
    /// When it is no longer there.
    #[must_use]
    pub fn memory(&mut self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))
            .expect("the process is there");
        text.lines()
            .find_map(|line| {
                let kilobytes = line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB")?;
                kilobytes.parse::<u64>().ok()
            })
            .expect("Linux tells every process's size")
            * 1024
    }

    /// Waits until it occupies no more than `allowed` bytes, and answers how many.
    ///
    /// # Panics
    /// When it stays larger.
    pub fn wait_until_small(&mut self, allowed: u64) -> u64 {
        wait_until(&format!("at most {} KB of memory", allowed >> 10), || {
            let now = self.memory();
            if now <= allowed {
                Ok(now)
            } else {
                Err(format!("{} KB", now >> 10))
            }
        })
    }
}
