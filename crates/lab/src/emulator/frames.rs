//! Finishing what a kernel leaves to its network card: checksums and segmentation.
//!
//! A virtual interface hands over packets of up to 64 KB whose checksum covers the pseudo header only. On a real wire the
//! card would cut and sum them; an emulated path must do it itself, so that every packet on it is one that could exist.
//! Layouts: RFC 791, RFC 8200, RFC 9293 section 3.1; the header in front is `struct virtio_net_hdr`.

use manypath_io::sys::lab::FRAME_HEADER;

/// Bytes of an Ethernet header without tags.
pub(super) const ETHERNET: usize = 14;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_ECN: u8 = 0x80;

const FIN: u8 = 0x01;
const PUSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Why a frame could not be put on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    /// Shorter than its own headers say.
    Truncated,
    /// A burst of a kind that is not cut here (anything but TCP).
    Segmentation,
}

/// Takes one read of a frame socket apart into frames that could exist on a wire, each with complete checksums.
pub(super) fn finish(read: &[u8], mut emit: impl FnMut(Vec<u8>)) -> Result<(), Unfit> {
    let (header, frame) = read
        .split_at_checked(FRAME_HEADER)
        .ok_or(Unfit::Truncated)?;
    let half = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
    match header[1] & !GSO_ECN {
        GSO_NONE => {
            let mut whole = frame.to_vec();
            if header[0] & NEEDS_CHECKSUM != 0 {
                complete(&mut whole, half(6), half(8))?;
            }
            emit(whole);
            Ok(())
        }
        GSO_TCP4 => split(frame, false, half(4), emit),
        GSO_TCP6 => split(frame, true, half(4), emit),
        _ => Err(Unfit::Segmentation),
    }
}

/// Largest IP packet that the interfaces take as it is.
const USUAL: usize = 1500;

/// Makes a write to a frame socket out of a finished frame, given in two pieces. TCP that no longer fits onto the wire,
/// because a box has joined segments, is written as a burst: the receiving interface hands it on in one piece, as
/// interfaces do that join segments themselves.
pub(super) fn prepare(head: &[u8], tail: &[u8], ready: &mut Vec<u8>) {
    ready.clear();
    ready.resize(FRAME_HEADER, 0);
    ready.extend_from_slice(head);
    ready.extend_from_slice(tail);
    if ready.len() > FRAME_HEADER + ETHERNET + USUAL {
        let (header, frame) = ready.split_at_mut(FRAME_HEADER);
        // What is no TCP stays as it is, and the interface refuses it.
        let _ = join(header, frame);
    }
}

/// Marks a large TCP segment as a burst, and leaves its checksum to the interface.
fn join(header: &mut [u8], frame: &mut [u8]) -> Option<()> {
    let ip = frame.get_mut(ETHERNET..)?;
    let (kind, ip_len, addresses) = match ip.first()? >> 4 {
        4 if *ip.get(9)? == 6 => (GSO_TCP4, usize::from(ip[0] & 0x0f) * 4, 12..20),
        6 if *ip.get(6)? == 6 => (GSO_TCP6, 40, 8..40),
        _ => return None,
    };
    let tcp_len = usize::from(ip.get(ip_len + 12)? >> 4) * 4;
    let size = USUAL.checked_sub(ip_len + tcp_len)?;
    let pseudo = add((ip.len() - ip_len) as u64 + 6, ip.get(addresses)?);
    let place = ip.get_mut(ip_len + 16..ip_len + 18)?;
    place.copy_from_slice(&fold(pseudo).to_be_bytes());
    header[0] = NEEDS_CHECKSUM;
    header[1] = kind;
    // All of these are below 65,536, for so large is an IP packet.
    let start = ETHERNET + ip_len;
    for (at, value) in [(2, start + tcp_len), (4, size), (6, start), (8, 16)] {
        header[at..at + 2].copy_from_slice(&(value as u16).to_ne_bytes());
    }
    Some(())
}

/// Puts the checksum of everything from `start` into the two bytes at `start + offset`, which already hold the sum of
/// the pseudo header.
fn complete(frame: &mut [u8], start: usize, offset: usize) -> Result<(), Unfit> {
    let sum = !fold(add(0, frame.get(start..).ok_or(Unfit::Truncated)?));
    // A computed zero is sent as all ones, which UDP asks for and TCP permits.
    let sum = if sum == 0 { 0xffff } else { sum };
    let place = frame
        .get_mut(start + offset..start + offset + 2)
        .ok_or(Unfit::Truncated)?;
    place.copy_from_slice(&sum.to_be_bytes());
    Ok(())
}

/// Adds bytes, taken as big-endian 16-bit numbers from an even place, to a one's complement sum.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    let pairs = bytes.chunks_exact(2);
    let last = pairs.remainder().first().map_or(0, |b| u64::from(*b) << 8);
    pairs.fold(sum + last, |sum, pair| {
        sum + u64::from(u16::from_be_bytes([pair[0], pair[1]]))
    })
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Cuts a burst of TCP into segments of at most `size` payload bytes, as a card does: the options are repeated on each,
/// FIN and PSH go to the last, CWR to the first (Linux, Documentation/networking/segmentation-offloads).
fn split(frame: &[u8], six: bool, size: usize, mut emit: impl FnMut(Vec<u8>)) -> Result<(), Unfit> {
    let ip = frame.get(ETHERNET..).ok_or(Unfit::Truncated)?;
    let ip_len = if six {
        40
    } else {
        usize::from(ip.first().ok_or(Unfit::Truncated)? & 0x0f) * 4
    };
    let tcp = ip.get(ip_len..).ok_or(Unfit::Truncated)?;
    let tcp_len = usize::from(tcp.get(12).ok_or(Unfit::Truncated)? >> 4) * 4;
    let headers = ETHERNET + ip_len + tcp_len;
    if ip_len < 20 || tcp_len < 20 || size == 0 || frame.len() < headers {
        return Err(Unfit::Truncated);
    }
    let payload = &frame[headers..];
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    let count = payload.len().div_ceil(size).max(1);
    for index in 0..count {
        let from = index * size;
        let part = &payload[from..payload.len().min(from + size)];
        let mut whole = Vec::with_capacity(headers + part.len());
        whole.extend_from_slice(&frame[..headers]);
        whole.extend_from_slice(part);
        let (before, tcp) = whole.split_at_mut(ETHERNET + ip_len);
        let ip = &mut before[ETHERNET..];
        // Both lengths fit: a burst is at most 64 KB and this is a part of it.
        let tcp_total = (tcp_len + part.len()) as u16;
        if six {
            ip[4..6].copy_from_slice(&tcp_total.to_be_bytes());
        } else {
            ip[2..4].copy_from_slice(&(ip_len as u16 + tcp_total).to_be_bytes());
            let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index as u16);
            ip[4..6].copy_from_slice(&id.to_be_bytes());
            ip[10..12].fill(0);
            let sum = !fold(add(0, ip));
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        tcp[4..8].copy_from_slice(&sequence.wrapping_add(from as u32).to_be_bytes());
        if index + 1 < count {
            tcp[13] &= !(FIN | PUSH);
        }
        if index > 0 {
            tcp[13] &= !CWR;
        }
        tcp[16..18].fill(0);
        let addresses = if six { &ip[8..40] } else { &ip[12..20] };
        let pseudo = add(u64::from(tcp_total) + 6, addresses);
        let sum = !fold(add(pseudo, tcp));
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        emit(whole);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst as a kernel hands it over: IPv4, TCP with 12 bytes of options, FIN, PSH, CWR, and `len` payload bytes.
    fn burst(len: usize, size: u16) -> Vec<u8> {
        let mut read = vec![0u8; FRAME_HEADER];
        read[0] = NEEDS_CHECKSUM;
        read[1] = GSO_TCP4 | GSO_ECN;
        read[4..6].copy_from_slice(&size.to_ne_bytes());
        read.extend([0xaa; 12]);
        read.extend([0x08, 0x00]);
        let total = (20 + 32 + len) as u16;
        read.extend([0x45, 0]);
        read.extend(total.to_be_bytes());
        read.extend([0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        read.extend([0x13, 0x88, 0x00, 0x50, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 1]);
        read.extend([0x80, 0x10 | FIN | PUSH | CWR, 1, 0, 0, 0, 0, 0]);
        read.extend([1; 12]);
        read.extend((0..len).map(|i| i as u8));
        read
    }

    fn pieces(read: &[u8]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        finish(read, |frame| out.push(frame)).expect("a whole burst");
        out
    }

    fn checks(frame: &[u8]) {
        let ip = &frame[ETHERNET..];
        assert_eq!(fold(add(0, &ip[..20])), 0xffff, "IP header sum");
        let tcp = &ip[20..];
        assert_eq!(
            fold(add(add(tcp.len() as u64 + 6, &ip[12..20]), tcp)),
            0xffff,
            "TCP sum"
        );
        assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
    }

    #[test]
    fn a_burst_becomes_segments_that_could_exist() {
        let out = pieces(&burst(2500, 1000));
        assert_eq!(
            out.iter()
                .map(|f| f.len() - ETHERNET - 52)
                .collect::<Vec<_>>(),
            [1000, 1000, 500]
        );
        let mut payload = Vec::new();
        for (index, frame) in out.iter().enumerate() {
            checks(frame);
            let tcp = &frame[ETHERNET + 20..];
            let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
            assert_eq!(sequence, 0xffff_fff0_u32.wrapping_add(1000 * index as u32));
            assert_eq!(tcp[13] & CWR != 0, index == 0);
            assert_eq!(
                tcp[13] & (FIN | PUSH),
                if index == 2 { FIN | PUSH } else { 0 }
            );
            payload.extend_from_slice(&tcp[32..]);
        }
        assert_eq!(payload, burst(2500, 1000)[FRAME_HEADER + ETHERNET + 52..]);
    }

    #[test]
    fn a_partial_checksum_is_completed() {
        let mut read = burst(77, 0);
        read[1] = GSO_NONE;
        let start = ETHERNET + 20;
        read[6..8].copy_from_slice(&(start as u16).to_ne_bytes());
        read[8..10].copy_from_slice(&16_u16.to_ne_bytes());
        let ip = FRAME_HEADER + ETHERNET;
        let header_sum = !fold(add(0, &read[ip..ip + 20]));
        read[ip + 10..ip + 12].copy_from_slice(&header_sum.to_be_bytes());
        let tcp_len = 32 + 77;
        let pseudo = fold(add(tcp_len + 6, &read[ip + 12..ip + 20]));
        read[ip + 36..ip + 38].copy_from_slice(&pseudo.to_be_bytes());
        let out = pieces(&read);
        assert_eq!(out.len(), 1);
        checks(&out[0]);
    }

    #[test]
    fn what_cannot_be_finished_is_refused() {
        let whole = burst(100, 50);
        for len in 0..FRAME_HEADER + ETHERNET + 52 {
            assert!(finish(&whole[..len], |_| ()).is_err(), "{len} bytes");
        }
        let mut datagram = whole;
        datagram[1] = 5;
        assert_eq!(finish(&datagram, |_| ()), Err(Unfit::Segmentation));
    }

    #[test]
    fn what_is_too_large_for_the_wire_is_written_as_a_burst() {
        let whole = {
            // Two segments that a box has joined: one packet with right checksums.
            let mut read = burst(2500, 2500);
            read[1] = GSO_TCP4;
            pieces(&read).remove(0)
        };
        let mut ready = Vec::new();
        prepare(&whole[..ETHERNET], &whole[ETHERNET..], &mut ready);
        assert_eq!(ready[1], GSO_TCP4);
        let sizes: Vec<usize> = pieces(&ready)
            .iter()
            .inspect(|frame| checks(frame))
            .map(|frame| frame.len() - ETHERNET - 52)
            .collect();
        assert_eq!(sizes, [1448, 1052]);
        let small = &whole[..ETHERNET + USUAL];
        prepare(small, &[], &mut ready);
        assert!(ready[..FRAME_HEADER].iter().all(|byte| *byte == 0));
        assert_eq!(&ready[FRAME_HEADER..], small);
    }
}
