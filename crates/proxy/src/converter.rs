//! The converter (RFC 8803) that connections of our stack go through, by address or by name.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use manypath_io::convert::{Key, Via};

use crate::endpoint::HostPort;

/// Which converter, as a configuration has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConverterSpec {
    /// Where it is.
    pub at: HostPort,
    /// The file with the key that it wants to be shown.
    pub key: Option<PathBuf>,
    /// Goes past it to servers that have answered it with Multipath TCP.
    pub direct: bool,
}

/// A converter. Copies know the same of it.
#[derive(Clone, Debug)]
pub struct Converter {
    at: HostPort,
    key: Option<Key>,
    direct: bool,
    /// What is known of it, at the address that it had last.
    known: Arc<Mutex<Option<Via>>>,
}

impl ConverterSpec {
    /// Reads the key.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn open(&self) -> Result<Converter, String> {
        let read = |path: &PathBuf| {
            Key::read(path).map_err(|error| format!("cannot use {}: {error}", path.display()))
        };
        Ok(Converter {
            at: self.at.clone(),
            key: self.key.as_ref().map(read).transpose()?,
            direct: self.direct,
            known: Arc::default(),
        })
    }
}

impl Converter {
    /// Where it is.
    #[must_use]
    pub fn at(&self) -> &HostPort {
        &self.at
    }

    /// The converter at the address that its name has now. What was learnt of another address is forgotten.
    pub(crate) fn by(&self, address: SocketAddr) -> Via {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(via) = known.as_ref().filter(|via| via.converter() == address) {
            return via.clone();
        }
        let via = Via::new(address).direct(self.direct);
        let via = match &self.key {
            Some(key) => via.key(key.clone()),
            None => via,
        };
        known.insert(via).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_a_converter_stays_as_long_as_its_address() {
        let spec = ConverterSpec {
            at: "converter.example:5124".parse().expect("a place"),
            key: None,
            direct: true,
        };
        let converter = spec.open().expect("no key to read");
        let [one, two] =
            ["192.0.2.1:5124", "192.0.2.2:5124"].map(|a| a.parse().expect("a literal"));
        assert_eq!(converter.by(one), converter.clone().by(one));
        assert_eq!(converter.by(one).converter(), one);
        assert_eq!(converter.by(two).converter(), two);
    }

    #[test]
    fn a_key_that_cannot_be_read_is_told() {
        let spec = ConverterSpec {
            at: "192.0.2.1:5124".parse().expect("a place"),
            key: Some("/nowhere/key".into()),
            direct: false,
        };
        let why = spec.open().expect_err("there is none");
        assert!(why.contains("/nowhere/key"), "{why}");
    }
}
