//! Proportional rate reduction (RFC 6937, revised as RFC 9937): how much may leave during fast recovery.

/// The account of one fast recovery. All amounts in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Prr {
    recover_fs: u64,
    ssthresh: u64,
    delivered: u64,
    out: u64,
}

impl Prr {
    /// Recovery begins. `recover_fs` is what was outstanding and not yet delivered before the acknowledgement that began
    /// it; `ssthresh` is the window aimed at.
    pub fn begin(recover_fs: u32, ssthresh: u32) -> Prr {
        Prr {
            recover_fs: u64::from(recover_fs.max(1)),
            ssthresh: u64::from(ssthresh),
            delivered: 0,
            out: 0,
        }
    }

    /// Bytes left, first time or again.
    pub fn sent(&mut self, bytes: u32) {
        self.out += u64::from(bytes);
    }

    /// An acknowledgement reported `delivered` bytes; `pipe` bytes are now estimated to be in the network. `safe` says that it
    /// advanced the left edge and showed no further loss. Returns the congestion window to use until the next one; absent
    /// when nothing was delivered and the window stays as it is.
    pub fn on_ack(&mut self, delivered: u32, pipe: u32, safe: bool, mss: u32) -> Option<u32> {
        if delivered == 0 {
            return None;
        }
        self.delivered += u64::from(delivered);
        let (pipe, mss) = (u64::from(pipe), u64::from(mss));
        let allowed = if pipe > self.ssthresh {
            // As many bytes leave as were delivered, in the proportion of the windows.
            (self.delivered * self.ssthresh)
                .div_ceil(self.recover_fs)
                .saturating_sub(self.out)
        } else {
            // Catch up with the target: conservatively while losses go on, by one segment more where all is well.
            let bound = self
                .delivered
                .saturating_sub(self.out)
                .max(u64::from(delivered));
            let bound = if safe { bound + mss } else { bound };
            bound.min(self.ssthresh - pipe)
        };
        // The first retransmission is never held back.
        let allowed = if self.out == 0 {
            allowed.max(mss)
        } else {
            allowed
        };
        Some(u32::try_from(pipe + allowed).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: u32 = 1_000;

    #[test]
    fn the_window_shrinks_in_proportion() {
        // 20 segments out, the first lost, halved: one segment leaves for every two delivered (RFC 6937 section 4).
        let mut prr = Prr::begin(20 * MSS, 10 * MSS);
        let mut sent = 0;
        for acks in 1..=8 {
            let pipe = 19 * MSS - acks * MSS + sent;
            let cwnd = prr.on_ack(MSS, pipe, false, MSS).unwrap();
            if cwnd >= pipe + MSS {
                prr.sent(MSS);
                sent += MSS;
            }
            assert_eq!(
                sent,
                (acks / 2).max(1) * MSS,
                "after {acks} acknowledgements"
            );
        }
    }

    #[test]
    fn the_first_retransmission_leaves_at_once() {
        let mut prr = Prr::begin(100 * MSS, 50 * MSS);
        assert_eq!(prr.on_ack(10, 90 * MSS, false, MSS), Some(91 * MSS));
        prr.sent(MSS);
        assert_eq!(prr.on_ack(10, 90 * MSS, false, MSS), Some(90 * MSS));
        assert_eq!(prr.on_ack(0, 90 * MSS, false, MSS), None);
    }

    #[test]
    fn below_the_target_it_catches_up_only_as_fast_as_is_safe() {
        // Nearly everything was lost: 2 segments in the network, target 10.
        let mut prr = Prr::begin(20 * MSS, 10 * MSS);
        prr.sent(MSS);
        // Conservative: what was delivered. Safe: one segment more.
        assert_eq!(prr.on_ack(MSS, 2 * MSS, false, MSS), Some(3 * MSS));
        assert_eq!(prr.on_ack(MSS, 2 * MSS, true, MSS), Some(4 * MSS));
        // Never beyond the target.
        assert_eq!(prr.on_ack(30 * MSS, 9 * MSS, true, MSS), Some(10 * MSS));
    }

    proptest! {
        /// Whatever the pattern, a sender that obeys sends no more than was delivered plus one segment an acknowledgement,
        /// and never fills the network beyond the larger of the target and what was there.
        #[test]
        fn sending_never_outruns_delivery(
            start in 4u32..400, target in 2u32..200, steps in prop::collection::vec((0u32..4, any::<bool>()), 1..100),
        ) {
            let mut prr = Prr::begin(start * MSS, target * MSS);
            let (mut pipe, mut delivered, mut out, mut acks) = (start * MSS, 0u32, 0u32, 0u32);
            for (segments, safe) in steps {
                let now = (segments * MSS).min(pipe);
                pipe -= now;
                delivered += now;
                acks += 1;
                if let Some(cwnd) = prr.on_ack(now, pipe, safe, MSS) {
                    prop_assert!(cwnd <= (target * MSS).max(pipe + now + 2 * MSS));
                    let burst = cwnd.saturating_sub(pipe) / MSS * MSS;
                    prr.sent(burst);
                    pipe += burst;
                    out += burst;
                }
                prop_assert!(out <= delivered + acks * MSS);
            }
        }
    }
}
