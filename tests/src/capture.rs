//! What was on the wire, recorded and then judged by an independent decoder.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Stdio;

use manypath_lab::netns::Process;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::net::{Family, Net, Own, tool};
use crate::pair::PORT;
use crate::until::wait_for;

/// What the packet that ends a recording carries, to the discard service.
const LAST: &[u8] = b"the recording ends with this packet";
const LAST_PORT: u16 = 9;

/// A recording in progress, of the cables from the first on.
#[derive(Debug)]
pub struct Capture {
    recorders: Vec<Process>,
    files: Vec<PathBuf>,
    folder: tempfile::TempDir,
}

/// Whether the programs that record and judge are installed. Says so if not.
#[must_use]
pub fn is_possible() -> bool {
    let missing: Vec<_> = ["tcpdump", "tshark", "mergecap"]
        .into_iter()
        .filter(|name| tool(name).arg("--version").output().is_err())
        .collect();
    if !missing.is_empty() {
        eprintln!("skipped: {} is not installed", missing.join(", "));
    }
    missing.is_empty()
}

impl Capture {
    /// Records everything at the kernel's end of every cable from now on.
    ///
    /// # Panics
    /// When the recorder cannot be started.
    #[must_use]
    pub fn start(net: &Net) -> Self {
        let folder = tempfile::tempdir().expect("a folder for captures");
        let mut capture = Self {
            recorders: Vec::new(),
            files: Vec::new(),
            folder,
        };
        for interface in (1..=net.cables()).map(|n| format!("v{n}")) {
            let file = capture.folder.path().join(format!("{interface}.pcap"));
            let mut command = tool("tcpdump");
            command
                .args([
                    "-i", &interface, "-s", "0", "-B", "65536", "-U", "-Z", "root", "-w",
                ])
                .arg(&file)
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
            let mut process = net.kernel.spawn(command).expect("tcpdump starts");
            let stderr = process.child().stderr.take().expect("stderr is a pipe");
            let mut said = String::new();
            let mut lines = BufReader::new(stderr);
            while !said.contains("listening on") {
                let n = lines.read_line(&mut said).expect("tcpdump speaks text");
                assert!(n > 0, "tcpdump ended: {said}");
            }
            // It goes on counting there; nobody needs to read it, and it fits into the pipe.
            process.child().stderr = Some(lines.into_inner());
            capture.recorders.push(process);
            capture.files.push(file);
        }
        capture
    }

    /// Ends the recording, once everything that has passed until now is in it.
    ///
    /// # Panics
    /// When the recorder does not end, or the parts cannot be joined.
    #[must_use]
    pub fn stop(mut self, net: &Net) -> Recording {
        // What the recorder has not written when it ends is lost, so a last packet goes behind all others.
        for (n, file) in (1..).zip(&self.files) {
            let to = SocketAddr::new(Net::our_address(Family::V4, Own::Shared, n), LAST_PORT);
            net.kernel
                .run(move || UdpSocket::bind("0.0.0.0:0")?.send_to(LAST, to))
                .expect("the address is on the cable");
            wait_for("the recording to be complete", || {
                let bytes = std::fs::read(file).expect("tcpdump has made it");
                let tail = &bytes[bytes.len().saturating_sub(64 * 1024)..];
                tail.windows(LAST.len()).any(|w| w == LAST).then_some(())
            });
        }
        for process in &mut self.recorders {
            let pid = i32::try_from(process.child().id()).expect("process ids are small");
            kill(Pid::from_raw(pid), Signal::SIGINT).expect("it is still running");
            wait_for("tcpdump to end", || {
                process.child().try_wait().expect("it is our child")
            });
        }
        let file = self.folder.path().join("all.pcapng");
        let mut command = tool("mergecap");
        command.arg("-w").arg(&file).args(&self.files);
        let output = command.output().expect("mergecap is installed");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Recording {
            file,
            _folder: self.folder,
        }
    }
}

/// A recording that has ended. The file goes with it.
#[derive(Debug)]
pub struct Recording {
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Recording {
    /// The packets that fit a display filter of the decoder, one line each.
    ///
    /// # Panics
    /// When the decoder does not understand the filter.
    #[must_use]
    pub fn matching(&self, filter: &str) -> Vec<String> {
        self.read(&["-Y", filter])
    }

    /// These fields of every packet, in their order; several values of one field have commas between them. One pass
    /// over the recording, where each filter takes one of its own.
    ///
    /// # Panics
    /// When the decoder does not know a field.
    #[must_use]
    pub fn fields(&self, names: &[&str]) -> Vec<Vec<String>> {
        let mut arguments = vec!["-T", "fields"];
        arguments.extend(names.iter().flat_map(|name| ["-e", name]));
        self.read(&arguments)
            .iter()
            .map(|line| line.split('\t').map(str::to_owned).collect())
            .collect()
    }

    fn read(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = tool("tshark");
        // The decoder's own checks of sums and connections are off by default.
        for preference in [
            "tcp.check_checksum:TRUE",
            "ip.check_checksum:TRUE",
            "mptcp.relative_sequence_numbers:FALSE",
            "mptcp.analyze_mappings:TRUE",
        ] {
            command.args(["-o", preference]);
        }
        // Random bytes are no well-formed packets of whatever else is usual on that port.
        command.args(["-d", &format!("tcp.port=={PORT},data")]);
        command.arg("-n").arg("-r").arg(&self.file).args(arguments);
        let output = command.output().expect("tshark is installed");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect()
    }
}
