//! Which extensions both ends agreed to: decided by the options of the two SYNs alone.

use manypath_wire::ids::Mss;
use manypath_wire::segment::Segment;
use manypath_wire::tcp::header::Flags;
use manypath_wire::tcp::options::Options;
use manypath_wire::window::WindowScale;

use super::config::Config;

/// What a peer accepts when its SYN carries no MSS option (RFC 9293 section 3.7.1).
const DEFAULT_MSS_V4: u16 = 536;
const DEFAULT_MSS_V6: u16 = 1220;

/// Payload bytes of a segment without options (Linux's `TCP_MIN_MSS`). A peer that announces less, or an interface that carries less,
/// is served with this much: 40 bytes of options must leave room for payload.
pub const SMALLEST_MSS: u16 = 88;

/// What a data segment spends on timestamps: ten bytes and two of padding (RFC 7323 appendix A).
pub(super) const TIMESTAMPS_LEN: u32 = 12;

/// Shifts of the windows, where both SYNs carry (or will carry) the window scale option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scaling {
    /// Of the windows we send.
    recv: WindowScale,
    /// Of the windows the peer sends.
    send: WindowScale,
}

/// What holds for the life of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) timestamps: bool,
    pub(super) sack: bool,
    pub(super) ecn: bool,
    scaling: Option<Scaling>,
    pub(super) peer_mss: u16,
}

impl Agreed {
    /// Before the peer's SYN: what we shall offer.
    pub(super) fn hoped(cfg: &Config) -> Agreed {
        Agreed {
            timestamps: cfg.options.timestamps,
            sack: cfg.options.sack,
            ecn: cfg.congestion.ecn,
            scaling: cfg.options.window_scaling.then_some(Scaling {
                recv: WindowScale::NONE,
                send: WindowScale::NONE,
            }),
            peer_mss: cfg.mss,
        }
    }

    /// The peer's SYN or SYN+ACK answers or opens the negotiation: an option counts when both sides have it.
    pub(super) fn with_peer(cfg: &Config, seg: &Segment<'_>) -> Agreed {
        let o = &seg.options;
        // RFC 7323 2.2: scaling takes effect only when both SYNs carry the option.
        let shift = o.window_scale.filter(|_| cfg.options.window_scaling);
        let default = if seg.tuple.is_ipv6() {
            DEFAULT_MSS_V6
        } else {
            DEFAULT_MSS_V4
        };
        Agreed {
            timestamps: cfg.options.timestamps && o.timestamps.is_some(),
            sack: cfg.options.sack && o.sack_permitted,
            ecn: cfg.congestion.ecn && asks_for_ecn(seg.header.flags),
            scaling: shift.map(|shift| Scaling {
                recv: WindowScale::for_window(cfg.recv_window),
                send: WindowScale::new(shift),
            }),
            peer_mss: o.mss.map_or(default, |Mss(mss)| mss).max(SMALLEST_MSS),
        }
    }

    /// Shift of the windows we send.
    pub(super) fn recv_scale(&self) -> WindowScale {
        self.scaling
            .map_or(WindowScale::NONE, |scaling| scaling.recv)
    }

    /// Shift of the windows the peer sends.
    pub(super) fn send_scale(&self) -> WindowScale {
        self.scaling
            .map_or(WindowScale::NONE, |scaling| scaling.send)
    }
}

/// RFC 3168 section 6.1.1: a SYN asks with ECE and CWR, a SYN+ACK agrees with ECE alone.
fn asks_for_ecn(flags: Flags) -> bool {
    if flags.ack() {
        flags.contains(Flags::ECE) && !flags.contains(Flags::CWR)
    } else {
        flags.contains(Flags::ECE.with(Flags::CWR))
    }
}

/// The options of our SYN (of what is hoped for) or SYN+ACK (of what is agreed), but for timestamps.
pub(super) fn syn_options(cfg: &Config, agreed: &Agreed) -> Options {
    Options {
        mss: Some(Mss(cfg.mss)),
        sack_permitted: agreed.sack,
        window_scale: agreed
            .scaling
            .map(|_| WindowScale::for_window(cfg.recv_window).shift()),
        ..Options::default()
    }
}
