//! A connection as controllers see it, as plain data: all that [`View`] says, and nothing else.
//!
//! It comes with events whose answer somebody waits for, so it says little and is made straight from the stack's values.

use std::net::{IpAddr, SocketAddr};

use manypath_stack::ids::SubflowId;
use manypath_stack::pm::controllers::{LocalView, SubflowView, View};
use manypath_tcp::time::Duration;
use serde::{Deserialize, Serialize};

/// What controllers see of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ViewReport {
    /// Subflows may be added now.
    pub may_join: bool,
    /// Subflows may be asked for: they are made now, or as soon as the connection is fully established.
    pub may_create: bool,
    /// Stream bytes written by the application.
    pub bytes_written: u64,
    /// Stream bytes acknowledged at connection level.
    pub bytes_acked: u64,
    /// Subflows that are not ending.
    pub subflows: Vec<SubflowViewReport>,
    /// Our addresses that can be used.
    pub local_addresses: Vec<LocalViewReport>,
    /// Addresses of the peer to connect to, the first subflow's first.
    pub remote_addresses: Vec<SocketAddr>,
}

/// What controllers see of a subflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubflowViewReport {
    /// Its number within the connection.
    pub id: u32,
    /// Local address.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: SocketAddr,
    /// It carries data, or could.
    pub established: bool,
    /// Either end wants it only when nothing better is left.
    pub backup: bool,
    /// Smoothed round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub srtt_us: Option<u64>,
    /// Retransmission time-out, back-off included.
    pub rto_us: u64,
    /// Time-outs in a row.
    pub backoffs: u8,
    /// Its path does not answer.
    #[serde(default)]
    pub stale: bool,
    /// In congestion avoidance: past slow start, and not repairing a loss.
    pub steady: bool,
    /// Bytes a second that pacing lets go; absent without pacing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_rate: Option<u64>,
    /// Payload bytes acknowledged on it.
    pub bytes_acked: u64,
    /// Payload bytes sent again on it.
    pub bytes_retransmitted: u64,
}

/// What controllers see of an address of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalViewReport {
    /// The address.
    pub address: IpAddr,
    /// To be used only when nothing better is left.
    pub backup: bool,
}

impl From<&View> for ViewReport {
    fn from(view: &View) -> Self {
        let View {
            may_join,
            may_create,
            written,
            acked,
            subflows,
            locals,
            remotes,
        } = view;
        Self {
            may_join: *may_join,
            may_create: *may_create,
            bytes_written: *written,
            bytes_acked: *acked,
            subflows: subflows.iter().map(Into::into).collect(),
            local_addresses: locals
                .iter()
                .map(|&LocalView { addr, backup }| LocalViewReport {
                    address: addr,
                    backup,
                })
                .collect(),
            remote_addresses: remotes.clone(),
        }
    }
}

impl From<&SubflowView> for SubflowViewReport {
    fn from(view: &SubflowView) -> Self {
        let &SubflowView {
            id,
            local,
            remote,
            established,
            backup,
            srtt,
            rto,
            backoffs,
            stale,
            steady,
            pacing_rate,
            acked,
            retransmitted,
        } = view;
        Self {
            id: u32::from(id.0),
            local,
            remote,
            established,
            backup,
            srtt_us: srtt.map(|srtt| srtt.as_micros()),
            rto_us: rto.as_micros(),
            backoffs,
            stale,
            steady,
            pacing_rate: (pacing_rate != u64::MAX).then_some(pacing_rate),
            bytes_acked: acked,
            bytes_retransmitted: retransmitted,
        }
    }
}

impl From<&ViewReport> for View {
    fn from(report: &ViewReport) -> Self {
        let ViewReport {
            may_join,
            may_create,
            bytes_written,
            bytes_acked,
            subflows,
            local_addresses,
            remote_addresses,
        } = report;
        Self {
            may_join: *may_join,
            may_create: *may_create,
            written: *bytes_written,
            acked: *bytes_acked,
            subflows: subflows.iter().filter_map(subflow).collect(),
            locals: local_addresses
                .iter()
                .map(|&LocalViewReport { address, backup }| LocalView {
                    addr: address,
                    backup,
                })
                .collect(),
            remotes: remote_addresses.clone(),
        }
    }
}

/// `None` for a number that no subflow of ours has.
fn subflow(report: &SubflowViewReport) -> Option<SubflowView> {
    let &SubflowViewReport {
        id,
        local,
        remote,
        established,
        backup,
        srtt_us,
        rto_us,
        backoffs,
        stale,
        steady,
        pacing_rate,
        bytes_acked,
        bytes_retransmitted,
    } = report;
    Some(SubflowView {
        id: SubflowId(u8::try_from(id).ok()?),
        local,
        remote,
        established,
        backup,
        srtt: srtt_us.map(Duration::from_micros),
        rto: Duration::from_micros(rto_us),
        backoffs,
        stale,
        steady,
        pacing_rate: pacing_rate.unwrap_or(u64::MAX),
        acked: bytes_acked,
        retransmitted: bytes_retransmitted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_outside_sees_what_one_inside_sees() {
        let view = View {
            may_join: true,
            may_create: true,
            written: 5_000,
            acked: 4_000,
            subflows: vec![SubflowView {
                id: SubflowId(2),
                local: "10.0.0.1:5000".parse().expect("address"),
                remote: "[2001:db8::1]:80".parse().expect("address"),
                established: true,
                backup: true,
                srtt: Some(Duration::from_micros(12_345)),
                rto: Duration::from_millis(200),
                backoffs: 1,
                stale: true,
                steady: true,
                pacing_rate: 1_000_000,
                acked: 3_000,
                retransmitted: 100,
            }],
            locals: vec![LocalView {
                addr: "10.0.0.1".parse().expect("address"),
                backup: true,
            }],
            remotes: vec!["192.0.2.1:80".parse().expect("address")],
        };
        let without = View {
            subflows: vec![SubflowView {
                srtt: None,
                pacing_rate: u64::MAX,
                ..view.subflows[0]
            }],
            ..View::default()
        };
        for view in [view, without, View::default()] {
            let line = serde_json::to_string(&ViewReport::from(&view)).expect("JSON");
            let read: ViewReport = serde_json::from_str(&line).expect("it is read");
            assert_eq!(View::from(&read), view);
        }
    }
}
