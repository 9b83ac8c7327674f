//! The increase of RFC 5681 section 3.1 in congestion avoidance, by bytes (RFC 3465 section 2.1).

use super::Window;

/// One segment more for every window of acknowledged bytes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Reno {
    /// Bytes acknowledged since the last increase.
    acked: u64,
}

impl Reno {
    /// Nothing acknowledged yet.
    pub fn new() -> Reno {
        Reno::default()
    }

    /// `acked` bytes were acknowledged in congestion avoidance.
    pub fn avoid(&mut self, window: &mut Window, acked: u32) {
        self.acked += u64::from(acked);
        // One acknowledgement grows the window by one segment at most (RFC 5681 section 3.1), and what a shrunken window
        // leaves over is not saved up for a burst of increases.
        if self.acked >= u64::from(window.cwnd()) {
            self.acked = (self.acked - u64::from(window.cwnd())).min(u64::from(window.cwnd()));
            window.set_cwnd(window.cwnd().saturating_add(window.mss()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn avoiding(cwnd: u32) -> Window {
        let mut window = Window::new(1_000, 10);
        window.set_cwnd(cwnd);
        window.leave_slow_start();
        window
    }

    #[test]
    fn a_window_of_acknowledged_bytes_adds_one_segment() {
        let (mut reno, mut window) = (Reno::new(), avoiding(10_000));
        for _ in 0..9 {
            reno.avoid(&mut window, 1_000);
        }
        assert_eq!(window.cwnd(), 10_000);
        reno.avoid(&mut window, 1_000);
        assert_eq!(window.cwnd(), 11_000);
    }

    #[test]
    fn small_acknowledgements_count_for_their_bytes_not_their_number() {
        // ACK division (RFC 3465 section 1): ten acknowledgements of 100 bytes are one of 1,000.
        let (mut reno, mut window) = (Reno::new(), avoiding(10_000));
        for _ in 0..99 {
            reno.avoid(&mut window, 100);
        }
        assert_eq!(window.cwnd(), 10_000);
        reno.avoid(&mut window, 100);
        assert_eq!(window.cwnd(), 11_000);
    }

    #[test]
    fn one_acknowledgement_adds_at_most_one_segment() {
        let (mut reno, mut window) = (Reno::new(), avoiding(10_000));
        reno.avoid(&mut window, 1_000_000);
        assert_eq!(window.cwnd(), 11_000);
        reno.avoid(&mut window, 0);
        assert_eq!(window.cwnd(), 11_000);
        reno.avoid(&mut window, 1_000);
        assert_eq!(
            window.cwnd(),
            12_000,
            "what is left over is at most one window"
        );
    }
}
