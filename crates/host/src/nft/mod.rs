//! nf_tables over netlink, without the program `nft`: what a table of ours holds ([`table`]), as the kernel reads it
//! ([`message`], [`expr`]), and the conversation ([`socket`]).
//!
//! Numbers and layouts are those of linux/netfilter/nf_tables.h and linux/netfilter/nfnetlink.h. The encoder is pure; its tests
//! compare with what nft(8) shows of a table that the kernel took.

pub(crate) mod expr;
pub(crate) mod message;
pub(crate) mod socket;
pub(crate) mod table;
