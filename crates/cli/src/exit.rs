//! Why a command ended, in a message that says what to do next and a code that scripts can rely on.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use manypath_proxy::sockets::NoPathsAddress;

use crate::runtime::say_always;
use crate::signals::Signal;

/// Which codes a command can end with, beside 0, 1 and 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// All of them: the command itself.
    All,
    /// It carries connections until it is told to end.
    Service,
    /// The same, and SIGHUP is a reload.
    Reloaded,
    /// It measures over a network.
    Network,
    /// It speaks with running processes.
    Control,
    /// It makes networks of its own.
    Lab,
    /// It computes.
    Compute,
    /// It computes until a seed fails.
    Gauntlet,
}

/// What the help text of a command says about its exit codes: `failed` is what 1 stands for there.
pub(crate) fn codes(ends: Ends, failed: &str) -> String {
    use Ends::{All, Compute, Control, Gauntlet, Lab, Network, Reloaded, Service};
    let mut text =
        format!("Exit codes:\n  0    done\n  1    {failed}\n  2    the command line is wrong\n");
    let lines: [(&str, &[Ends]); 7] = [
        (
            "3    a privilege is missing",
            &[All, Service, Reloaded, Network, Control, Lab],
        ),
        (
            "4    the network or the peer: refused, unreachable, no answer, address in use",
            &[All, Service, Reloaded, Network, Control],
        ),
        ("5    a seed of the gauntlet failed", &[All, Gauntlet]),
        (
            "129  the terminal hung up (SIGHUP)",
            &[All, Service, Network, Control],
        ),
        (
            "130  interrupted by Ctrl-C (SIGINT)",
            &[
                All, Service, Reloaded, Network, Control, Lab, Compute, Gauntlet,
            ],
        ),
        (
            match ends {
                All => "143  terminated (SIGTERM; forward and proxy, services, end with 0 then)",
                _ => "143  terminated (SIGTERM)",
            },
            &[All, Network, Control, Lab, Compute, Gauntlet],
        ),
        (
            "128+n  ended by signal n: whatever the signal, what was changed on the host is put back first",
            &[All, Service, Reloaded, Network, Control],
        ),
    ];
    for (line, of) in lines {
        if of.contains(&ends) {
            text.push_str("  ");
            text.push_str(line);
            text.push('\n');
        }
    }
    text.trim_end().to_owned()
}

/// Of the command itself.
pub(crate) fn all_codes() -> String {
    let failed = "it did not work out; the help of each command says what that means there";
    codes(Ends::All, failed)
}

/// The kinds of ends, with their codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Failure,
    Usage,
    Privilege,
    Network,
    Seeds,
    /// The signal with this number, 64 at most, asked for the end.
    Signal(u8),
}

impl Code {
    fn number(self) -> u8 {
        match self {
            Self::Failure => 1,
            Self::Usage => 2,
            Self::Privilege => 3,
            Self::Network => 4,
            Self::Seeds => 5,
            Self::Signal(number) => 128 + number,
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// A failure of that kind.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
        }
    }

    /// Ctrl-C, or the request to end, came before the end.
    pub(crate) fn stopped(rest: &str) -> Self {
        let signal = match manypath_lab::was_terminated() {
            true => Signal::TERMINATE,
            false => Signal::INTERRUPT,
        };
        let failure = signal.failure();
        Self {
            message: failure.message + rest,
            ..failure
        }
    }

    /// Whether that signal asked for the end.
    pub(crate) fn is_by(&self, signal: Signal) -> bool {
        self.code == signal.failure().code
    }

    /// Adds what the user can do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A wrong command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    /// From an error of the operating system or the network: its kind decides.
    pub(crate) fn from_io(message: String, kind: io::ErrorKind) -> Self {
        use io::ErrorKind as Kind;
        let (code, hint) = match kind {
            Kind::PermissionDenied => (
                Code::Privilege,
                "run it as root or with the capabilities CAP_NET_ADMIN and CAP_NET_RAW; ports below 1024 need CAP_NET_BIND_SERVICE",
            ),
            Kind::AddrInUse => (
                Code::Network,
                "another program listens there; choose another port or see `ss -ltnp` for who it is",
            ),
            Kind::AddrNotAvailable => (
                Code::Network,
                "no interface, and no path, of this host has that address; `ip address` shows those that it has; behind a TUN device, listen on 0.0.0.0 or [::]",
            ),
            Kind::ConnectionRefused => (
                Code::Network,
                "nothing listens at that address and port, or a firewall refuses it",
            ),
            Kind::TimedOut => (
                Code::Network,
                "check the address, that the path leads there (`--path IFACE,gateway=ADDR` where its network has no default route), and that no firewall on the way drops the packets",
            ),
            Kind::NetworkUnreachable | Kind::HostUnreachable => (
                Code::Network,
                "`ip route get ADDRESS` shows how this host would reach it",
            ),
            Kind::Unsupported => (Code::Network, "use --help to see the other protocols"),
            Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::BrokenPipe
            | Kind::UnexpectedEof
            | Kind::NotConnected => (Code::Network, ""),
            Kind::StorageFull | Kind::QuotaExceeded => (
                Code::Failure,
                "make room on the disk, or write somewhere else",
            ),
            _ => (Code::Failure, ""),
        };
        let failure = Self::new(code, message);
        if hint.is_empty() {
            failure
        } else {
            failure.hint(hint)
        }
    }

    /// A file that could not be written. The capabilities that networks need would not help with it.
    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        let failure = Self::from_io(
            format!("cannot write {}: {error}", path.display()),
            error.kind(),
        );
        Self {
            code: Code::Failure,
            hint: failure
                .hint
                .filter(|_| error.kind() != io::ErrorKind::PermissionDenied),
            ..failure
        }
    }

    /// Standard output could not be written. A reader that went away (`| head`) has seen enough: it hears nothing of it.
    pub(crate) fn stdout(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Code::Failure, "");
        }
        Self::file(Path::new("standard output"), error)
    }

    /// Nobody reads what the command says.
    pub(crate) fn is_unread(&self) -> bool {
        self.message.is_empty()
    }

    /// Says on standard error why, if there is anything to say.
    pub(crate) fn tell(&self) {
        if !self.message.is_empty() {
            say_always(&format!("manypath: {self}"));
        }
    }

    /// The code for the shell.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code.number())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

impl From<manypath_proxy::Error> for Failure {
    fn from(error: manypath_proxy::Error) -> Self {
        let kind = error.source.kind();
        let inner = error.source.get_ref();
        if inner.is_some_and(|inner| inner.is::<NoPathsAddress>()) {
            return Self::usage(error.to_string()).hint(
                "listen on 0.0.0.0 or [::], which serves programs of this host, too, on the address of a path, or by the host's TCP alone (tcp:)",
            );
        }
        let failure = Self::from_io(error.to_string(), kind);
        // Names that cannot be resolved have no kind of their own.
        if failure.code == Code::Failure {
            Self {
                code: Code::Network,
                ..failure
            }
        } else {
            failure
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_need_no_network_privilege() {
        let failure = Failure::file(Path::new("x"), &io::ErrorKind::PermissionDenied.into());
        assert_eq!((failure.code, failure.hint), (Code::Failure, None));
        let failure = Failure::file(Path::new("x"), &io::ErrorKind::StorageFull.into());
        assert!(failure.code == Code::Failure && failure.hint.is_some());
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure_of_the_network() {
        let failure = Failure::stdout(&io::ErrorKind::BrokenPipe.into());
        assert_eq!(
            (failure.code, failure.message.as_str()),
            (Code::Failure, "")
        );
        let failure = Failure::stdout(&io::ErrorKind::StorageFull.into());
        assert!(!failure.message.is_empty());
    }

    #[test]
    fn kinds_have_the_documented_codes() {
        for (kind, code) in [
            (io::ErrorKind::PermissionDenied, Code::Privilege),
            (io::ErrorKind::AddrInUse, Code::Network),
            (io::ErrorKind::ConnectionRefused, Code::Network),
            (io::ErrorKind::StorageFull, Code::Failure),
        ] {
            assert_eq!(Failure::from_io(String::new(), kind).code, code);
        }
        for code in [
            Code::Failure,
            Code::Usage,
            Code::Privilege,
            Code::Network,
            Code::Seeds,
            Code::Signal(1),
            Code::Signal(2),
            Code::Signal(15),
        ] {
            assert!(all_codes().contains(&format!("\n  {} ", code.number())));
        }
    }

    #[test]
    fn a_command_lists_the_codes_that_it_can_end_with() {
        let of = |ends| codes(ends, "why");
        let gauntlet = "5    a seed";
        for ends in [
            Ends::Service,
            Ends::Network,
            Ends::Control,
            Ends::Lab,
            Ends::Compute,
        ] {
            assert!(!of(ends).contains(gauntlet), "{}", of(ends));
        }
        assert!(of(Ends::Gauntlet).contains(gauntlet));
        assert!(!of(Ends::Gauntlet).contains("the network or the peer"));
        for ends in [Ends::Service, Ends::Reloaded] {
            assert!(!of(ends).contains("143 "), "it ends with 0 then");
        }
        assert!(!of(Ends::Reloaded).contains("SIGHUP"));
        assert!(of(Ends::Lab).contains("1    why"));
    }
}
