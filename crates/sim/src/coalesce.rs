//! The receiving half of a network card: packets wait a moment and reach the host together, and runs of a flow's
//! segments become one large packet, as generic receive offload makes it (and a TUN device hands it to a program).

use crate::packet::Packet;
use crate::view::{ACK, PSH, TcpView, put_u16};

/// Largest IP packet.
const LARGEST: usize = 65_535;

/// How many packets at the front of `packets` become one: they must be verified segments of one flow with the same
/// header and options, in sequence, all as large as the first except the last.
pub(crate) fn run_length(packets: &[Box<Packet>]) -> usize {
    let Some(first) = packets.first().and_then(|packet| mergeable(packet)) else {
        return packets.len().min(1);
    };
    let head = packets[0].bytes();
    let size = first.payload_len();
    let (mut count, mut end) = (1, first.end);
    let mut pushed = first.flags & PSH != 0;
    for packet in &packets[1..] {
        let Some(view) = mergeable(packet) else { break };
        let bytes = packet.bytes();
        let next_seq = first.seq(head).wrapping_add((count * size) as u32);
        let fits = end + view.payload_len() <= LARGEST && view.payload_len() <= size && !pushed;
        if !fits || view.seq(bytes) != next_seq || !same_header(head, bytes, &first, &view) {
            break;
        }
        count += 1;
        end += view.payload_len();
        pushed = view.flags & PSH != 0 || view.payload_len() < size;
    }
    count
}

/// A verified segment with payload and no other flags than ACK and PSH.
fn mergeable(packet: &Packet) -> Option<TcpView> {
    packet.segment()?;
    let view = TcpView::of(packet.bytes())?;
    (view.payload_len() > 0 && view.flags & !PSH == ACK).then_some(view)
}

/// Everything is the same that a merged packet can say only once.
fn same_header(a: &[u8], b: &[u8], first: &TcpView, view: &TcpView) -> bool {
    let ip = if first.ipv6 {
        a[..4] == b[..4] && a[6..40] == b[6..40]
    } else {
        a[..2] == b[..2] && a[6..10] == b[6..10] && a[12..20] == b[12..20]
    };
    let t = first.tcp;
    first.ipv6 == view.ipv6
        && first.payload == view.payload
        && t == view.tcp
        && ip
        && a[t..t + 4] == b[t..t + 4]
        && a[t + 8..t + 13] == b[t + 8..t + 13]
        && a[t + 14..t + 16] == b[t + 14..t + 16]
        && a[t + 18..first.payload] == b[t + 18..first.payload]
}

/// Joins a run into one packet. Its TCP checksum is not made anew: the card vouches for it.
pub(crate) fn join(run: &[Box<Packet>], out: &mut Vec<u8>) {
    out.clear();
    let Some(first) = run.first() else { return };
    out.extend_from_slice(first.bytes());
    let Some(head) = TcpView::of(first.bytes()) else {
        return;
    };
    for packet in &run[1..] {
        if let Some(view) = TcpView::of(packet.bytes()) {
            out.extend_from_slice(&packet.bytes()[view.payload..view.end]);
            out[head.tcp + 13] |= view.flags;
        }
    }
    let len = out.len();
    if head.ipv6 {
        put_u16(out, 4, (len - head.tcp) as u16);
    } else {
        put_u16(out, 2, len as u16);
        crate::view::fix_ipv4_header(out, head.tcp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Pool;
    use crate::view::tests::packet;
    use crate::view::{FIN, fix_ipv4_header};
    use manypath_wire::segment::{Segment, Verify};

    /// IPv6, flags, sequence number, options, payload.
    type Parts<'a> = (bool, u8, u32, &'a [u8], &'a [u8]);

    #[expect(clippy::vec_box)]
    fn packets(list: &[Parts<'_>]) -> Vec<Box<Packet>> {
        let mut pool = Pool::default();
        let one = |(ipv6, flags, seq, options, payload): &Parts<'_>| {
            let mut made = pool.copy_of(&packet(*ipv6, *flags, *seq, options, payload));
            made.read(Verify::Full).expect("well-formed");
            made
        };
        list.iter().map(one).collect()
    }

    #[test]
    fn a_run_becomes_one_packet() {
        for ipv6 in [false, true] {
            let run = packets(&[
                (ipv6, ACK, u32::MAX - 3, &[1; 4], b"abcd"),
                (ipv6, ACK, 0, &[1; 4], b"efgh"),
                (ipv6, ACK | PSH, 4, &[1; 4], b"ij"),
                (ipv6, ACK, 6, &[1; 4], b"no"),
            ]);
            assert_eq!(run_length(&run), 3);
            let mut joined = Vec::new();
            join(&run[..3], &mut joined);
            let segment = Segment::parse(&joined, Verify::Trusted).unwrap();
            assert_eq!(segment.payload, b"abcdefghij");
            assert_eq!(segment.header.flags.bits(), ACK | PSH);
        }
    }

    #[test]
    fn what_differs_stays_apart() {
        let first = (false, ACK, 0, &[1u8; 4][..], &b"abcd"[..]);
        for other in [
            (true, ACK, 4, &[1u8; 4][..], &b"efgh"[..]),
            (false, ACK, 5, &[1; 4], b"efgh"),
            (false, ACK | FIN, 4, &[1; 4], b"efgh"),
            (false, ACK, 4, &[1, 1, 1, 0], b"efgh"),
            (false, ACK, 4, &[1; 8], b"efgh"),
            (false, ACK, 4, &[1; 4], b"efghi"),
            (false, ACK, 4, &[1; 4], b""),
        ] {
            assert_eq!(run_length(&packets(&[first, other])), 1, "{other:?}");
        }
        let mut marked = packets(&[first, (false, ACK, 4, &[1; 4], b"efgh")]);
        assert_eq!(run_length(&marked), 2);
        marked[1].bytes_mut()[1] |= 3;
        fix_ipv4_header(marked[1].bytes_mut(), 20);
        marked[1].read(Verify::Full).expect("well-formed");
        assert_eq!(run_length(&marked), 1);
        // A packet that somebody changed is not verified any more.
        let mut touched = packets(&[first, (false, ACK, 4, &[1; 4], b"efgh")]);
        touched[1].bytes_mut();
        assert_eq!(run_length(&touched), 1);
        assert_eq!(run_length(&[]), 0);
    }
}
