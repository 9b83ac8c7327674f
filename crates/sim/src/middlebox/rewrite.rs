//! A gateway that rewrites what applications say, as those for FTP do: lengths change, and so do all later sequence
//! numbers.

use manypath_wire::seq::SeqNum;
use serde::{Deserialize, Serialize};

use super::edit::{Keep, Number, divide, renumber};
use super::edits::Edits;
use super::flows::Flows;
use super::{Desk, Middlebox, Way};
use crate::packet::Packet;
use crate::view::{FIN, SYN, TcpView};

/// Connections that it remembers; each may take two megabytes when every byte is replaced.
const MOST_FLOWS: usize = 64;
/// A segment may always grow to this many bytes of payload; beyond it becomes several, none larger than it was.
const SMALL: usize = 500;

/// Parameters of [`Rewrite`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RewriteSpec {
    /// What it looks for, in each segment by itself: a single byte is found wherever segments begin, more only when
    /// they are in one segment.
    pub find: String,
    /// What it writes instead.
    pub replace: String,
    /// Only packets that go this way.
    pub way: Option<Way>,
}

impl Default for RewriteSpec {
    fn default() -> Self {
        Self {
            find: "~".into(),
            replace: "<tilde>".into(),
            way: None,
        }
    }
}

/// Rewrites payload, and corrects sequence numbers, acknowledgements and SACK blocks.
#[derive(Debug)]
pub struct Rewrite {
    spec: RewriteSpec,
    flows: Flows<[Edits; 2]>,
    touched: u64,
}

impl Rewrite {
    /// A box with these parameters.
    #[must_use]
    pub fn new(spec: RewriteSpec) -> Self {
        Self {
            spec,
            flows: Flows::new(MOST_FLOWS),
            touched: 0,
        }
    }

    /// Corrects the numbers, and makes the new payload if it differs. An error says why the packet cannot go on.
    fn rewrite(
        spec: &RewriteSpec,
        flow: &mut [Edits; 2],
        way: Way,
        packet: &mut Packet,
        view: &TcpView,
    ) -> Result<Option<Vec<u8>>, &'static str> {
        let own = &mut flow[way.index()];
        let first = SeqNum::new(view.seq(packet.bytes())) + u32::from(view.flags & SYN != 0);
        let payload = &packet.bytes()[view.payload..view.end];
        let end = first + payload.len() as u32;
        let read = own.read_to(first);
        if !payload.is_empty() || view.flags & FIN != 0 {
            if first.after(read) {
                // What the hole contains decides where this belongs.
                return Err("a gateway does not read past a hole");
            }
            if own.has_forgotten(first) {
                return Err("a gateway has forgotten what it replaced");
            }
        }
        if way.is_meant_by(spec.way) && end.after(read) {
            find(spec, own, first, read, payload);
        }
        if !payload.is_empty() {
            own.advance(end);
        }
        let new = replaced(spec, own, first, payload);
        let (own, theirs) = (&flow[way.index()], &flow[way.reversed().index()]);
        let vanished = !payload.is_empty() && new.as_ref().is_some_and(Vec::is_empty);
        let mut block = SeqNum::new(0);
        let forth = |seq| match vanished && view.flags & (SYN | FIN) == 0 {
            // An old number makes the receiver answer, and the answer acknowledges what has vanished.
            true => own.forth(seq) - 1,
            false => own.forth(seq),
        };
        renumber(
            packet.bytes_mut(),
            view,
            forth,
            |which, number| match which {
                Number::Ack => theirs.back(number, false),
                Number::SackStart => {
                    block = theirs.back(number, true);
                    block
                }
                Number::SackEnd => block.max(theirs.back(number, false)),
            },
        );
        Ok(new)
    }
}

/// Looks for the words in what has not been read yet, and notes what is to be replaced.
fn find(spec: &RewriteSpec, edits: &mut Edits, first: SeqNum, read: SeqNum, payload: &[u8]) {
    let words = spec.find.as_bytes();
    if words.is_empty() {
        return;
    }
    let mut at = read.since(first) as usize;
    while let Some(window) = payload.get(at..at + words.len()) {
        if window == words {
            let place = first + at as u32;
            edits.replace(place, words.len() as u32, spec.replace.len() as u32);
            at += words.len();
        } else {
            at += 1;
        }
    }
}

/// The payload with everything replaced that it touches; nothing, if it touches nothing.
fn replaced(spec: &RewriteSpec, edits: &Edits, first: SeqNum, payload: &[u8]) -> Option<Vec<u8>> {
    let end = first + payload.len() as u32;
    let mut found = edits.within(first, end).peekable();
    found.peek()?;
    let mut new = Vec::with_capacity(payload.len() + spec.replace.len());
    let mut at = first;
    for (from, to) in found {
        if from.after(at) {
            new.extend(&payload[at.since(first) as usize..from.since(first) as usize]);
        }
        // Also when only a part is here: the number is that of the whole replacement's beginning.
        new.extend(spec.replace.as_bytes());
        at = to;
    }
    if end.after(at) {
        new.extend(&payload[at.since(first) as usize..]);
    }
    Some(new)
}

impl Middlebox for Rewrite {
    fn name(&self) -> &'static str {
        "rewrite"
    }

    fn handle(&mut self, way: Way, mut packet: Box<Packet>, desk: &mut Desk<'_>) {
        let Some(view) = TcpView::of(packet.bytes()) else {
            return desk.forward(way, packet);
        };
        let flow = self.flows.of(packet.bytes(), &view, way, Default::default);
        let Some(flow) = flow else {
            return desk.forward(way, packet);
        };
        let new = match Self::rewrite(&self.spec, flow, way, &mut packet, &view) {
            Ok(new) => new,
            Err(why) => {
                self.touched += 1;
                return desk.drop(packet, why);
            }
        };
        let Some(new) = new else {
            view.fix_checksums(packet.bytes_mut());
            return desk.forward(way, packet);
        };
        self.touched += 1;
        let size = view.payload_len().max(SMALL);
        for piece in divide(desk.pool, &packet, &view, &new, size, Keep::Every) {
            desk.forward(way, piece);
        }
        desk.pool.give(packet);
    }

    fn touched(&self) -> u64 {
        self.touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middlebox::bench::Bench;
    use crate::view::tests::{acking, packet, reversed};
    use crate::view::{ACK, PSH, get_u32};

    fn bench(find: &str, replace: &str) -> Bench<Rewrite> {
        Bench::new(Rewrite::new(RewriteSpec {
            find: find.into(),
            replace: replace.into(),
            way: Some(Way::Out),
        }))
    }

    /// (sequence number, payload) of what comes out.
    fn through(bench: &mut Bench<Rewrite>, bytes: &[u8]) -> Vec<(u32, String)> {
        let read = |(_, bytes): (Way, Vec<u8>)| {
            let view = TcpView::of(&bytes).unwrap();
            let text = String::from_utf8(bytes[view.payload..].to_vec()).unwrap();
            (view.seq(&bytes), text)
        };
        bench.pass(Way::Out, bytes).into_iter().map(read).collect()
    }

    fn said(seq: u32, text: &str) -> Vec<(u32, String)> {
        vec![(seq, text.into())]
    }

    #[test]
    fn a_gateway_for_ftp_announces_its_own_address() {
        for ipv6 in [false, true] {
            let mut bench = bench("PORT 10,0,0,1", "PORT 203,0,113,77");
            let data = |seq, text: &str| packet(ipv6, ACK | PSH, seq, &[1; 8], text.as_bytes());
            let first = u32::MAX - 3;
            bench.one(
                Way::Out,
                &packet(ipv6, SYN, first.wrapping_sub(1), &[], b""),
            );
            let login = through(&mut bench, &data(first, "USER me\r\n"));
            assert_eq!(login, said(first, "USER me\r\n"));
            let port = data(5, "PORT 10,0,0,1,4,2\r\n");
            let changed = said(5, "PORT 203,0,113,77,4,2\r\n");
            assert_eq!(through(&mut bench, &port), changed);
            // The same when it is sent again, and what follows is shifted by four.
            assert_eq!(through(&mut bench, &port), changed);
            assert_eq!(
                through(&mut bench, &data(24, "LIST\r\n")),
                said(28, "LIST\r\n")
            );
            // Joined and cut otherwise: a part of the words brings all of them.
            let all = data(first, "USER me\r\nPORT 10,0,0,1,4,2\r\nLIST\r\n");
            let text = "USER me\r\nPORT 203,0,113,77,4,2\r\nLIST\r\n";
            assert_eq!(through(&mut bench, &all), said(first, text));
            assert_eq!(
                through(&mut bench, &data(9, " 10,")),
                said(5, "PORT 203,0,113,77")
            );
            // Acknowledgements and SACK blocks come back in the client's numbers.
            let mut blocks = vec![1, 1, 5, 10];
            blocks.extend(28u32.to_be_bytes());
            blocks.extend(34u32.to_be_bytes());
            let ack = acking(reversed(packet(ipv6, ACK, 900, &blocks, b"")), 26);
            let ack = bench.one(Way::In, &ack).unwrap();
            let view = TcpView::of(&ack).unwrap();
            assert_eq!((view.seq(&ack), view.ack(&ack)), (900, Some(22)));
            let at = view.tcp + 24;
            assert_eq!((get_u32(&ack, at), get_u32(&ack, at + 4)), (24, 30));
        }
    }

    #[test]
    fn a_full_segment_that_grows_becomes_two() {
        let mut bench = bench("x", "yyyy");
        let bytes = packet(false, ACK | PSH | FIN, 0, &[1; 4], &[b'x'; 1000]);
        let all = bench.pass(Way::Out, &bytes);
        let parts: Vec<_> = all
            .iter()
            .map(|(_, bytes)| {
                let view = TcpView::of(bytes).unwrap();
                (view.seq(bytes), view.payload_len(), view.flags)
            })
            .collect();
        let flags = [ACK, ACK, ACK, ACK | PSH | FIN];
        let expected: Vec<_> = (0..4u32)
            .map(|n| (n * 1000, 1000, flags[n as usize]))
            .collect();
        assert_eq!(parts, expected);
        // A burst of an offloading card may grow beyond the largest packet.
        let large = packet(true, ACK, 1000, &[], &[b'x'; 60_000]);
        assert_eq!(bench.pass(Way::Out, &large).len(), 4);
        assert_eq!(bench.kept(), 0);
    }

    #[test]
    fn what_vanishes_is_acknowledged() {
        let mut bench = bench("x", "");
        bench.one(Way::Out, &packet(false, ACK, 10, &[], b"ab"));
        assert_eq!(
            through(&mut bench, &packet(false, ACK, 12, &[], b"xx")),
            said(11, "")
        );
        let ack = acking(reversed(packet(false, ACK, 7, &[], b"")), 12);
        let ack = bench.one(Way::In, &ack).unwrap();
        assert_eq!(TcpView::of(&ack).unwrap().ack(&ack), Some(14));
        let fin = packet(false, ACK | FIN, 14, &[], b"");
        assert_eq!(through(&mut bench, &fin), said(12, ""));
    }

    #[test]
    fn it_does_not_read_past_a_hole() {
        let mut bench = bench("x", "yy");
        bench.one(Way::Out, &packet(true, ACK, 0, &[], b"ab"));
        assert_eq!(through(&mut bench, &packet(true, ACK, 4, &[], b"ef")), []);
        // Without payload there is nothing to read.
        assert_eq!(
            through(&mut bench, &packet(true, ACK, 4, &[], b"")),
            said(4, "")
        );
        assert_eq!(
            through(&mut bench, &packet(true, ACK, 2, &[], b"xd")),
            said(2, "yyd")
        );
        assert_eq!(
            through(&mut bench, &packet(true, ACK, 4, &[], b"ef")),
            said(5, "ef")
        );
    }
}
