//! What the neighbour cache says: questions, answers and announcements.

use super::Mac;
use super::arp::{Arp, Operation};
use super::cache::{Neighbours, OUTPUT_MAX, Output};
use super::nd::{self, Discovery, Message};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Neighbours {
    /// Tells the link that our owned addresses are here: unasked announcements (RFC 5227, section 3; RFC 4861, 7.2.6).
    pub fn announce(&mut self) {
        let owned: Vec<IpAddr> = self
            .links
            .iter()
            .filter(|l| l.owned)
            .map(|l| l.addr)
            .collect();
        for addr in owned {
            match addr {
                IpAddr::V4(addr) => self.announce_v4(addr),
                IpAddr::V6(addr) => {
                    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
                    let advert = Discovery {
                        src: addr,
                        dst: all_nodes,
                        target: addr,
                        message: Message::Advert {
                            target_mac: Some(self.mac),
                            solicited: false,
                            overrides: true,
                        },
                    };
                    self.emit(advert.to_frame(self.mac, nd::multicast_mac(all_nodes)));
                }
            }
        }
    }

    pub(super) fn announce_v4(&mut self, addr: Ipv4Addr) {
        let claim = Arp {
            operation: Operation::Request,
            sender_mac: self.mac,
            sender: addr,
            target_mac: Mac([0; 6]),
            target: addr,
        };
        self.emit(claim.to_frame(Mac::BROADCAST));
    }

    pub(super) fn ask(&mut self, src: IpAddr, hop: IpAddr, known: Option<Mac>) {
        let frame = match (src, hop) {
            (IpAddr::V4(src), IpAddr::V4(hop)) => Arp {
                operation: Operation::Request,
                sender_mac: self.mac,
                sender: src,
                target_mac: Mac([0; 6]),
                target: hop,
            }
            .to_frame(known.unwrap_or(Mac::BROADCAST)),
            (IpAddr::V6(src), IpAddr::V6(hop)) => {
                let group = nd::solicited_node(hop);
                Discovery {
                    src,
                    dst: if known.is_some() { hop } else { group },
                    target: hop,
                    message: Message::Solicit {
                        source_mac: Some(self.mac),
                    },
                }
                .to_frame(self.mac, known.unwrap_or(nd::multicast_mac(group)))
            }
            // A gateway of the other family cannot be asked; the entry fails by itself.
            _ => return,
        };
        self.counters.asked += 1;
        self.emit(frame);
    }

    pub(super) fn emit(&mut self, frame: Vec<u8>) {
        if self.output.len() < OUTPUT_MAX {
            self.output.push_back(Output::Control(frame));
        }
    }

    pub(super) fn answer_v6(&mut self, d: &Discovery, source_mac: Option<Mac>) {
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        // To somebody who checks for duplicates the answer goes to all (RFC 4861, section 7.2.4).
        let solicited = !d.src.is_unspecified();
        let dst = if solicited { d.src } else { all_nodes };
        let dst_mac = match (solicited, source_mac) {
            (true, Some(mac)) => mac,
            (true, None) => match self.known(IpAddr::V6(d.src)) {
                Some(mac) => mac,
                None => nd::multicast_mac(nd::solicited_node(d.src)),
            },
            (false, _) => nd::multicast_mac(all_nodes),
        };
        let advert = Discovery {
            src: d.target,
            dst,
            target: d.target,
            message: Message::Advert {
                target_mac: Some(self.mac),
                solicited,
                overrides: true,
            },
        };
        self.emit(advert.to_frame(self.mac, dst_mac));
    }
}
