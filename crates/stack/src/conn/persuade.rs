//! Getting through where boxes drop packets because of our options.
//!
//! Owns the decision to say something once more without them, while the peer has not proved yet that it hears us. Each
//! time the version with options goes first and has a chance to be answered, so that a packet lost by chance costs no
//! Multipath TCP. Must never touch a connection on which options were seen to pass.

use manypath_tcp::time::Duration;
use manypath_wire::segment::Segment;

use super::handshake::capable_of;
use super::subflow::Greeting;
use super::{Conn, Cx};

/// Time that the repeated version with options has to be answered.
const PATIENCE: Duration = Duration::from_millis(300);

impl Conn {
    /// A segment of a handshake came again: our answer to it was lost, or dropped for its options.
    pub(crate) fn greeted_again(&mut self, i: usize, seg: &Segment<'_>, cx: &Cx<'_>) {
        let (syn, ack) = (seg.header.flags.syn(), seg.header.flags.ack());
        let sf = &mut self.subflows[i];
        match sf.greeting {
            // Who asks without gets an answer without; the third packet tells what it understood. // rfc8684:H5
            Greeting::CapableSynAck if syn && !ack => sf.plain = capable_of(seg).is_none(),
            Greeting::CapableAck if syn && ack => {
                sf.plain_at.get_or_insert(cx.now + PATIENCE);
            }
            _ => {}
        }
    }

    /// A retransmission timer fired: the offer goes once more by itself. // rfc8684:C32,H5
    pub(crate) fn nothing_came_back(&mut self, i: usize, cx: &Cx<'_>) {
        let sf = &mut self.subflows[i];
        if sf.greeting == Greeting::CapableSyn {
            (sf.plain, sf.plain_at) = (false, Some(cx.now + PATIENCE));
        }
    }

    /// What was said again with options was not answered either.
    pub(crate) fn plain_due(&mut self, cx: &Cx<'_>) {
        for sf in &mut self.subflows {
            if sf.plain_at.is_none_or(|at| at > cx.now) {
                continue;
            }
            sf.plain_at = None;
            match sf.greeting {
                Greeting::CapableSyn => {
                    sf.plain = true;
                    sf.tcp.repeat_syn();
                }
                Greeting::CapableAck => {
                    sf.plain = true;
                    sf.tcp.force_ack();
                }
                _ => {}
            }
        }
    }
}
