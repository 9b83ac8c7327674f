//! The Multipath TCP options of one segment, found by kind.

use crate::tcp::mptcp::{
    AddAddr, Capable, CapableKeys, Dss, Fail, FastClose, Join, MptcpOption, Prio, RemoveAddr, Reset,
};

/// The Multipath TCP options of one segment, in wire order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MptcpOptions {
    list: [Option<MptcpOption>; Self::CAPACITY],
}

impl MptcpOptions {
    /// More than a segment can usefully carry; every further one would make each segment's view larger.
    pub const CAPACITY: usize = 4;
    /// No option.
    pub const EMPTY: Self = Self {
        list: [None; Self::CAPACITY],
    };

    /// Takes all options out.
    pub(crate) fn clear(&mut self) {
        for place in &mut self.list {
            *place = None;
        }
    }

    /// Appends an option; false when the list is full.
    #[must_use]
    pub fn push(&mut self, option: MptcpOption) -> bool {
        match self.list.iter_mut().find(|place| place.is_none()) {
            Some(place) => {
                *place = Some(option);
                true
            }
            None => false,
        }
    }

    /// Gives the mapping among the options, whether it is a DSS or an MP_CAPABLE with data, this checksum in place of the
    /// one that it has.
    pub(crate) fn set_checksum(&mut self, checksum: u16) {
        let place = self
            .list
            .iter_mut()
            .flatten()
            .find_map(|option| match option {
                MptcpOption::Dss(dss) => dss.mapping.as_mut()?.checksum.as_mut(),
                MptcpOption::Capable(capable) => match &mut capable.keys {
                    CapableKeys::Data { checksum, .. } => checksum.as_mut(),
                    CapableKeys::Syn | CapableKeys::SynAck { .. } | CapableKeys::Ack { .. } => None,
                },
                _ => None,
            });
        if let Some(place) = place {
            *place = checksum;
        }
    }

    /// The options in wire order.
    pub fn iter(&self) -> impl Iterator<Item = &MptcpOption> {
        // They are appended, so that nothing is behind the first empty place.
        self.list.iter().map_while(Option::as_ref)
    }

    /// How many options there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// There is no option.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.list[0].is_none()
    }

    /// There is an option other than DSS, so a duplicate ACK that carries it is no sign of congestion
    /// (rfc8684:G1).
    #[must_use]
    pub fn has_signal(&self) -> bool {
        // rfc8684:G1 rfc8684:A15
        self.iter()
            .any(|option| !matches!(option, MptcpOption::Dss(_)))
    }

    /// The first MP_CAPABLE.
    #[must_use]
    pub fn capable(&self) -> Option<&Capable> {
        self.iter().find_map(|option| match option {
            MptcpOption::Capable(capable) => Some(capable),
            _ => None,
        })
    }

    /// The first MP_JOIN.
    #[must_use]
    pub fn join(&self) -> Option<&Join> {
        self.iter().find_map(|option| match option {
            MptcpOption::Join(join) => Some(join),
            _ => None,
        })
    }

    /// The first DSS.
    #[must_use]
    pub fn dss(&self) -> Option<&Dss> {
        self.iter().find_map(|option| match option {
            MptcpOption::Dss(dss) => Some(dss),
            _ => None,
        })
    }

    /// Every ADD_ADDR, echoes included.
    pub fn add_addrs(&self) -> impl Iterator<Item = &AddAddr> {
        self.iter().filter_map(|option| match option {
            MptcpOption::AddAddr(add) => Some(add),
            _ => None,
        })
    }

    /// Every REMOVE_ADDR.
    pub fn remove_addrs(&self) -> impl Iterator<Item = &RemoveAddr> {
        self.iter().filter_map(|option| match option {
            MptcpOption::RemoveAddr(remove) => Some(remove),
            _ => None,
        })
    }

    /// The first MP_PRIO.
    #[must_use]
    pub fn prio(&self) -> Option<Prio> {
        self.iter().find_map(|option| match option {
            MptcpOption::Prio(prio) => Some(*prio),
            _ => None,
        })
    }

    /// The first MP_FAIL.
    #[must_use]
    pub fn fail(&self) -> Option<Fail> {
        self.iter().find_map(|option| match option {
            MptcpOption::Fail(fail) => Some(*fail),
            _ => None,
        })
    }

    /// The first MP_FASTCLOSE.
    #[must_use]
    pub fn fastclose(&self) -> Option<FastClose> {
        self.iter().find_map(|option| match option {
            MptcpOption::FastClose(close) => Some(*close),
            _ => None,
        })
    }

    /// The first MP_TCPRST.
    #[must_use]
    pub fn reset(&self) -> Option<Reset> {
        self.iter().find_map(|option| match option {
            MptcpOption::Reset(reset) => Some(*reset),
            _ => None,
        })
    }
}

impl Default for MptcpOptions {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl FromIterator<MptcpOption> for MptcpOptions {
    /// Takes as many as fit.
    fn from_iter<I: IntoIterator<Item = MptcpOption>>(options: I) -> Self {
        let mut list = Self::EMPTY;
        for option in options {
            if !list.push(option) {
                break;
            }
        }
        list
    }
}

impl core::fmt::Debug for MptcpOptions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
