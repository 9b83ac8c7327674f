//! The data sequence space and its mappings onto subflows (RFC 8684 section 3.3).

pub(in crate::conn) mod mapping;
pub(in crate::conn) mod offset;
pub(in crate::conn) mod reset_reason;
