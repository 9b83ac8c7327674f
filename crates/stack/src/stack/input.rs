//! From a packet to whoever it is for.

use manypath_tcp::time::Instant;
use manypath_wire::ip::fragment::{self, Fragment};
use manypath_wire::ip::icmp::{self, Complaint};
use manypath_wire::ip::{self, IpError, IpMeta, Joined, v6};
use manypath_wire::segment::{ParseError, Segment, Verify};
use manypath_wire::tcp::mptcp::{Join, MptcpOption, Reset, ResetReason};

use super::Stack;
use super::open::JoinOffer;
use super::timewait::{Answer, Arrival};
use crate::api::{IfaceId, RxMeta, may_come_from};
use crate::conn::{Conn, Cx, join_of};

/// A segment of a stream that goes on: nothing of it opens or ends anything.
fn is_plain_data(seg: &Segment<'_>) -> bool {
    let flags = seg.header.flags;
    !(seg.payload.is_empty() || flags.syn() || flags.fin() || flags.rst())
}

impl Stack {
    /// Takes one IP packet that arrived on an interface. Nothing in it can do more harm than to be counted.
    pub fn handle_packet(&mut self, now: Instant, iface: IfaceId, packet: &[u8], meta: RxMeta) {
        self.tick(now);
        self.counters.packets_in += 1;
        match ip::parse_as(packet, if meta.joined { Joined::Yes } else { Joined::No }) {
            Err(IpError::Fragment) => self.handle_fragment(iface, packet),
            parsed => self.handle_whole(iface, packet, parsed, meta.checksum_ok),
        }
    }

    /// Takes what an IP packet says that is no fragment.
    fn handle_whole(
        &mut self,
        iface: IfaceId,
        packet: &[u8],
        parsed: Result<(IpMeta, &[u8]), IpError>,
        checksum_ok: bool,
    ) {
        let segment = match parsed {
            Ok((ip, body)) if matches!(ip.protocol, icmp::PROTOCOL_V4 | icmp::PROTOCOL_V6) => {
                return self.handle_icmp(&ip, body);
            }
            Ok((ip, body)) => {
                let verify = if checksum_ok {
                    Verify::Trusted
                } else {
                    Verify::Full
                };
                Segment::from_ip(ip, body, verify)
            }
            Err(error) => Err(ParseError::Ip(error)),
        };
        match segment {
            Ok(seg) => self.take_segment(iface, &seg),
            Err(error) => {
                self.count_parse_error(error);
                self.complain_of_headers(iface, packet, error);
            }
        }
    }

    /// Takes a piece of an IP packet, and the packet if that is whole now.
    fn handle_fragment(&mut self, iface: IfaceId, packet: &[u8]) {
        let piece = match fragment::read(packet) {
            Ok(piece) if self.may_be_ours(iface, &piece) => piece,
            Ok(_) => {
                self.counters.drop_ip_fragment += 1;
                return;
            }
            Err(error) => {
                self.counters.drop_ip_fragment += 1;
                self.complain_of_headers(iface, packet, ParseError::Ip(error));
                return;
            }
        };
        let count = &mut self.counters;
        if let Some(whole) = self.fragments.take(self.now, iface, &piece, count) {
            // A fragment in fragments is none, and is counted as what it is.
            self.handle_whole(iface, &whole, ip::parse(&whole), false);
        }
    }

    fn may_be_ours(&self, iface: IfaceId, piece: &Fragment<'_>) -> bool {
        let (src, dst) = (piece.key.src, piece.key.dst);
        let local = self.path_for_packet(iface, dst).is_some();
        local && piece.may_be_tcp() && may_come_from(src, dst)
    }

    /// Gives packets up whose pieces did not come in time.
    pub(super) fn expire_fragments(&mut self) {
        while let Some(expired) = self.fragments.pop_expired(self.now) {
            self.counters.fragment_timeout += 1;
            if let Some(first) = expired.first {
                self.complain(expired.came_by, &first, Complaint::Incomplete);
            }
        }
    }

    fn complain_of_headers(&mut self, iface: IfaceId, packet: &[u8], error: ParseError) {
        let problem = match error {
            ParseError::Ip(IpError::ExtensionHeader(problem)) => problem,
            ParseError::NotTcp(_) => v6::unknown_protocol(packet),
            _ => None,
        };
        if let Some(problem) = problem {
            self.complain(iface, packet, Complaint::Problem(problem));
        }
    }

    /// Tells the source of a packet what is wrong with it, if the packet came to an address that is ours alone. Of one that we
    /// share with the host the host's kernel says it.
    fn complain(&mut self, came_by: IfaceId, packet: &[u8], complaint: Complaint) {
        let Some((_, dst)) = ip::ends(packet).filter(|&(src, dst)| may_come_from(src, dst)) else {
            return;
        };
        let path = self.path_for_packet(came_by, dst);
        let Some(iface) = path
            .filter(|path| path.ports.is_none())
            .map(|path| path.iface)
        else {
            return;
        };
        let Some(error) = icmp::complain(packet, complaint) else {
            return;
        };
        match self.replies.complain(self.now, iface, error) {
            true => self.counters.icmp_sent += 1,
            false => self.counters.reply_limited += 1,
        }
    }

    /// Takes one TCP segment that arrived on an interface and that somebody has read and verified already.
    pub fn handle_segment(&mut self, now: Instant, iface: IfaceId, seg: &Segment<'_>) {
        self.tick(now);
        self.counters.packets_in += 1;
        self.take_segment(iface, seg);
    }

    fn count_parse_error(&mut self, error: ParseError) {
        let count = &mut self.counters;
        match error {
            ParseError::Ip(IpError::Fragment) => count.drop_ip_fragment += 1,
            ParseError::Ip(IpError::Checksum) | ParseError::Checksum => {
                count.drop_bad_checksum += 1
            }
            ParseError::Ip(_) => count.drop_ip_malformed += 1,
            ParseError::NotTcp(_) => count.drop_not_tcp += 1,
            ParseError::Header(_) => count.drop_tcp_malformed += 1,
            ParseError::Options(_) => count.option_list_malformed += 1,
        }
    }

    fn take_segment(&mut self, came_by: IfaceId, seg: &Segment<'_>) {
        self.counters.option_mptcp_malformed += u64::from(seg.options.ignored);
        // rfc8684:J18
        if let Some(target) = self.demux.packet_for(&seg.tuple) {
            if !seg.payload.is_empty() && self.hogs(target.conn) {
                self.counters.drop_memory += 1;
                return;
            }
            let window = self.permit_window(target.conn);
            if seg.header.flags.syn() {
                self.note_syn_again(target.conn, seg);
            }
            let take = |conn: &mut Conn, cx: &mut Cx<'_>| conn.on_segment(target.subflow, seg, cx);
            let mistaken = match is_plain_data(seg) {
                // What follows from it is settled once for all that come together.
                true => self.with_conn_stirred(target.conn, take),
                false => self.with_conn(target.conn, take),
            };
            self.charge_growth(target.conn, window);
            if mistaken == Some(true) {
                let path = self.path_for_packet(came_by, seg.tuple.local.ip());
                let iface = path.map_or(came_by, |path| path.iface);
                self.reset_reply(iface, seg, None);
            }
            return;
        }
        let arrival = Arrival::of(seg);
        let beyond = match self.time_wait.on_segment(self.now, &seg.tuple, &arrival) {
            None => None,
            Some(Answer::Ignore) => return,
            Some(Answer::Ack(reply)) => {
                self.counters.time_wait_ack +=
                    u64::from(self.replies.acknowledge(self.now, &reply));
                return;
            }
            Some(Answer::Reopen { beyond }) => Some(beyond),
        };
        let (local, remote) = (seg.tuple.local.ip(), seg.tuple.remote.ip());
        let from_a_host = may_come_from(remote, local) && !self.is_broadcast(remote);
        if !from_a_host || seg.tuple.remote.port() == 0 {
            self.counters.drop_bad_address += 1;
            return;
        }
        // The answer leaves by the interface that the address is on.
        let Some(iface) = self.path_for_packet(came_by, local).map(|path| path.iface) else {
            self.counters.drop_not_local += 1;
            return;
        };
        let flags = seg.header.flags;
        if flags.syn() && !flags.ack() && !flags.rst() && !flags.fin() {
            return match join_of(seg) {
                Some(&Join::Syn {
                    token,
                    nonce,
                    addr_id,
                    backup,
                }) => {
                    self.handle_join(
                        iface,
                        seg,
                        JoinOffer {
                            token,
                            nonce,
                            addr_id,
                            backup,
                        },
                        beyond,
                    );
                }
                _ => self.handle_syn(iface, seg, beyond),
            };
        }
        if !flags.ack() && self.demux.listener(seg.tuple.local).is_some() {
            // A listener answers what acknowledges something, and SYNs: the rest is dropped (RFC 9293 section 3.10.7.2).
            self.counters.no_socket += 1;
            return;
        }
        if self.handle_third(iface, seg) {
            return;
        }
        self.counters.no_socket += 1;
        if !self.is_the_hosts(iface, seg) {
            self.reset_reply(iface, seg, None);
        }
    }

    /// Answers a segment that nobody wants with a reset, if that is our way.
    pub(super) fn reset_reply(
        &mut self,
        iface: IfaceId,
        seg: &Segment<'_>,
        reason: Option<ResetReason>,
    ) {
        if !self.config.reset_unknown {
            return;
        }
        let option = reason.map(|reason| {
            MptcpOption::Reset(Reset {
                // Of what there is not enough now there may be later. // rfc8684:T3
                transient: reason == ResetReason::LackOfResources,
                reason,
            })
        });
        if self.replies.reset(self.now, iface, seg, option) {
            self.counters.reset_no_socket += 1;
        } else if !seg.header.flags.rst() {
            self.counters.reply_limited += 1;
        }
    }

    /// Whether the host answers for a segment of no connection of ours: it came to an address that we share with the host,
    /// and not to a port that we listen on. A program of the host may be there, and a reset would end its connection.
    pub(super) fn is_the_hosts(&self, iface: IfaceId, seg: &Segment<'_>) -> bool {
        let local = seg.tuple.local;
        let path = self.path_for_packet(iface, local.ip());
        path.is_some_and(|path| path.ports.is_some()) && self.demux.listener(local).is_none()
    }

    /// The same for an MP_JOIN of no connection of ours. It may come to any address that we have announced, with the port of a
    /// connection that we opened or of a listener.
    pub(super) fn is_the_hosts_join(&self, iface: IfaceId, seg: &Segment<'_>) -> bool {
        let local = seg.tuple.local;
        let opens = self
            .path_for_packet(iface, local.ip())
            .and_then(|path| path.ports.as_ref())
            .is_some_and(|ports| ports.contains(&local.port()));
        let mut listeners = self.listeners.iter();
        let ours = opens || listeners.any(|(_, l)| l.opts.addr.port() == local.port());
        self.is_the_hosts(iface, seg) && !ours
    }

    fn handle_icmp(&mut self, meta: &ip::IpMeta, body: &[u8]) {
        let Ok(error) = icmp::parse(meta, body) else {
            self.counters.icmp_ignored += 1;
            return;
        };
        let Some(target) = self.demux.subflow(&error.tuple) else {
            self.counters.icmp_ignored += 1;
            return;
        };
        self.with_conn(target.conn, |conn, cx| {
            conn.on_icmp(target.subflow, &error, cx)
        });
    }
}
