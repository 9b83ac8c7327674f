//! Every attack with the bounds that hold for it: the one list for the tests and for `manypath lab attack`.

use manypath_stack::StackConfig;
use manypath_tcp::time::Duration;

use super::acks::{Liar, Lie};
use super::bench::{Outcome, Setup, run};
use super::blind::{Forger, Forgery};
use super::flows::{Fault, Flows};
use super::joins::{AddAddrStorm, JoinFlood, JoinHoard, Knowledge};
use super::memory::{Habit, Hoard};
use super::syns::{AckFlood, SynFlood};
use super::windows::{Creep, IdleSubflows};
use super::{Attack, Peace};

/// The least part of its goodput that an honest client keeps beside any attack.
pub const KEPT: f64 = 0.9;

/// One attack.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// What happens, in a few words.
    pub what: &'static str,
    /// The attacker.
    pub make: fn() -> Box<dyn Attack + Send>,
    /// The server's limits, where they are not the usual ones.
    pub config: fn() -> StackConfig,
    /// The counter that tells of it.
    pub counter: &'static str,
    /// Bytes of memory that the server may need at most, honest client included.
    pub memory: usize,
    /// Packets that the server may send for each of the attacker's.
    pub answers: f64,
    /// It can also run on real packets.
    pub real: bool,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// How a stack fared.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The attack's name.
    pub name: &'static str,
    /// With the attack.
    pub with: Outcome,
    /// Of the long transfer's goodput the part that is left, at most 1.
    pub bulk: f64,
    /// Of the short connections' number.
    pub short: f64,
    /// What is not as it should be.
    pub complaints: Vec<String>,
}

impl Verdict {
    /// The part that the honest client kept of whatever suffered most.
    #[must_use]
    pub fn kept(&self) -> f64 {
        self.bulk.min(self.short)
    }
}

/// What the honest client gets without an attack.
#[must_use]
pub fn peace(setup: &Setup) -> Outcome {
    run(setup, &mut Peace)
}

impl Case {
    /// Runs it, and compares with what was without it.
    #[must_use]
    pub fn run(&self, setup: &Setup, without: &Outcome) -> Verdict {
        let setup = Setup {
            config: (self.config)(),
            ..setup.clone()
        };
        let with = run(&setup, &mut *(self.make)());
        let part = |with: u64, without: u64| (with as f64 / without.max(1) as f64).min(1.0);
        let bulk = part(with.honest.bulk, without.honest.bulk);
        let short = part(with.honest.short, without.honest.short);
        let mut verdict = Verdict {
            name: self.name,
            with,
            bulk,
            short,
            complaints: Vec::new(),
        };
        verdict.complaints = self.complaints(&verdict, without);
        verdict
    }

    fn complaints(&self, verdict: &Verdict, without: &Outcome) -> Vec<String> {
        let mut complaints = Vec::new();
        let with = &verdict.with;
        if verdict.kept() < KEPT {
            let kept = verdict.kept() * 100.0;
            complaints.push(format!("the honest client kept {kept:.1} % of its goodput"));
        }
        if with.honest.failures > 0 {
            let count = with.honest.failures;
            complaints.push(format!("{count} of the honest client's connections failed"));
        }
        let memory = with.memory.total();
        if memory > self.memory {
            complaints.push(format!("{memory} bytes of memory, {} allowed", self.memory));
        }
        let answers = with.answers as f64 / with.packets.max(1) as f64;
        if answers > self.answers {
            complaints.push(format!(
                "{answers:.2} packets sent for each received, {} allowed",
                self.answers
            ));
        }
        // Honest clients count as well.
        let counted = |outcome: &Outcome| outcome.counters.get(self.counter).unwrap_or(0);
        if counted(with) <= counted(without) {
            complaints.push(format!("nothing more counted by {}", self.counter));
        }
        complaints
    }
}

/// Small limits, so that a short run reaches them.
fn small() -> StackConfig {
    StackConfig {
        max_memory: 32 << 20,
        patience: Duration::from_secs(2),
        ..StackConfig::default()
    }
}

fn very_small() -> StackConfig {
    StackConfig {
        max_memory: 8 << 20,
        ..small()
    }
}

fn few_from_one_address() -> StackConfig {
    StackConfig {
        max_per_source: 100,
        ..StackConfig::default()
    }
}

const MB: usize = 1 << 20;

/// They need thousands of descriptors, or download as fast as the machine can where no line holds them back.
const UNREAL: [&str; 8] = [
    "idle",
    "one-source",
    "closed-window",
    "tiny-window",
    "unread",
    "divided-acks",
    "unsent-acks",
    "concealed-loss",
];

macro_rules! case {
    ($name:literal, $what:literal, $make:expr, $counter:ident, $memory:expr, $answers:expr) => {
        case!(
            $name,
            $what,
            $make,
            $counter,
            $memory,
            $answers,
            StackConfig::default
        )
    };
    ($name:literal, $what:literal, $make:expr, $counter:ident, $memory:expr, $answers:expr, $config:expr) => {
        Case {
            name: $name,
            what: $what,
            make: || Box::new($make),
            config: $config,
            counter: stringify!($counter),
            memory: $memory,
            answers: $answers,
            real: !UNREAL.contains(&$name),
        }
    };
}

/// All attacks.
#[must_use]
pub fn all() -> Vec<Case> {
    let mut cases = handshakes();
    cases.extend(established());
    cases.extend(hoards());
    cases.extend(beyond_windows());
    cases
}

fn handshakes() -> Vec<Case> {
    vec![
        case!(
            "syn-flood",
            "SYNs with MP_CAPABLE from made-up addresses",
            SynFlood::new(5_000, true),
            syn_cookie_sent,
            12 * MB,
            1.1
        ),
        case!(
            "plain-syn-flood",
            "SYNs without Multipath TCP from made-up addresses",
            SynFlood::new(5_000, false),
            syn_cookie_sent,
            12 * MB,
            1.1
        ),
        case!(
            "ack-flood",
            "third packets of handshakes that never began",
            AckFlood::new(5_000),
            no_socket,
            8 * MB,
            0.5
        ),
        case!(
            "join-flood",
            "joins from made-up addresses with guessed tokens",
            JoinFlood::new(5_000, Knowledge::Nothing),
            join_unknown_token,
            8 * MB,
            0.5
        ),
        case!(
            "join-token",
            "joins from made-up addresses with an overheard token",
            JoinFlood::new(2_000, Knowledge::Token),
            join_refused,
            8 * MB,
            1.1
        ),
        case!(
            "join-code",
            "joins with an overheard token and guessed codes",
            JoinFlood::new(2_000, Knowledge::TokenAndPlace),
            join_ack_bad_hmac,
            8 * MB,
            1.1
        ),
        case!(
            "join-replay",
            "an overheard join repeated, code included",
            JoinFlood::new(2_000, Knowledge::Join),
            join_ack_bad_hmac,
            8 * MB,
            1.1
        ),
        case!(
            "add-addr-storm",
            "addresses announced and withdrawn without end",
            AddAddrStorm::new(5_000),
            add_addr_accepted,
            8 * MB,
            1.1
        ),
    ]
}

fn established() -> Vec<Case> {
    vec![
        case!(
            "blind-reset",
            "RSTs all over the sequence space, ports known",
            Forger::new(10_000, Forgery::Reset),
            segment_unacceptable,
            8 * MB,
            0.1
        ),
        case!(
            "blind-syn",
            "SYNs all over the sequence space, ports known",
            Forger::new(10_000, Forgery::Syn),
            challenge_ack,
            8 * MB,
            0.1
        ),
        case!(
            "blind-data",
            "payload at guessed numbers, ports known",
            Forger::new(10_000, Forgery::Data),
            segment_unacceptable,
            8 * MB,
            0.1
        ),
        case!(
            "divided-acks",
            "every acknowledgement in twenty parts",
            Liar::new(Lie::Divided(20)),
            data_ack_advanced,
            10 * MB,
            1.0
        ),
        case!(
            "unsent-acks",
            "acknowledgements for data that was never sent",
            Liar::new(Lie::Unsent),
            data_ack_invalid,
            10 * MB,
            1.5
        ),
        case!(
            "concealed-loss",
            "acknowledgements for data that was lost",
            Liar::new(Lie::Concealed),
            data_ack_advanced,
            10 * MB,
            4.0
        ),
        case!(
            "holes",
            "32 subflows fill their windows behind a hole",
            Flows::new(10_000, 32, Fault::Holes),
            reassembly_refused_bytes,
            32 * MB,
            1.1
        ),
        case!(
            "crumbs",
            "single bytes with holes between them on 4 subflows",
            Flows::new(10_000, 4, Fault::Crumbs),
            reassembly_refused_bytes,
            20 * MB,
            1.1
        ),
        case!(
            "far-ahead",
            "single bytes mapped far ahead of the stream",
            Flows::new(10_000, 8, Fault::FarAhead),
            scattered_bytes,
            20 * MB,
            1.1
        ),
        case!(
            "overlaps",
            "mappings that overlap and disagree",
            Flows::new(10_000, 8, Fault::Overlapping),
            dss_mapping_invalid,
            10 * MB,
            1.1
        ),
        case!(
            "only-mappings",
            "mappings whose bytes never come",
            Flows::new(10_000, 8, Fault::OnlyMappings),
            dss_mapping_invalid,
            10 * MB,
            0.5
        ),
        case!(
            "unmapped",
            "bytes whose mappings never come",
            Flows::new(10_000, 8, Fault::Unmapped),
            unmapped_bytes,
            // What goes on as TCP may fill the receive buffer.
            16 * MB,
            1.5
        ),
    ]
}

fn beyond_windows() -> Vec<Case> {
    vec![
        case!(
            "window-creep",
            "plain TCP that has every advertised window rounded up",
            Creep::new(20_000, false),
            segment_unacceptable,
            // The receive buffer, once.
            16 * MB,
            1.1
        ),
        case!(
            "fallen-creep",
            "the same after a fallback",
            Creep::new(20_000, true),
            segment_unacceptable,
            // The receive buffer, once.
            16 * MB,
            1.1
        ),
        case!(
            "idle-subflows",
            "64 subflows that use the windows they were told one after the other",
            IdleSubflows::new(10_000, 64),
            beyond_window_bytes,
            // The receive buffer, and the widest window once.
            24 * MB,
            1.1
        ),
    ]
}

fn hoards() -> Vec<Case> {
    vec![
        case!(
            "tiny-acks",
            "two hundred connections ask for much and acknowledge a byte now and then",
            Hoard::new(500, 200, Habit::TinyAcks),
            conn_shed,
            32 * MB,
            3.0,
            small
        ),
        case!(
            "join-hoard",
            "two hundred connections with all the subflows that they may have",
            JoinHoard::new(5_000, 200, 64),
            join_memory,
            10 * MB,
            1.5,
            very_small
        ),
        case!(
            "idle",
            "three thousand connections that do nothing",
            Hoard::new(1_000, 3_000, Habit::Idle),
            conn_established,
            24 * MB,
            1.5
        ),
        case!(
            "one-source",
            "more connections than one address may have",
            Hoard::new(1_000, 3_000, Habit::Idle),
            syn_source_limit,
            8 * MB,
            1.1,
            few_from_one_address
        ),
        case!(
            "closed-window",
            "a thousand connections ask for much and close their windows",
            Hoard::new(500, 1_000, Habit::ClosedWindow),
            conn_shed,
            32 * MB,
            3.0,
            small
        ),
        case!(
            "tiny-window",
            "MSS 1 and windows of one unit",
            Hoard::new(100, 200, Habit::TinyWindow),
            conn_established,
            80 * MB,
            4.0
        ),
        case!(
            "unread",
            "data for an application that does not read",
            Hoard::new(500, 1_000, Habit::Unread),
            conn_shed,
            32 * MB,
            1.5,
            small
        ),
    ]
}
