//! One segment in, one segment out, through all parts in their order.

pub(in crate::conn) mod ingest;
pub(in crate::conn) mod input;
pub(in crate::conn) mod offer;
pub(in crate::conn) mod options;
pub(in crate::conn) mod output;
pub(in crate::conn) mod packet;
