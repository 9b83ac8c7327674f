//! How many bytes each interface has carried, whatever became of its device.

use std::collections::BTreeMap;

/// Interfaces without a device whose bytes are remembered.
const MOST: usize = 1024;

/// Bytes of IP packets, with the headers of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// That left. Packets that a device then dropped count.
    pub sent: u64,
    /// That arrived. Of packets that the device had joined the headers are reckoned from its MTU.
    pub received: u64,
}

impl Traffic {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            received: self.received + other.received,
        }
    }
}

/// What interfaces carried whose devices are gone: one of that name may come back.
#[derive(Debug, Default)]
pub(super) struct Gone(BTreeMap<String, Traffic>);

impl Gone {
    /// The device of an interface goes.
    pub(super) fn add(&mut self, name: &str, traffic: Traffic) {
        if self.0.len() >= MOST && !self.0.contains_key(name) {
            return;
        }
        let known = self.0.entry(name.to_owned()).or_default();
        *known = known.and(traffic);
    }

    /// With what the devices have carried that are there.
    pub(super) fn with<'a>(
        &self,
        there: impl Iterator<Item = (&'a str, Traffic)>,
    ) -> BTreeMap<String, Traffic> {
        let mut all = self.0.clone();
        for (name, traffic) in there {
            let known = all.entry(name.to_owned()).or_default();
            *known = known.and(traffic);
        }
        all
    }
}

/// Bytes of TCP and IP headers of an ordinary segment of data: IPv4, and the option of the timestamps or of a mapping.
const HEADERS: usize = 52;

/// Bytes that were on the wire of a packet that the device gave us.
pub(super) fn received(len: usize, joined: bool, mtu: u16) -> u64 {
    let mss = usize::from(mtu).saturating_sub(HEADERS).max(1);
    let packets = match joined {
        true => len.saturating_sub(HEADERS).div_ceil(mss).max(1),
        false => 1,
    };
    (len + (packets - 1) * HEADERS) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_comes_back_goes_on_counting() {
        let (one, two) = (
            Traffic {
                sent: 1,
                received: 10,
            },
            Traffic {
                sent: 2,
                received: 20,
            },
        );
        let mut gone = Gone::default();
        gone.add("ppp0", one);
        gone.add("ppp0", one);
        let all = gone.with([("ppp0", two), ("eth0", two)].into_iter());
        let ppp = Traffic {
            sent: 4,
            received: 40,
        };
        assert_eq!(
            all,
            [("eth0".to_owned(), two), ("ppp0".to_owned(), ppp)].into()
        );
        for n in 0..2 * MOST {
            gone.add(&n.to_string(), one);
        }
        assert_eq!(gone.0.len(), MOST);
    }

    #[test]
    fn packets_that_were_joined_had_headers_each() {
        assert_eq!(received(1500, false, 1500), 1500);
        assert_eq!(received(52 + 1448, true, 1500), 1500);
        assert_eq!(received(52 + 4 * 1448, true, 1500), 4 * 1500);
        assert_eq!(received(0, true, 0), 0);
    }
}
