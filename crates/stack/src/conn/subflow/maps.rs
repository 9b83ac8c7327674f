//! The mappings of one subflow (RFC 8684 section 3.3), and the bytes that only it still needs.

use alloc::boxed::Box;
use alloc::vec::Vec;

use manypath_wire::checksum::Sum;

use crate::conn::dss::mapping::{RxMaps, TxMaps};
use crate::conn::dss::offset::Offset;
use crate::conn::subflow::duplicates::Duplicates;

/// What a subflow carries of the streams.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    pub(crate) tx: TxMaps,
    pub(crate) rx: RxMaps,
    /// Duplicates of other subflows' data that it carries.
    pub(crate) duplicates: Duplicates,
    /// Bytes with a Data ACK that the send queue freed while this subflow still has to retransmit them.
    retained: Vec<(Offset, Box<[u8]>)>,
}

impl Maps {
    /// Keeps acknowledged bytes that only this subflow still needs.
    pub(crate) fn retain(&mut self, at: Offset, bytes: Box<[u8]>) {
        self.retained.push((at, bytes));
    }

    /// Bytes of memory held beyond itself.
    pub(crate) fn memory(&self) -> usize {
        let retained: usize = self.retained.iter().map(|(_, bytes)| bytes.len()).sum();
        self.tx.memory() + self.rx.memory() + self.duplicates.memory() + retained
    }

    /// Frees what it no longer has to retransmit.
    pub(crate) fn release_retained(&mut self) {
        if self.retained.is_empty() {
            return;
        }
        let tx = &self.tx;
        self.retained.retain(|(at, bytes)| {
            let end = *at + bytes.len() as u64;
            tx.iter()
                .any(|m| m.at < end && *at < m.at + u64::from(m.len))
        });
    }

    /// Payload that only this subflow keeps; `None` if it does not have it.
    pub(crate) fn retained_payload(&self, at: Offset, out: &mut [u8]) -> Option<Sum> {
        let end = at + out.len() as u64;
        let (start, bytes) = self
            .retained
            .iter()
            .find(|(start, bytes)| *start <= at && end <= *start + bytes.len() as u64)?;
        let from = (at - *start) as usize;
        out.copy_from_slice(&bytes[from..from + out.len()]);
        Some(Sum::of(out))
    }
}
