//! The sender's answer to echoed congestion marks: at most one reduction a window (RFC 3168 section 6.1.2).

/// Remembers up to where the present reduction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EcnEcho {
    /// Everything sent before this count of bytes left before the reduction.
    until: Option<u64>,
}

impl EcnEcho {
    /// No reduction yet.
    pub const fn new() -> EcnEcho {
        EcnEcho { until: None }
    }

    /// An acknowledgement carried the echo. True if the sender must reduce now, which it then has done for everything
    /// sent so far: `acked_total` and `sent_total` count the bytes ever acknowledged and ever sent.
    pub fn on_echo(&mut self, acked_total: u64, sent_total: u64) -> bool {
        if self.until.is_some_and(|until| acked_total < until) {
            return false;
        }
        self.until = Some(sent_total);
        true
    }

    /// A loss reduced the window: an echo for the same window calls for no second reduction.
    pub fn on_other_reduction(&mut self, sent_total: u64) {
        self.until = Some(sent_total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_window_is_reduced_once() {
        let mut ecn = EcnEcho::new();
        assert!(ecn.on_echo(1_000, 11_000));
        assert!(!ecn.on_echo(2_000, 12_000));
        assert!(!ecn.on_echo(10_999, 21_000));
        assert!(
            ecn.on_echo(11_000, 21_500),
            "an echo from beyond the reduction counts again"
        );
        ecn.on_other_reduction(30_000);
        assert!(!ecn.on_echo(29_999, 31_000));
        assert!(ecn.on_echo(30_000, 31_000));
    }
}
