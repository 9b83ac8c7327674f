//! Limits of what is sent: by path, by class of connections and by connection.

pub(crate) mod order;
