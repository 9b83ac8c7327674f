//! SYNs that are answered without being remembered, and third packets that bring everything back (RFC 4987 section 3.6,
//! RFC 8684 section 3.1).
//!
//! Joins need none of this: a joining SYN names a connection by its token, and the handshakes that one connection may
//! have under way are few. Their third packet has no token, so a host that forgot the SYN could not tell whose it is.

use manypath_tcp::machine::{Decision, Machine, Offer};
use manypath_tcp::time::Duration;
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::{Flags, Header};
use manypath_wire::tcp::mptcp::{Capable, CapableKeys, MptcpOption};
use manypath_wire::tcp::options::{Options, Timestamps};

use super::Stack;
use super::open::Draft;
use crate::api::{ConnOptions, IfaceId, Mode, Path, Role};
use crate::conn::{Third, capable_of, third_of};
use crate::crypto::cookie::{self, Recalled};
use crate::crypto::keys::KeyMaterial;
use crate::ids::{ListenerId, SubflowId};
use crate::slab::Handle;

/// When SYNs are answered without being remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SynCookiePolicy {
    /// Never: SYNs beyond the backlog are dropped.
    Never,
    /// When the backlog is full of handshakes that are younger than a round trip may be.
    #[default]
    WhenFull,
    /// Always.
    Always,
}

/// Third packets may come so long after a cookie was made.
const LIFETIME: Duration = Duration::from_secs(128);
/// How long a peer may go on with what follows a third packet that was dropped: its first data is repeated with growing timeouts
/// (RFC 6298 section 2.5 bounds them at 60 s at least).
const REPEATED_FOR: Duration = Duration::from_secs(60);

impl Stack {
    /// Answers a SYN and forgets it. The draft's options and the offer are those an ordinary handshake would use.
    pub(super) fn answer_by_cookie(
        &mut self,
        iface: IfaceId,
        seg: &Segment<'_>,
        opts: &ConnOptions,
        path: &Path,
        offer: Option<Capable>,
    ) {
        let (now, tuple, irs) = (self.now, seg.tuple, seg.header.seq);
        let isn = self.syn_cookies.isn(now, &tuple, irs, seg.options.mss);
        let offset = self.isn.timestamp_offset(&tuple);
        let config = self.cookie_config(opts, path, offset);
        let mut tcp = Machine::accept(config, now, isn, seg);
        tcp.set_recv_window(self.config.unaccepted_window);
        let nothing = Offer {
            available: 0,
            fin: false,
            option_space: 0,
            max_burst: 0,
            push: false,
            no_nagle: false,
            probe_new: false,
        };
        let Decision::Send(plan) = tcp.decide(now, &nothing) else {
            return;
        };
        let (header, mut options) = tcp.header(now, &plan);
        match &mut options.timestamps {
            Some(stamps) => {
                let clock = stamps.val.wrapping_sub(offset);
                stamps.val = cookie::stamp_with(clock, &seg.options).wrapping_add(offset);
            }
            // There is nowhere to keep them.
            None => {
                options.window_scale = None;
                options.sack_permitted = false;
            }
        }
        if let Some(offer) = offer {
            let (demux, home) = (&self.demux, self.config.token_home);
            let in_use =
                |made: &KeyMaterial| demux.token(made.token).is_some() || !home.owns(made.token);
            // rfc8684:C7,C8
            if let Some(made) = self.syn_cookies.key(now, &tuple, irs, in_use) {
                let checksum = opts.checksum || offer.checksum_required;
                let keys = CapableKeys::SynAck { sender: made.key() };
                let taken = options
                    .mptcp
                    .push(MptcpOption::Capable(Capable::v1(checksum, keys)));
                debug_assert!(taken, "the list was empty");
            }
        }
        let header = Header {
            src_port: tuple.local.port(),
            dst_port: tuple.remote.port(),
            ..header
        };
        if self.replies.answer(iface, tuple, header, options) {
            self.counters.syn_cookie_sent += 1;
            self.cookies_until = now + LIFETIME;
        } else {
            self.counters.syn_backlog_full += 1;
        }
    }

    /// Without a place to keep it, congestion notification is not negotiated.
    fn cookie_config(
        &self,
        opts: &ConnOptions,
        path: &Path,
        offset: u32,
    ) -> manypath_tcp::machine::Config {
        let mut config = self.machine_config(opts, path, offset);
        config.congestion.ecn = false;
        config
    }

    /// A segment that belongs to nothing may be the third packet of a handshake that was forgotten. True: it was dealt
    /// with. Any other gets its reset (RFC 9293 section 3.10.7.2), as without cookies. Data that overtook the third packet gets one, too:
    /// nothing in it shows that it belongs to a handshake, and its connection is lost with it, which is counted. But where third packets were
    /// dropped for want of room, what follows them gets none: those peers repeat their first data, which is a third packet as well.
    pub(super) fn handle_third(&mut self, iface: IfaceId, seg: &Segment<'_>) -> bool {
        let flags = seg.header.flags;
        if self.now >= self.cookies_until || !flags.ack() || flags.rst() || flags.syn() {
            return false;
        }
        let Some(slot) = self.demux.listener(seg.tuple.local) else {
            return false;
        };
        let Some(handle) = self.listeners.handle_at(slot) else {
            return false;
        };
        let (irs, isn) = (seg.header.seq - 1, seg.header.ack - 1);
        let recalled = self.syn_cookies.recall(self.now, &seg.tuple, irs, isn);
        match &recalled {
            Some(recalled) => self.resume(iface, handle, seg, recalled),
            None => self.counters.syn_cookie_failed += 1,
        }
        recalled.is_some() || self.now < self.thirds_dropped_until
    }

    fn resume(&mut self, iface: IfaceId, handle: Handle, seg: &Segment<'_>, recalled: &Recalled) {
        let Some((congested, opts)) = self
            .listeners
            .get(handle)
            .map(|l| (l.is_congested(), l.opts.conn.clone()))
        else {
            return;
        };
        // Handshakes that others leave unfinished do not count: this peer has proved its address.
        if congested {
            self.counters.syn_backlog_full += 1;
            self.thirds_dropped_until = self.now + REPEATED_FOR;
            return;
        }
        let Some(path) = self.path_for_packet(iface, seg.tuple.local.ip()).cloned() else {
            return;
        };
        if !self.may_enter(seg.tuple.remote.ip()) {
            return;
        }
        let local = match self.recall_key(seg, &opts, recalled) {
            Ok(local) => local,
            Err(TooEarly) => {
                self.counters.syn_cookie_failed += 1;
                return;
            }
        };
        let (irs, isn) = (seg.header.seq - 1, seg.header.ack - 1);
        let offset = self.isn.timestamp_offset(&seg.tuple);
        let syn = Segment {
            header: Header {
                seq: irs,
                ack: SeqNum::new(0),
                flags: Flags::SYN,
                ..seg.header
            },
            options: recall_options(seg, offset, recalled),
            payload: &[],
            payload_sum: None,
            ..*seg
        };
        let tcp = Machine::resume(
            self.cookie_config(&opts, &path, offset),
            self.now,
            isn,
            &syn,
            self.config.unaccepted_window,
        );
        let draft = Draft {
            role: Role::Responder,
            local,
            // The third packet repeats what was agreed. // rfc8684:C24
            offered_checksum: capable_of(seg).is_some_and(|c| c.checksum_required),
            no_joins: capable_of(seg).is_some_and(|c| c.no_joins_here),
            opts,
        };
        let id = ListenerId(handle);
        if let Ok(conn) = self.enter(draft, &path, seg.tuple, tcp, Some(id)) {
            self.counters.syn_cookie_accepted += 1;
            self.counters.conn_passive += 1;
            if let Some(listener) = self.listeners.get_mut(handle) {
                listener.opened(conn, self.now);
            }
            self.with_conn(conn.0.index(), |conn, cx| {
                conn.on_segment(SubflowId(0), seg, cx)
            });
        }
    }

    /// Our key, if the third packet echoes one that we made for it; none if this is plain TCP.
    fn recall_key(
        &mut self,
        seg: &Segment<'_>,
        opts: &ConnOptions,
        recalled: &Recalled,
    ) -> Result<Option<KeyMaterial>, TooEarly> {
        if opts.mode != Mode::Multipath {
            return Ok(None);
        }
        let irs = seg.header.seq - 1;
        let cookies = &self.syn_cookies;
        match third_of(seg, |key| cookies.made_key(recalled, &seg.tuple, irs, key)) {
            Third::Keys { own, .. } => {
                let made = KeyMaterial::derive(own);
                // Somebody got that token meanwhile: the two could not be told apart. // rfc8684:C8
                Ok(Some(made).filter(|made| self.demux.token(made.token).is_none()))
            }
            // The stream's first byte is here, and the keys that belong on it are not: the packets that had them are lost
            // (dropped here perhaps, when the backlog was full), and some peers do not repeat them. // rfc8684:C31
            Third::Early if !seg.payload.is_empty() => Ok(None),
            Third::Early => Err(TooEarly),
            Third::Plain => Ok(None),
            Third::Unusable(why) => {
                why.count(&mut self.counters);
                Ok(None)
            }
            Third::WrongKeys => {
                self.counters.capable_bad_key += 1;
                Ok(None)
            }
        }
    }
}

/// A segment without data came before the keys that it needs.
struct TooEarly;

/// The options of a SYN that was forgotten, from what its answer hid and the third packet echoes.
fn recall_options(third: &Segment<'_>, offset: u32, recalled: &Recalled) -> Options {
    let mut options = Options {
        mss: Some(recalled.mss),
        ..Options::EMPTY
    };
    if let Some(stamps) = third.options.timestamps {
        let (window_scale, sack_permitted) = cookie::read_stamp(stamps.ecr.wrapping_sub(offset));
        options.window_scale = window_scale;
        options.sack_permitted = sack_permitted;
        options.timestamps = Some(Timestamps {
            val: stamps.val,
            ecr: 0,
        });
    }
    options
}
