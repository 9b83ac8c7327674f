//! What the applications of the grid do.

use manypath_sim::Simulation;
use serde::Serialize;

use super::Network;
use crate::parallel::{read_by_client, read_by_server};

/// Bytes of a request, which fit into one segment.
const REQUEST: u64 = 200;

/// What the client and the server say to each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// The client sends without a pause.
    #[default]
    Bulk,
    /// The client asks, the server answers with as many bytes as the network has drawn, and so on, one after the other.
    Requests,
}

impl Load {
    /// More than TCP can do in the time that it has.
    pub(super) fn without_end(self, network: &Network) -> String {
        self.words(network, u64::from(u32::MAX))
    }

    /// So many bytes, or as many whole answers as they are, and how many bytes that is.
    pub(super) fn of(self, network: &Network, bytes: u64) -> (String, u64) {
        let whole = match self {
            Self::Bulk => bytes,
            Self::Requests => (bytes / network.answer).max(1) * network.answer,
        };
        (self.words(network, whole), whole)
    }

    fn words(self, network: &Network, bytes: u64) -> String {
        let answer = network.answer;
        match self {
            Self::Bulk => format!("upload = \"{bytes}B\""),
            Self::Requests => format!(
                "request = \"{REQUEST}B\"\nresponse = \"{answer}B\"\nrounds = {}",
                bytes / answer
            ),
        }
    }

    /// Bytes that have come to where most of them go.
    pub(super) fn read(self, simulation: &Simulation) -> u64 {
        match self {
            Self::Bulk => read_by_server(simulation),
            Self::Requests => read_by_client(simulation),
        }
    }
}
