//! Why a target was not reached, told from the error of the socket or the resolver. Pure.

use std::io;

use crate::serve::Failure;

/// Whether an error says that the process, or the host, has no descriptor left.
pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

/// Why connecting failed.
pub(crate) fn of_connecting(error: &io::Error) -> Failure {
    use io::ErrorKind as Kind;
    const ENOBUFS: i32 = 105;
    if is_out_of_files(error) || error.raw_os_error() == Some(ENOBUFS) {
        return Failure::NoResources;
    }
    match error.kind() {
        Kind::ConnectionRefused | Kind::ConnectionReset => Failure::Refused,
        Kind::HostUnreachable => Failure::HostUnreachable,
        // No address of that family, a route that prohibits, an address without its link: there is no way.
        Kind::NetworkUnreachable
        | Kind::AddrNotAvailable
        | Kind::PermissionDenied
        | Kind::InvalidInput => Failure::NetworkUnreachable,
        Kind::TimedOut => Failure::TimedOut,
        Kind::OutOfMemory => Failure::NoResources,
        _ => Failure::Other,
    }
}

/// Why a name has no address.
pub(crate) fn of_resolving(error: &io::Error) -> Failure {
    if is_out_of_files(error) {
        return Failure::NoResources;
    }
    match error.kind() {
        io::ErrorKind::TimedOut => Failure::NameTimedOut,
        // As many names as may be are asked for.
        io::ErrorKind::ResourceBusy => Failure::NoResources,
        // The host's resolver has no kinds for what it says of a name.
        _ => Failure::NameNotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_the_system_is_told_apart() {
        for (code, wanted) in [
            (111, Failure::Refused),
            (104, Failure::Refused),
            (113, Failure::HostUnreachable),
            (101, Failure::NetworkUnreachable),
            (99, Failure::NetworkUnreachable),
            (13, Failure::NetworkUnreachable),
            (110, Failure::TimedOut),
            (24, Failure::NoResources),
            (105, Failure::NoResources),
            (12, Failure::NoResources),
        ] {
            let error = io::Error::from_raw_os_error(code);
            assert_eq!(of_connecting(&error), wanted, "{error}");
        }
        let error = io::Error::other("no such name");
        assert_eq!(of_resolving(&error), Failure::NameNotFound);
        let error = io::ErrorKind::TimedOut.into();
        assert_eq!(of_resolving(&error), Failure::NameTimedOut);
    }
}
