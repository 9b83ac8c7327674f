//! Interfaces by what a rename leaves as it is.
//!
//! A note of a change outlives the process, so the index alone is not enough: another device may have it by then. Notes of an earlier
//! boot, or of a namespace that is gone, are never compared: see [`crate::journal`].

use crate::netlink::ask;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use std::fmt;
use std::fs;
use std::io;
use std::str::FromStr;

/// An interface as it was when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Interface {
    index: u32,
    name: String,
    /// `ARPHRD_...`, which a device keeps.
    kind: u16,
    /// The hardware address; empty where there is none.
    address: Vec<u8>,
    /// The one from its maker, which nobody can change; empty where the kernel knows none.
    permanent: Vec<u8>,
}

impl Interface {
    /// The interface of that index in the network namespace of the thread; `None` if there is none.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn of(index: u32) -> io::Result<Option<Self>> {
        let mut question = LinkMessage::default();
        question.header.index = index;
        Self::asked(question)
    }

    /// All that IPv6 knows, but the loopback.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn all() -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc/sys/net/ipv6/conf")? {
            let name = entry?.file_name().into_string();
            let Some(name) = name
                .ok()
                .filter(|n| !["all", "default", "lo"].contains(&n.as_str()))
            else {
                continue;
            };
            let mut question = LinkMessage::default();
            question.attributes.push(LinkAttribute::IfName(name));
            found.extend(Self::asked(question)?);
        }
        Ok(found)
    }

    fn asked(question: LinkMessage) -> io::Result<Option<Self>> {
        let link = match ask(Message::GetLink(question)) {
            Ok(Message::NewLink(link)) => link,
            Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let mut found = Interface {
            index: link.header.index,
            name: String::new(),
            kind: link.header.link_layer_type.into(),
            address: Vec::new(),
            permanent: Vec::new(),
        };
        for attribute in link.attributes {
            match attribute {
                LinkAttribute::IfName(name) => found.name = name,
                LinkAttribute::Address(address) => found.address = address,
                LinkAttribute::PermAddress(address) => found.permanent = address,
                _ => {}
            }
        }
        Ok(Some(found))
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The name that this device has now; `None` if it is gone, even where another one has its index.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn name_now(&self) -> io::Result<Option<String>> {
        let now = Interface::of(self.index)?;
        Ok(now.filter(|now| self.is(now)).map(|now| now.name))
    }

    /// Whether both are the same device. Its maker's address decides, where both have one. Without it either the name or the
    /// address may have changed; a device that has another name and another address is another one.
    fn is(&self, now: &Interface) -> bool {
        if (self.index, self.kind) != (now.index, now.kind) {
            return false;
        }
        if !self.permanent.is_empty() && !now.permanent.is_empty() {
            return self.permanent == now.permanent;
        }
        self.name == now.name || self.address == now.address
    }
}

/// Bytes as hexadecimal digits, which any name or address can be; `-` if there are none.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("-"),
            bytes => bytes.iter().try_for_each(|b| write!(f, "{b:02x}")),
        }
    }
}

/// Undoes [`Hex`].
fn bytes(text: &str) -> Option<Vec<u8>> {
    if text == "-" {
        return Some(Vec::new());
    }
    if text.is_empty() || text.len() % 2 != 0 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

/// Five words.
impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, address) = (Hex(self.name.as_bytes()), Hex(&self.address));
        let permanent = Hex(&self.permanent);
        write!(
            f,
            "{} {name} {} {address} {permanent}",
            self.index, self.kind
        )
    }
}

impl FromStr for Interface {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let words: Vec<&str> = text.split(' ').collect();
        let [index, name, kind, address, permanent] = words[..] else {
            return Err(());
        };
        Ok(Interface {
            index: index.parse().map_err(|_| ())?,
            name: String::from_utf8(bytes(name).ok_or(())?).map_err(|_| ())?,
            kind: kind.parse().map_err(|_| ())?,
            address: bytes(address).ok_or(())?,
            permanent: bytes(permanent).ok_or(())?,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn interface(index: u32, name: &str, address: &[u8], permanent: &[u8]) -> Interface {
        Interface {
            index,
            name: name.to_owned(),
            kind: 1,
            address: address.to_vec(),
            permanent: permanent.to_vec(),
        }
    }

    #[test]
    fn a_device_is_known_again() {
        let (a, b) = (&[2, 0, 0, 0, 0, 0xa][..], &[2, 0, 0, 0, 0, 0xb][..]);
        let modem = interface(5, "wwan0", &[], &[]);
        let other_kind = Interface {
            kind: 65_534,
            ..modem.clone()
        };
        for (what, noted, now, same) in [
            (
                "renamed",
                interface(5, "v1", a, &[]),
                interface(5, "v9", a, &[]),
                true,
            ),
            (
                "another address",
                interface(5, "v1", a, &[]),
                interface(5, "v1", b, &[]),
                true,
            ),
            (
                "both, and its maker's address",
                interface(5, "wlan0", a, b),
                interface(5, "wlp1s0", b, b),
                true,
            ),
            (
                "a modem without an address, renamed",
                modem.clone(),
                interface(5, "lte0", &[], &[]),
                true,
            ),
            (
                "the index of one that is gone",
                interface(5, "v1", a, &[]),
                interface(5, "v9", b, &[]),
                false,
            ),
            (
                "its name and index, by another maker",
                interface(5, "eth0", a, a),
                interface(5, "eth0", b, b),
                false,
            ),
            (
                "plugged in again",
                interface(5, "v1", a, a),
                interface(6, "v1", a, a),
                false,
            ),
            ("another kind", modem, other_kind, false),
        ] {
            assert_eq!(noted.is(&now), same, "{what}");
        }
    }

    #[test]
    fn any_name_and_address_can_be_written_down() {
        for noted in [
            interface(5, "v1", &[2, 0, 0, 0, 0, 0xa], &[]),
            interface(1, "é%0\u{7f}", &[], &[0xff; 20]),
        ] {
            let text = noted.to_string();
            assert!(text.bytes().all(|b| matches!(b, b' '..=b'~')), "{text}");
            assert_eq!(text.parse(), Ok(noted));
        }
        for bad in [
            "5 7631 1 -",
            "5 763 1 - -",
            "5 76é1 1 - -",
            "x 7631 1 - -",
            "",
        ] {
            assert_eq!(bad.parse::<Interface>(), Err(()), "{bad}");
        }
    }

    #[test]
    fn the_kernel_is_asked_for_an_index() {
        let loopback = Interface::of(1).expect("it answers").expect("it is there");
        assert_eq!(loopback.name(), "lo");
        assert_eq!(loopback.name_now().expect("it answers"), Some("lo".into()));
        assert_eq!(Interface::of(0x7fff_fff0).expect("it answers"), None);
    }
}
