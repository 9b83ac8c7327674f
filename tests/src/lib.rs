//! What the integration tests are made of: a network of namespaces with the Linux kernel at one end and the `manypath`
//! program at the other, sockets of the kernel, and transfers that are checked byte by byte.
#![forbid(unsafe_code)]

pub mod capture;
pub mod net;
pub mod nginx;
pub mod pair;
pub mod peer;
pub mod program;
pub mod routed;
pub mod script;
pub mod transfer;
pub mod until;

/// Whether the long versions of the tests are wanted (`MANYPATH_BIG=1`): sizes and numbers ten times as large.
#[must_use]
pub fn is_big() -> bool {
    std::env::var_os("MANYPATH_BIG").is_some_and(|value| value != "0")
}

/// `small` in a normal run, `large` in a long one; the variable `name` in the environment overrides both.
#[must_use]
pub fn amount(name: &str, small: u64, large: u64) -> u64 {
    match std::env::var(name).map(|text| text.parse()) {
        Ok(Ok(value)) => value,
        _ if is_big() => large,
        _ => small,
    }
}
