//! One named counter for each decision: nothing is dropped, ignored or given up without being counted.

/// Defines a struct of `u64` counters with their names.
macro_rules! counters {
    (
        $(#[$meta:meta])*
        pub struct $name:ident { $( $(#[$field_meta:meta])* $field:ident, )* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $( $(#[$field_meta])* pub $field: u64, )* }

        impl $name {
            /// The names of all counters, in the order of their values.
            pub const NAMES: &'static [&'static str] = &[ $( stringify!($field), )* ];

            /// All counters with their names, always in the same order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                let Self { $( $field, )* } = *self;
                Self::NAMES.iter().copied().zip([ $( $field, )* ])
            }

            /// The counter of that name.
            pub fn get(&self, name: &str) -> Option<u64> {
                self.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
            }

            /// What was counted since an earlier copy.
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $( $field: self.$field.wrapping_sub(earlier.$field), )* }
            }

            /// Adds the counts of another stack, for instance of another worker.
            pub fn add(&mut self, other: &Self) {
                $( self.$field = self.$field.wrapping_add(other.$field); )*
            }
        }

        impl core::fmt::Display for $name {
            /// One line for each counter that is not zero.
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                for (name, value) in self.iter().filter(|(_, value)| *value != 0) {
                    writeln!(f, "{name} {value}")?;
                }
                Ok(())
            }
        }
    };
}

counters! {
    /// What a stack did, decision by decision. Counts only ever rise.
    pub struct Counters {
        /// Packets handed in.
        packets_in,
        /// Packets written for a device; a burst that the device splits counts once.
        packets_out,
        /// Payload bytes received in segments that belong to a connection.
        bytes_in,
        /// Payload bytes sent, retransmissions included.
        bytes_out,
        /// Dropped: not an IP packet or cut short.
        drop_ip_malformed,
        /// Dropped: a piece of an IP packet that cannot be one of ours, or that says what no piece can.
        drop_ip_fragment,
        /// IP packets put together from pieces.
        fragments_joined,
        /// IP packets dropped: their pieces overlapped.
        fragment_overlap,
        /// IP packets dropped before all pieces were there: too many, or too much memory was held for incomplete ones.
        fragment_evicted,
        /// IP packets dropped: a piece did not come in time.
        fragment_timeout,
        /// ICMP errors sent: headers that are not known here, pieces that did not come.
        icmp_sent,
        /// Dropped: a protocol that we do not speak.
        drop_not_tcp,
        /// Dropped: wrong IP or TCP checksum.
        drop_bad_checksum,
        /// Dropped: TCP header malformed.
        drop_tcp_malformed,
        /// Dropped: a source or destination address that no TCP segment may have.
        drop_bad_address,
        /// Dropped: not for an address of ours.
        drop_not_local,
        /// Segments for which there is no connection or listener.
        no_socket,
        /// Resets sent in answer to such segments.
        reset_no_socket,
        /// Resets and challenge ACKs not sent because of the rate limit.
        reply_limited,
        /// TCP option lists that end in the middle of an option.
        option_list_malformed,
        /// MPTCP options of wrong length or unknown subtype, treated as absent.
        option_mptcp_malformed,
        /// ICMP errors acted upon.
        icmp_accepted,
        /// ICMP errors that belong to no flight of ours.
        icmp_ignored,
        /// SYNs accepted by a listener.
        syn_accepted,
        /// SYNs dropped: the listener's backlog is full.
        syn_backlog_full,
        /// Handshakes given up for a new SYN: the backlog was full and their peers had not answered.
        half_open_evicted,
        /// SYNs answered by a SYN cookie.
        syn_cookie_sent,
        /// Third packets that proved a SYN cookie.
        syn_cookie_accepted,
        /// Third packets with a wrong or old SYN cookie, with none, or ahead of the keys.
        syn_cookie_failed,
        /// SYNs dropped: as many connections as there may be.
        syn_limit,
        /// SYNs dropped: the peer's address has as many connections as it may have.
        syn_source_limit,
        /// SYNs dropped: memory is short.
        syn_memory,
        /// Segments with payload dropped: memory is short and their connection holds more than its share.
        drop_memory,
        /// Payload bytes dropped because out-of-order payload of their connection took all the memory that it may.
        reassembly_refused_bytes,
        /// Payload bytes dropped because their connection's stream waits for too many holes already.
        scattered_bytes,
        /// Connections ended because they got nowhere when a limit was reached.
        conn_shed,
        /// Connections ended because memory was used up and they held most and moved least.
        conn_evicted_memory,
        /// Times that a receive window did not grow as it would have, since memory is short.
        recv_buffer_limited,
        /// Joins given up for a new one: the connection had as many subflows as it may, and their peers had not answered.
        join_evicted,
        /// Questions to silent subflows whether they need their places, of which a join found none.
        admission_probed,
        /// Subflows given up for a join that proved itself: they had not answered.
        subflow_evicted,
        /// Fast Open: SYNs of ours that carried payload.
        fast_open_sent,
        /// Fast Open: SYNs of ours of whose payload the peer took something.
        fast_open_taken,
        /// Fast Open: cookies that peers gave us.
        fast_open_cookie,
        /// Fast Open: cookies that we gave to peers.
        fast_open_granted,
        /// Fast Open: SYNs of peers whose payload was taken.
        fast_open_accepted,
        /// Fast Open: cookies of peers that were not good, or not any more.
        fast_open_refused,
        /// Fast Open: good cookies that counted for nothing because too many handshakes were under way with payload.
        fast_open_limited,
        /// SYNs with payload that waited for the application's answer.
        syn_held,
        /// Segments answered from TIME-WAIT.
        time_wait_ack,
        /// New connections accepted out of TIME-WAIT (RFC 6191).
        time_wait_reused,
        /// TIME-WAIT records dropped early because there were too many.
        time_wait_evicted,
        /// Connections opened by us.
        conn_active,
        /// Attempts to open a connection that were aborted because another one was answered first, or all were given up.
        race_lost,
        /// Connections opened by peers.
        conn_passive,
        /// Connections established.
        conn_established,
        /// Connections that ended in order.
        conn_finished,
        /// Connections that ended by a reset or fast close of the peer.
        conn_reset,
        /// Connections aborted by the application.
        conn_aborted,
        /// Connections given up because the peer was silent.
        conn_timed_out,
        /// Connections that fell back because the peer's SYN or SYN/ACK had no usable MP_CAPABLE.
        fallback_handshake,
        /// Connections that fell back because the third packet had no MP_CAPABLE.
        fallback_third_ack,
        /// Connections that fell back because the first data had no DSS.
        fallback_first_data,
        /// Connections that fell back because options vanished in the middle.
        fallback_options_lost,
        /// Connections that fell back because of a DSS checksum.
        fallback_checksum,
        /// Connections that fell back because the peer sent MP_FAIL.
        fallback_peer_fail,
        /// Connections that fell back because the peer sent an infinite mapping.
        fallback_peer_infinite,
        /// MPTCP SYNs given up in favour of plain ones after they found no answer.
        fallback_syn_retry,
        /// MP_CAPABLE ignored: version 0 or a flag that is not understood.
        capable_unsupported,
        /// MP_CAPABLE ignored: no crypto algorithm in common.
        capable_no_crypto,
        /// MP_CAPABLE ignored: keys echoed wrongly.
        capable_bad_key,
        /// MP_JOIN SYNs sent.
        join_sent,
        /// MP_JOIN SYNs received for a connection of ours.
        join_received,
        /// MP_JOIN refused: no connection has the token.
        join_unknown_token,
        /// MP_JOIN refused, or left without an answer for the moment: policy or limit.
        join_refused,
        /// MP_JOIN refused with MP_TCPRST reason 2: memory is short.
        join_memory,
        /// MP_JOIN refused: the connection is not fully established or fell back.
        join_too_early,
        /// MP_JOIN SYN/ACKs with a wrong code.
        join_syn_ack_bad_hmac,
        /// MP_JOIN third packets with a wrong code.
        join_ack_bad_hmac,
        /// Joins reset because the SYN/ACK or third packet had no MP_JOIN.
        join_option_missing,
        /// Subflows established by joins.
        join_established,
        /// Subflows that ended.
        subflow_closed,
        /// Subflows reset because of a rule of Multipath TCP.
        subflow_reset_by_us,
        /// Subflows reset by the peer.
        subflow_reset_by_peer,
        /// Subflows given up after too many time-outs.
        subflow_timed_out,
        /// Subflows given up because they were silent where another one worked that was made since.
        subflow_nat_expired,
        /// Subflows declared stale after a time-out.
        subflow_stale,
        /// Subflows on which nothing was acknowledged for two round trips.
        subflow_potentially_failed,
        /// Times that the last segment in flight was late, and given to another subflow as well.
        subflow_late,
        /// Joined subflows whose data a proxy acknowledges, kept as backups.
        subflow_proxied,
        /// Subflows that answered again after they were stale.
        subflow_recovered,
        /// Silent subflows whose place a new one took.
        subflow_replaced,
        /// Questions to subflows on which nothing arrives any more.
        subflow_probed,
        /// Subflows that did not answer them.
        subflow_unresponsive,
        /// Silent subflows tried at once because of a sign that their path works again.
        subflow_hinted,
        /// DSS mappings noted.
        dss_mapping,
        /// DSS mappings ignored: repeated.
        dss_mapping_repeated,
        /// DSS mappings refused: in conflict with an earlier one or with the windows.
        dss_mapping_invalid,
        /// DSS mappings refused: a checksum where none was agreed or none where it was.
        dss_checksum_presence,
        /// DSS checksums that did not match.
        dss_checksum_failed,
        /// Data ACKs that acknowledged something new.
        data_ack_advanced,
        /// Data ACKs ignored: for data that was never sent.
        data_ack_invalid,
        /// Payload bytes that arrived without a mapping within a receive window and were dropped.
        unmapped_bytes,
        /// Bytes of the stream that arrived a second time.
        duplicate_bytes,
        /// Bytes dropped: beyond the connection's receive window.
        beyond_window_bytes,
        /// Bytes sent again on another subflow.
        reinjected_bytes,
        /// Of these, bytes repeated because the window was full or the stream at its end.
        opportunistic_bytes,
        /// Times that a receive window grew with what arrives.
        recv_buffer_grown,
        /// Windows halved because their subflow held up the others.
        subflow_penalised,
        /// Bytes sent on another subflow as well, in case that the first one is late.
        copied_bytes,
        /// A subflow had room and the scheduler waited for another one.
        scheduler_waited,
        /// Connection-level retransmission time-outs.
        conn_rto,
        /// DATA_FINs sent, repetitions included.
        data_fin_sent,
        /// DATA_FINs received, repetitions included.
        data_fin_received,
        /// ADD_ADDR sent, repetitions included.
        add_addr_sent,
        /// ADD_ADDR received and believed.
        add_addr_accepted,
        /// ADD_ADDR ignored: wrong code.
        add_addr_bad_hmac,
        /// ADD_ADDR ignored: in conflict with what is known, or too many.
        add_addr_ignored,
        /// ADD_ADDR echoes sent.
        add_addr_echo_sent,
        /// ADD_ADDR echoes received.
        add_addr_echo_received,
        /// ADD_ADDR given up without an echo.
        add_addr_unanswered,
        /// REMOVE_ADDR sent, repetitions included.
        remove_addr_sent,
        /// REMOVE_ADDR received for a known address.
        remove_addr_accepted,
        /// REMOVE_ADDR ignored: unknown address identifier.
        remove_addr_unknown,
        /// MP_PRIO sent.
        prio_sent,
        /// MP_PRIO received.
        prio_received,
        /// Options stopped passing on the only subflow: the last bytes were not acknowledged for the time being.
        ack_withheld,
        /// MP_FAIL sent.
        fail_sent,
        /// MP_FAIL received.
        fail_received,
        /// MP_FASTCLOSE sent, repetitions included.
        fastclose_sent,
        /// MP_FASTCLOSE received with the right key.
        fastclose_received,
        /// MP_FASTCLOSE ignored: wrong key.
        fastclose_bad_key,
        /// MP_TCPRST received.
        tcprst_received,
        /// MPTCP options ignored because the segment was not acceptable.
        option_unacceptable_segment,
        /// MPTCP options ignored because they make no sense in this state.
        option_unexpected,
        /// Options that were due but did not fit beside others and wait for the next segment.
        option_deferred,
        /// Segments rejected by TCP's acceptability checks.
        segment_unacceptable,
        /// Challenge ACKs sent (RFC 5961).
        challenge_ack,
        /// Retransmission time-outs of subflows.
        rto,
        /// Tail loss probes sent.
        tail_probe,
        /// Segments retransmitted.
        retransmitted,
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn every_counter_has_its_own_name() {
        let mut names: alloc::vec::Vec<_> = Counters::NAMES.to_vec();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(Counters::default().iter().count(), count);
    }

    #[test]
    fn values_go_with_their_names() {
        let counters = Counters {
            join_refused: 3,
            packets_in: 9,
            ..Counters::default()
        };
        assert_eq!(counters.get("join_refused"), Some(3));
        assert_eq!(counters.get("no_such_counter"), None);
        assert_eq!(counters.to_string(), "packets_in 9\njoin_refused 3\n");
    }

    #[test]
    fn differences_and_sums() {
        let earlier = Counters {
            rto: 2,
            ..Counters::default()
        };
        let mut later = Counters {
            rto: 5,
            tail_probe: 1,
            ..Counters::default()
        };
        assert_eq!(
            later.since(&earlier),
            Counters {
                rto: 3,
                tail_probe: 1,
                ..Counters::default()
            }
        );
        later.add(&earlier);
        assert_eq!(later.rto, 7);
    }
}
