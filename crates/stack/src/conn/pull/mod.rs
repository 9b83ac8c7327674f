//! Which bytes a subflow sends next: scheduler queries and their path views, reinjection, duplicates, reprobes.

pub(in crate::conn) mod data_ack_delay;
pub(in crate::conn) mod no_room;
pub(in crate::conn) mod path_view;
pub(in crate::conn) mod redundant;
pub(in crate::conn) mod reinject;
pub(in crate::conn) mod reprobe;
pub(in crate::conn) mod source;
