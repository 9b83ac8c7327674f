//! Whoever is on the link says who has which address. Nothing may panic, what is kept stays bounded, and packets that
//! wait for an answer leave once or not at all.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use manypath_io::neigh::arp::{Arp, Operation};
use manypath_io::neigh::nd::{Discovery, Message, solicited_node};
use manypath_io::neigh::{EtherType, Frame, Link, Lookup, Mac, Neighbours, Output};

use crate::script::Script;

/// The interface's own address, and that of everybody else.
const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);
/// Steps of one run.
const MOST_STEPS: usize = 200;
/// Outputs of one step: answers, or everything that waited.
const MOST_OUTPUT: usize = 1_000;

fn v4(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

fn v6(last: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last))
}

/// One of sixteen neighbours, by a byte.
fn neighbour(byte: u8) -> IpAddr {
    match byte & 16 {
        0 => v4(byte & 15).into(),
        _ => v6(byte & 15).into(),
    }
}

/// Runs one script; and reads the whole of it as a frame.
pub fn neighbours(data: &[u8]) {
    frame(data);
    let mut script = Script::new(data);
    let mut cache = Neighbours::new(OWN);
    let owned = script.byte() & 1 != 0;
    for addr in [IpAddr::from(v4(1)), IpAddr::from(v6(1))] {
        cache.set_link(Link {
            addr,
            prefix: script.byte(),
            gateway: (script.byte() & 1 != 0)
                .then(|| neighbour(if addr.is_ipv4() { 9 } else { 25 })),
            owned,
        });
    }
    let mut now = Duration::from_secs(5);
    let (mut parked, mut left) = (0, 0);
    for _ in 0..MOST_STEPS {
        if script.is_over() {
            break;
        }
        match script.byte() {
            0..80 => parked += usize::from(send(&mut cache, &mut script, now)),
            80..170 => {
                let bytes = say(&mut script);
                frame(&bytes);
                cache.on_frame(now, &bytes);
            }
            170..190 => {
                let bytes: Vec<u8> = (0..script.byte() % 90).map(|_| script.byte()).collect();
                frame(&bytes);
                cache.on_frame(now, &bytes);
            }
            190..220 => now += Duration::from_millis(u64::from(script.half())),
            220..250 => {
                if let Some(at) = cache.deadline() {
                    now = now.max(at);
                    cache.on_timeout(now);
                    assert!(
                        cache.deadline().is_none_or(|next| next > now),
                        "time stands still"
                    );
                }
            }
            _ => cache.learn(now, neighbour(script.byte()), OTHER),
        }
        for count in 0.. {
            assert!(count < MOST_OUTPUT, "it speaks without end");
            match cache.pop_output() {
                Some(Output::Control(bytes)) => {
                    let frame = Frame::parse(&bytes).expect("what we say can be read");
                    assert_eq!(frame.src, OWN);
                }
                Some(Output::Parked { mac, .. }) => {
                    assert!(mac.is_unicast());
                    left += 1;
                }
                None => break,
            }
        }
    }
    assert!(left <= parked, "what waited leaves once");
}

/// A packet of ours for a neighbour. True if it has to wait.
fn send(cache: &mut Neighbours, script: &mut Script<'_>, now: Duration) -> bool {
    let to = neighbour(script.byte());
    let from = match to {
        IpAddr::V4(_) => IpAddr::from(v4(1)),
        IpAddr::V6(_) => IpAddr::from(v6(1)),
    };
    let Some(hop) = cache.next_hop(from, to) else {
        return false;
    };
    let waits = cache.resolve(now, from, hop) == Lookup::Wait;
    if waits {
        cache.park(hop, vec![0; usize::from(script.byte())]);
    }
    waits
}

/// A question or an answer of somebody on the link.
fn say(script: &mut Script<'_>) -> Vec<u8> {
    let (shape, who, whom) = (script.byte(), script.byte(), script.byte());
    let mac = match shape & 0xe {
        0 => Mac::BROADCAST,
        2 => OWN,
        _ => OTHER,
    };
    if shape & 16 == 0 {
        let arp = Arp {
            operation: if shape & 1 == 0 {
                Operation::Request
            } else {
                Operation::Reply
            },
            sender_mac: mac,
            sender: v4(who & 15),
            target_mac: OWN,
            target: v4(whom & 15),
        };
        return arp.to_frame(OWN);
    }
    let told = (shape & 32 == 0).then_some(mac);
    let message = if shape & 1 == 0 {
        Message::Solicit { source_mac: told }
    } else {
        Message::Advert {
            target_mac: told,
            solicited: shape & 64 != 0,
            overrides: shape & 128 != 0,
        }
    };
    let discovery = Discovery {
        src: if who & 16 == 0 {
            v6(who & 15)
        } else {
            Ipv6Addr::UNSPECIFIED
        },
        dst: if whom & 16 == 0 {
            v6(1)
        } else {
            solicited_node(v6(whom & 15))
        },
        target: v6(whom & 15),
        message,
    };
    discovery.to_frame(OTHER, OWN)
}

/// What was understood can be said again.
fn frame(bytes: &[u8]) {
    let Some(frame) = Frame::parse(bytes) else {
        return;
    };
    if frame.kind == EtherType::ARP {
        if let Some(arp) = Arp::parse(frame.payload) {
            let again = arp.to_frame(frame.dst);
            let read = Frame::parse(&again).and_then(|frame| Arp::parse(frame.payload));
            assert_eq!(read, Some(arp));
        }
    } else if let Some(discovery) = Discovery::parse(frame.payload) {
        let again = discovery.to_frame(frame.src, frame.dst);
        let read = Frame::parse(&again).and_then(|frame| Discovery::parse(frame.payload));
        assert_eq!(read, Some(discovery));
    }
}
