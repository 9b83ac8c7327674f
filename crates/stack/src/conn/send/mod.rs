//! The send side of a connection: the queue, what is retransmitted at data level and when.

pub(in crate::conn) mod data_rto;
pub(in crate::conn) mod flight;
pub(in crate::conn) mod queue;
pub(in crate::conn) mod retain;
pub(in crate::conn) mod retransmit;
pub(in crate::conn) mod ring;
