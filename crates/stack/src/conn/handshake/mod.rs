//! Handshakes of the first and of further subflows (RFC 8684 sections 3.1 and 3.2, appendix B).

pub(in crate::conn) mod fast_open;
pub(in crate::conn) mod first_data;
pub(in crate::conn) mod mp_capable;
pub(in crate::conn) mod mp_join;
pub(in crate::conn) mod option_retry;
