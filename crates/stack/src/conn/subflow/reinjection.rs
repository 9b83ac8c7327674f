//! What was sent again of one subflow's data, and why it had to be (RFC 8684 section 3.3.6).

use manypath_wire::seq::Ssn;

use crate::conn::dss::offset::Offset;
use crate::conn::subflow::acked_below::SubflowAckedOnly;
use crate::conn::subflow::data_ack_delay::DataAckDelay;

/// Reinjection of a subflow's data on others.
#[derive(Debug, Default)]
pub(crate) struct Reinjection {
    /// What is mapped before this SSN was reinjected since the subflow last answered.
    pub(crate) reinjected_below: Option<Ssn>,
    /// End of its data that another one retransmitted opportunistically: the window or the buffer was full, the stream ended, or the writer
    /// paused.
    pub(crate) opportunistic_to: Offset,
    /// The next SSN when it was penalised; it may be again when everything before is acknowledged.
    pub(crate) penalised: Option<Ssn>,
    /// How often it was reprobed after a rest.
    pub(crate) reprobes: u32,
    /// Data acked at subflow level only.
    pub(crate) subflow_acked_only: SubflowAckedOnly,
    /// How much later than the subflow's ACK the Data ACK arrives.
    pub(crate) data_ack_delay: DataAckDelay,
}
