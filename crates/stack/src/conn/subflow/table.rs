//! The subflows of a connection, with what they share.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use manypath_tcp::cc::PathSample;
use manypath_tcp::time::Instant;
use manypath_wire::ids::FourTuple;

use crate::api::{ConnOptions, EndedSubflow};
use crate::conn::subflow::admission_round::Admission;
use crate::conn::subflow::{LastAck, Subflow};
use crate::conn::types::SubflowIdx;
use crate::ids::SubflowId;

/// A subflow that the stack has to remove from its tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemovedSubflow {
    pub(crate) subflow: SubflowId,
    pub(crate) tuple: FourTuple,
    /// Its last acknowledgement, where it is in TIME-WAIT.
    pub(crate) last_ack: Option<LastAck>,
}

/// The subflows of a connection.
#[derive(Debug)]
pub(crate) struct Subflows {
    pub(in crate::conn) list: Vec<Subflow>,
    /// Samples for coupled congestion control, in step with `list`.
    pub(in crate::conn) samples: Vec<PathSample>,
    pub(in crate::conn) next_id: u8,
    pub(in crate::conn) ended: VecDeque<EndedSubflow>,
    pub(in crate::conn) removed: Vec<RemovedSubflow>,
    /// Other subflows than that of the present segment may be affected.
    pub(in crate::conn) dirty: bool,
    /// Another subflow came up once.
    pub(in crate::conn) joined: bool,
    /// A subflow ended without any Data ACK of its data.
    pub(in crate::conn) new_one_lost: bool,
    /// Subflows probed before one is evicted to admit a join.
    pub(in crate::conn) admission: Admission,
    pub(in crate::conn) watch: Watch,
    /// The longest burst that limits of the connection let leave at once, bytes.
    pub(crate) longest_burst: u32,
}

/// The receiver's probes, of all subflows together.
#[derive(Debug)]
pub(crate) struct Watch {
    /// When payload last arrived on any subflow.
    pub(in crate::conn) last_payload: Instant,
    /// Some subflow is not checked until payload arrives.
    pub(in crate::conn) paused: bool,
}

impl Subflows {
    pub(in crate::conn) fn new(now: Instant) -> Self {
        Self {
            list: Vec::new(),
            samples: Vec::new(),
            next_id: 0,
            ended: VecDeque::new(),
            removed: Vec::new(),
            dirty: true,
            joined: false,
            new_one_lost: false,
            admission: Admission::default(),
            longest_burst: u32::MAX,
            watch: Watch {
                last_payload: now,
                paused: false,
            },
        }
    }

    pub(in crate::conn) fn add(&mut self, subflow: Subflow) {
        self.samples.push(subflow.sample());
        self.list.push(subflow);
    }

    pub(in crate::conn) fn remove(&mut self, i: SubflowIdx) -> Subflow {
        self.samples.remove(i.0);
        self.list.remove(i.0)
    }

    pub(in crate::conn) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The oldest.
    pub(in crate::conn) fn first(&self) -> Option<&Subflow> {
        self.list.first()
    }

    pub(in crate::conn) fn iter(&self) -> core::slice::Iter<'_, Subflow> {
        self.list.iter()
    }

    pub(in crate::conn) fn iter_mut(&mut self) -> core::slice::IterMut<'_, Subflow> {
        self.list.iter_mut()
    }

    /// The names of all that there are now. A loop over them must not remove any.
    pub(in crate::conn) fn indices(&self) -> impl DoubleEndedIterator<Item = SubflowIdx> + use<> {
        (0..self.list.len()).map(SubflowIdx)
    }

    /// The same, each once, from one of them on.
    pub(in crate::conn) fn indices_from(
        &self,
        from: SubflowIdx,
    ) -> impl Iterator<Item = SubflowIdx> + use<> {
        let (len, from) = (self.list.len(), from.0.min(self.list.len()));
        (from..len).chain(0..from).map(SubflowIdx)
    }

    pub(in crate::conn) fn each(&self) -> impl DoubleEndedIterator<Item = (SubflowIdx, &Subflow)> {
        let number = |(i, sf)| (SubflowIdx(i), sf);
        self.list.iter().enumerate().map(number)
    }

    /// The first subflow of which this is true.
    pub(in crate::conn) fn position(&self, is: impl FnMut(&Subflow) -> bool) -> Option<SubflowIdx> {
        self.list.iter().position(is).map(SubflowIdx)
    }

    /// The subflow with this identity.
    pub(in crate::conn) fn find(&self, id: SubflowId) -> Option<SubflowIdx> {
        self.position(|sf| sf.id() == id)
    }

    pub(in crate::conn) fn refresh_sample(&mut self, i: SubflowIdx) {
        self.samples[i.0] = self.list[i.0].sample();
    }

    /// Bytes of memory held beyond itself.
    pub(in crate::conn) fn memory(&self) -> usize {
        self.list.iter().map(Subflow::memory).sum::<usize>()
            + self.list.capacity() * size_of::<Subflow>()
            + self.ended.capacity() * size_of::<EndedSubflow>()
    }

    /// Subflows removed since the last call.
    pub(crate) fn take_removed(&mut self) -> Vec<RemovedSubflow> {
        core::mem::take(&mut self.removed)
    }

    pub(crate) fn was_removed(&self) -> bool {
        !self.removed.is_empty()
    }

    /// Something outside of it changed: all its subflows are to be checked.
    pub(crate) fn mark_dirty(&mut self) {
        self.dirty = true;
    }

    /// A segment was sent or arrived on a subflow. Algorithms that are not coupled never read the samples.
    pub(in crate::conn) fn refresh_sample_if_coupled(&mut self, opts: &ConnOptions, i: SubflowIdx) {
        if opts.congestion.is_coupled() {
            self.refresh_sample(i);
        }
    }
}

impl Index<SubflowIdx> for Subflows {
    type Output = Subflow;

    fn index(&self, i: SubflowIdx) -> &Subflow {
        &self.list[i.0]
    }
}

impl IndexMut<SubflowIdx> for Subflows {
    fn index_mut(&mut self, i: SubflowIdx) -> &mut Subflow {
        &mut self.list[i.0]
    }
}

impl<'a> IntoIterator for &'a Subflows {
    type Item = &'a Subflow;
    type IntoIter = core::slice::Iter<'a, Subflow>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

impl<'a> IntoIterator for &'a mut Subflows {
    type Item = &'a mut Subflow;
    type IntoIter = core::slice::IterMut<'a, Subflow>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter_mut()
    }
}
