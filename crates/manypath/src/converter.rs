//! Going through a Transport Converter (RFC 8803).

use manypath_io::convert::{Key, Via};
use std::io;
use std::net::SocketAddr;

/// A Transport Converter (RFC 8803), through which servers with TCP alone are reached over all paths: `manypath proxy` with
/// `opening = "convert"`, or another one. The first connection learns a token of it; from then on data travels with the SYN, and connecting takes no
/// longer than to the server itself. Copies share what was learnt.
///
/// ```
/// use manypath::{ConnectOptions, Converter};
///
/// # fn f() -> std::io::Result<()> {
/// let converter = Converter::new("192.0.2.1:1234".parse().unwrap()).key(b"a key that we share with it")?;
/// let options = ConnectOptions::new().via(converter);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converter(pub(crate) Via);

impl Converter {
    /// The converter at an address.
    #[must_use]
    pub fn new(at: SocketAddr) -> Self {
        Converter(Via::new(at))
    }

    /// Shows the converter that we have a key. It authorises; what is carried is as readable as without.
    ///
    /// # Errors
    /// `InvalidData` for a key of fewer than 16 bytes or more than 4,096.
    pub fn key(self, key: &[u8]) -> io::Result<Self> {
        Ok(Converter(self.0.key(Key::new(key)?)))
    }

    /// Goes straight to servers that have answered the converter with Multipath TCP in the last ten minutes: past the converter's
    /// limits, too. Off by default.
    #[must_use]
    pub fn direct(self, on: bool) -> Self {
        Converter(self.0.direct(on))
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.converter()
    }
}
