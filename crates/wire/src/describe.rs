//! One line a packet, in the style of packet tools, with every Multipath TCP option spelt out.
//!
//! For logs, traces and test failures. Keys are not printed: a log must not be enough to take over a connection.

use alloc::string::{String, ToString};
use core::fmt::{self, Write};

use crate::ids::Mss;
use crate::ip::{self, icmp};
use crate::segment::{Segment, Verify};
use crate::tcp::header::Flags;
use crate::tcp::mptcp::{
    AddAddr, Capable, CapableKeys, DataAck, Dss, Join, MapDsn, MptcpOption, RemoveAddr, Reset,
};
use crate::tcp::options::{Options, Timestamps};

/// One line for a segment.
#[must_use]
pub fn segment(segment: &Segment<'_>) -> String {
    Line(segment).to_string()
}

/// One line for whatever an IP packet holds, an error included. Checksums are not checked.
#[must_use]
pub fn packet(packet: &[u8]) -> String {
    match Segment::parse(packet, Verify::Trusted) {
        Ok(parsed) => segment(&parsed),
        Err(error) => {
            match ip::parse(packet).map(|(meta, body)| (meta, icmp::parse(&meta, body))) {
                Ok((meta, Ok(icmp))) => icmp_line(&meta, &icmp),
                Ok((meta, Err(_))) => alloc::format!(
                    "IP {} > {}: protocol {}, length {}: {error:?}",
                    meta.src,
                    meta.dst,
                    meta.protocol,
                    meta.total_len
                ),
                Err(_) => alloc::format!("{} bytes, not understood: {error:?}", packet.len()),
            }
        }
    }
}

fn icmp_line(meta: &ip::IpMeta, error: &icmp::Error) -> String {
    let icmp::Error { tuple, seq, kind } = error;
    let what = match kind {
        icmp::Kind::Unreachable { code } => alloc::format!("unreachable, code {code}"),
        icmp::Kind::FragNeeded { mtu } => alloc::format!("too big, mtu {mtu}"),
        icmp::Kind::TtlExceeded => String::from("time exceeded"),
    };
    alloc::format!(
        "IP {} > {}: ICMP {what}, about {} > {} seq {seq}",
        meta.src,
        meta.dst,
        tuple.local,
        tuple.remote
    )
}

/// Displays a segment as one line.
#[derive(Clone, Copy, Debug)]
pub struct Line<'s, 'a>(pub &'s Segment<'a>);

impl fmt::Display for Line<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Segment {
            tuple,
            ip,
            header,
            options,
            payload,
            payload_sum: _,
        } = self.0;
        let version = if tuple.is_ipv6() { "IP6" } else { "IP" };
        write!(
            f,
            "{version} {} > {}: Flags [{}]",
            tuple.remote, tuple.local, header.flags
        )?;
        if ip.ecn == ip::Ecn::Ce {
            f.write_str(", CE")?;
        }
        write!(f, ", seq {}", header.seq)?;
        if !payload.is_empty() {
            // A payload is part of one IP packet, below 2^17 bytes.
            write!(f, ":{}", header.seq + payload.len() as u32)?;
        }
        if header.flags.contains(Flags::ACK) {
            write!(f, ", ack {}", header.ack)?;
        }
        write!(f, ", win {}", header.window)?;
        if header.flags.contains(Flags::URG) {
            write!(f, ", urg {}", header.urgent)?;
        }
        if *options != Options::EMPTY {
            write!(f, ", options [{}]", OptionList(options))?;
        }
        write!(f, ", length {}", payload.len())
    }
}

/// Displays an option list, comma-separated.
#[derive(Clone, Copy, Debug)]
pub struct OptionList<'o>(pub &'o Options);

impl fmt::Display for OptionList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options {
            mss,
            window_scale,
            sack_permitted,
            sack,
            timestamps,
            fastopen,
            mptcp,
            ignored,
        } = self.0;
        let mut list = Commas { f, first: true };
        if let Some(Mss(mss)) = mss {
            list.item(format_args!("mss {mss}"))?;
        }
        if *sack_permitted {
            list.item(format_args!("sackOK"))?;
        }
        if let Some(Timestamps { val, ecr }) = timestamps {
            list.item(format_args!("TS val {val} ecr {ecr}"))?;
        }
        if let Some(shift) = window_scale {
            list.item(format_args!("wscale {shift}"))?;
        }
        if let Some(fastopen) = fastopen {
            match fastopen.cookie() {
                [] => list.item(format_args!("tfo cookiereq"))?,
                cookie => list.item(format_args!("tfo cookie {}", Hex(cookie)))?,
            }
        }
        if !sack.is_empty() {
            list.item(format_args!("sack {}", sack.len()))?;
            for (start, end) in sack.iter() {
                write!(list.f, " {{{start}:{end}}}")?;
            }
        }
        for option in mptcp.iter() {
            list.item(format_args!("mptcp {}", MptcpLine(option)))?;
        }
        if *ignored > 0 {
            list.item(format_args!("{ignored} ignored"))?;
        }
        Ok(())
    }
}

/// Puts commas between items, not before the first.
struct Commas<'f, 'g> {
    f: &'f mut fmt::Formatter<'g>,
    first: bool,
}

impl Commas<'_, '_> {
    fn item(&mut self, item: fmt::Arguments<'_>) -> fmt::Result {
        if !core::mem::replace(&mut self.first, false) {
            self.f.write_char(',')?;
        }
        self.f.write_fmt(item)
    }
}

/// Bytes in hexadecimal without separators.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Displays one Multipath TCP option.
#[derive(Clone, Copy, Debug)]
pub struct MptcpLine<'o>(pub &'o MptcpOption);

impl fmt::Display for MptcpLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            MptcpOption::Capable(option) => capable(f, option),
            MptcpOption::Join(option) => join(f, option),
            MptcpOption::Dss(option) => dss(f, option),
            MptcpOption::AddAddr(option) => add_addr(f, option),
            MptcpOption::RemoveAddr(RemoveAddr { ids }) => {
                f.write_str("rem-addr id")?;
                ids.as_slice().iter().try_for_each(|id| write!(f, " {id}"))
            }
            MptcpOption::Prio(prio) => {
                f.write_str("prio")?;
                flag(f, prio.backup, " backup")
            }
            MptcpOption::Fail(fail) => write!(f, "fail dsn {}", fail.dsn),
            MptcpOption::FastClose(_) => f.write_str("fast-close"),
            MptcpOption::Reset(Reset { transient, reason }) => {
                write!(f, "tcprst {reason}")?;
                flag(f, *transient, " transient")
            }
            MptcpOption::Private(private) => write!(f, "private {:#x}", private.name()),
        }
    }
}

fn flag(f: &mut fmt::Formatter<'_>, set: bool, text: &str) -> fmt::Result {
    if set { f.write_str(text) } else { Ok(()) }
}

fn capable(f: &mut fmt::Formatter<'_>, option: &Capable) -> fmt::Result {
    let Capable {
        version,
        checksum_required,
        extensibility,
        no_joins_here,
        hmac_sha256,
        other_crypto,
        keys,
    } = option;
    write!(f, "capable v{version}")?;
    flag(f, *checksum_required, " csum")?;
    flag(f, *extensibility, " ext")?;
    flag(f, *no_joins_here, " nojoin")?;
    flag(f, !*hmac_sha256, " no-sha256")?;
    if *other_crypto != 0 {
        write!(f, " crypto {other_crypto:#x}")?;
    }
    match keys {
        CapableKeys::Syn => Ok(()),
        CapableKeys::SynAck { sender: _ } => f.write_str(" {key}"),
        CapableKeys::Ack {
            sender: _,
            receiver: _,
        } => f.write_str(" {key,key}"),
        CapableKeys::Data {
            sender: _,
            receiver: _,
            len,
            checksum,
        } => {
            write!(f, " {{key,key}} len {len}")?;
            checksum.map_or(Ok(()), |checksum| write!(f, " csum {checksum:#06x}"))
        }
    }
}

fn join(f: &mut fmt::Formatter<'_>, option: &Join) -> fmt::Result {
    match option {
        Join::Syn {
            backup,
            addr_id,
            token,
            nonce,
        } => {
            f.write_str("join")?;
            flag(f, *backup, " backup")?;
            write!(f, " id {addr_id} token {token} nonce {:08x}", nonce.0)
        }
        Join::SynAck {
            backup,
            addr_id,
            hmac,
            nonce,
        } => {
            f.write_str("join")?;
            flag(f, *backup, " backup")?;
            write!(f, " id {addr_id} hmac {} nonce {:08x}", Hex(hmac), nonce.0)
        }
        Join::Ack { hmac } => write!(f, "join hmac {}", Hex(hmac)),
    }
}

fn dss(f: &mut fmt::Formatter<'_>, option: &Dss) -> fmt::Result {
    let Dss {
        data_ack,
        mapping,
        data_fin,
    } = option;
    f.write_str("dss")?;
    flag(f, *data_fin, " fin")?;
    match data_ack {
        None => {}
        Some(DataAck::Short(low)) => write!(f, " ack {low}")?,
        Some(DataAck::Long(whole)) => write!(f, " ack64 {whole}")?,
    }
    let Some(mapping) = mapping else {
        return Ok(());
    };
    match mapping.dsn {
        MapDsn::Short(low) => write!(f, " seq {low}")?,
        MapDsn::Long(whole) => write!(f, " seq64 {whole}")?,
    }
    write!(f, " subseq {} len {}", mapping.ssn, mapping.len)?;
    flag(f, mapping.is_infinite(), " infinite")?;
    mapping
        .checksum
        .map_or(Ok(()), |checksum| write!(f, " csum {checksum:#06x}"))
}

fn add_addr(f: &mut fmt::Formatter<'_>, option: &AddAddr) -> fmt::Result {
    let AddAddr {
        echo,
        addr_id,
        addr,
        port,
        hmac,
    } = option;
    f.write_str("add-addr")?;
    flag(f, *echo, " echo")?;
    write!(f, " id {addr_id} {addr}")?;
    if let Some(port) = port {
        write!(f, " port {port}")?;
    }
    hmac.map_or(Ok(()), |hmac| write!(f, " hmac {}", Hex(&hmac)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsn::Dsn;
    use crate::ids::{AddrId, Key, Nonce, Token};
    use crate::segment::tests::{header, packet as build};
    use crate::seq::{SeqNum, Ssn};
    use crate::tcp::layout::{Fitted, Wanted, fit};
    use crate::tcp::mptcp::{Fail, FastClose, Mapping, Prio, Private, ResetReason};
    use crate::tcp::options::{FastOpen, SackBlocks};
    use core::net::IpAddr;

    fn line(flags: Flags, options: Options, payload: &[u8]) -> String {
        let fitted = fit(
            &Wanted {
                options,
                ..Wanted::default()
            },
            40,
        );
        assert!(fitted.left_out().is_empty());
        packet(&build(false, header(flags), &fitted, payload))
    }

    fn shown(option: MptcpOption) -> String {
        MptcpLine(&option).to_string()
    }

    #[test]
    fn a_syn_with_everything_usual() {
        let options = Options {
            mss: Some(Mss(1460)),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { val: 5, ecr: 0 }),
            fastopen: Some(FastOpen::REQUEST),
            mptcp: [MptcpOption::Capable(Capable::v1(true, CapableKeys::Syn))]
                .into_iter()
                .collect(),
            ..Options::EMPTY
        };
        assert_eq!(
            line(Flags::SYN, options, b""),
            "IP 10.0.0.1:1000 > 10.0.0.2:80: Flags [S], seq 100, win 500, options [mss 1460,sackOK,\
             TS val 5 ecr 0,wscale 7,tfo cookiereq,mptcp capable v1 csum], length 0"
        );
    }

    #[test]
    fn data_and_acknowledgements() {
        assert_eq!(
            line(Flags::ACK | Flags::PSH, Options::EMPTY, b"abc"),
            "IP 10.0.0.1:1000 > 10.0.0.2:80: Flags [P.], seq 100:103, ack 200, win 500, length 3"
        );
        let sack: SackBlocks = [(SeqNum::new(1), SeqNum::new(4))].into_iter().collect();
        assert_eq!(
            line(
                Flags::ACK,
                Options {
                    sack,
                    ..Options::EMPTY
                },
                b""
            ),
            "IP 10.0.0.1:1000 > 10.0.0.2:80: Flags [.], seq 100, ack 200, win 500, options [sack 1 {1:4}], length 0"
        );
    }

    #[test]
    fn every_mptcp_option_is_spelt_out() {
        let mapping = Mapping {
            dsn: MapDsn::Long(9),
            ssn: Ssn::new(1),
            len: 11,
            checksum: Some(0x58d8),
        };
        let whole = Dss {
            data_ack: Some(DataAck::Long(7)),
            mapping: Some(mapping),
            data_fin: true,
        };
        assert_eq!(
            shown(MptcpOption::Dss(whole)),
            "dss fin ack64 7 seq64 9 subseq 1 len 11 csum 0x58d8"
        );
        let infinite = Mapping {
            dsn: MapDsn::Short(9),
            len: 0,
            checksum: None,
            ..mapping
        };
        let short = Dss {
            data_ack: Some(DataAck::Short(7)),
            mapping: Some(infinite),
            data_fin: false,
        };
        assert_eq!(
            shown(MptcpOption::Dss(short)),
            "dss ack 7 seq 9 subseq 1 len 0 infinite"
        );
        let add = AddAddr {
            echo: false,
            addr_id: AddrId(2),
            addr: IpAddr::from([10, 1, 2, 3]),
            port: Some(8080),
            hmac: Some([0xab; 8]),
        };
        assert_eq!(
            shown(MptcpOption::AddAddr(add)),
            "add-addr id 2 10.1.2.3 port 8080 hmac abababababababab"
        );
        assert_eq!(
            shown(MptcpOption::AddAddr(add.to_echo())),
            "add-addr echo id 2 10.1.2.3 port 8080"
        );
        let ids = [AddrId(1), AddrId(7)].into_iter().collect();
        assert_eq!(
            shown(MptcpOption::RemoveAddr(RemoveAddr { ids })),
            "rem-addr id 1 7"
        );
        assert_eq!(
            shown(MptcpOption::Prio(Prio { backup: true })),
            "prio backup"
        );
        assert_eq!(
            shown(MptcpOption::Fail(Fail { dsn: Dsn::new(5) })),
            "fail dsn 5"
        );
        assert_eq!(
            shown(MptcpOption::Private(Private::new(0x152))),
            "private 0x152"
        );
        let reset = Reset {
            transient: true,
            reason: ResetReason::MiddleboxInterference,
        };
        assert_eq!(
            shown(MptcpOption::Reset(reset)),
            "tcprst middlebox interference transient"
        );
        let syn = Join::Syn {
            backup: true,
            addr_id: AddrId(3),
            token: Token(0xab),
            nonce: Nonce(1),
        };
        assert_eq!(
            shown(MptcpOption::Join(syn)),
            "join backup id 3 token 000000ab nonce 00000001"
        );
        let syn_ack = Join::SynAck {
            backup: false,
            addr_id: AddrId(0),
            hmac: [1; 8],
            nonce: Nonce(2),
        };
        assert_eq!(
            shown(MptcpOption::Join(syn_ack)),
            "join id 0 hmac 0101010101010101 nonce 00000002"
        );
        assert!(
            shown(MptcpOption::Join(Join::Ack { hmac: [2; 20] })).starts_with("join hmac 0202")
        );
    }

    #[test]
    fn keys_are_not_printed() {
        let key = Key([0xab; 8]);
        let data = CapableKeys::Data {
            sender: key,
            receiver: key,
            len: 11,
            checksum: Some(1),
        };
        let capable = shown(MptcpOption::Capable(Capable::v1(false, data)));
        assert_eq!(capable, "capable v1 {key,key} len 11 csum 0x0001");
        assert_eq!(
            shown(MptcpOption::FastClose(FastClose { key })),
            "fast-close"
        );
    }

    #[test]
    fn what_is_no_segment_has_a_line_too() {
        assert_eq!(packet(&[1, 2]), "2 bytes, not understood: Ip(Version(0))");
        let mut udp = build(false, header(Flags::ACK), &Fitted::EMPTY, b"");
        // The header checksum is kept right: protocol 6 and time to live 64 become 17 and 64, the field loses 11.
        udp[9] = 17;
        let checksum = u16::from_be_bytes([udp[10], udp[11]]) - 11;
        udp[10..12].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(
            packet(&udp),
            "IP 10.0.0.1 > 10.0.0.2: protocol 17, length 40: NotTcp(17)"
        );
    }
}
