//! When and where a journal was begun. Numbers of network namespaces are used again, and a folder for temporary files may outlive a
//! boot: what such a journal lists is gone, and must not be undone on a host that only has the same number.

use crate::sys;
use rustix::net::{AddressFamily, SocketType, socket};
use std::fmt;

/// The start of its line.
const LINE: &str = "mark boot ";

/// A boot of the machine, and a network namespace of that boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// `None`: not known.
    boot: Option<String>,
    /// As [`sys::namespace_cookie`]; `None`: not known.
    cookie: Option<u64>,
}

impl Origin {
    /// Those of the calling thread.
    pub(crate) fn here() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None);
        Origin {
            boot: boot.ok().map(|id| id.trim().to_owned()),
            cookie: socket.ok().and_then(|s| sys::namespace_cookie(s).ok()),
        }
    }

    /// Those that a journal has; `None` for one of an earlier version.
    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        let mut lines = text.split(|b| *b == b'\n');
        let words = lines.find_map(|line| std::str::from_utf8(line).ok()?.strip_prefix(LINE))?;
        let (boot, cookie) = words.split_once(' ')?;
        Some(Origin {
            boot: (boot != "-").then(|| boot.to_owned()),
            cookie: cookie.parse().ok(),
        })
    }

    /// Whether that was another boot, or another namespace, than is here now.
    pub(crate) fn is_gone(&self, here: &Origin) -> bool {
        fn differ<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
            matches!((one, other), (Some(one), Some(other)) if one != other)
        }
        differ(self.boot.as_ref(), here.boot.as_ref())
            || differ(self.cookie.as_ref(), here.cookie.as_ref())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LINE}{} ", self.boot.as_deref().unwrap_or("-"))?;
        match self.cookie {
            Some(cookie) => write!(f, "{cookie}"),
            None => f.write_str("-"),
        }
    }
}
