//! The policies that decide which subflows a connection has, with their parameters and their names.

use core::fmt;
use core::str::FromStr;

use manypath_tcp::time::Duration;

use super::controller::CustomController;

/// Which policy decides the subflows of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PathManager {
    /// Creates nothing; joins of the peer are accepted. What a server wants.
    #[default]
    Passive,
    /// One subflow for each pair of a local and a remote address.
    FullMesh,
    /// This many subflows between the first pair of addresses, with different source ports. While one of those addresses is
    /// gone, or nothing works between them, as [`FullMesh`](Self::FullMesh).
    Ndiffports(u8),
    /// Makes and announces nothing by itself: a controller decides.
    Userspace,
    /// No second subflow until the first one is in trouble (SMAPP section 4.2).
    SmartBackup(SmartBackup),
    /// A second subflow only when a block of a stream is late (SMAPP section 4.3).
    Streaming(Streaming),
    /// A number of subflows of which the slowest is replaced again and again (SMAPP section 4.4).
    Refresh(Refresh),
    /// As many subflows as raise the throughput (PathFinder, algorithm 1).
    PathFinder(PathFinder),
    /// What a controller from outside of this crate decides.
    Custom(&'static CustomController),
}

/// By which rule a controller of SMAPP judges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Ours, which does no worse than the paper's where both were measured (figures `smapp-2a`, `2b` and `2c`).
    #[default]
    Own,
    /// What the text of the paper says, and no more.
    Paper,
}

impl Rule {
    const fn words(self) -> &'static str {
        match self {
            Self::Own => "",
            Self::Paper => ",rule=paper",
        }
    }
}

/// Parameters of [`PathManager::SmartBackup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmartBackup {
    /// How long data may stay unacknowledged, and how large the retransmission time-out may become.
    pub threshold: Duration,
    /// How soon it is looked whether the primary path is well again; the pause doubles each time in vain, up to 16 times.
    pub retry: Duration,
    /// The paper's moves once, when the retransmission time-out passes `threshold`, and never looks back.
    pub rule: Rule,
}

impl Default for SmartBackup {
    fn default() -> Self {
        Self {
            threshold: Duration::from_secs(1),
            retry: Duration::from_secs(10),
            rule: Rule::Own,
        }
    }
}

/// Parameters of [`PathManager::Streaming`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streaming {
    /// Bytes of a block.
    pub block: u64,
    /// Time that a block may take. Half-way, half of it must be through; half-way through what is left then, half of the rest.
    pub period: Duration,
    /// A subflow whose retransmission time-out passes this is closed.
    pub bound: Duration,
    /// The paper's looks once, half-way, and closes whatever passes `bound`.
    pub rule: Rule,
}

impl Default for Streaming {
    fn default() -> Self {
        Self {
            block: 64 << 10,
            period: Duration::from_secs(1),
            bound: Duration::from_secs(1),
            rule: Rule::Own,
        }
    }
}

/// Parameters of [`PathManager::Refresh`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// Subflows.
    pub subflows: u8,
    /// How often one is replaced.
    pub every: Duration,
    /// The paper's replaces the one subflow with the lowest pacing rate each time.
    pub rule: Rule,
}

impl Default for Refresh {
    fn default() -> Self {
        Self {
            subflows: 5,
            every: Duration::from_millis(2_500),
            rule: Rule::Own,
        }
    }
}

/// Parameters of [`PathManager::PathFinder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathFinder {
    /// By how many percent the throughput must rise for one more subflow.
    pub beta: u16,
    /// Round trips over which the rise must hold; `None` adapts it to how much the throughput varies.
    pub gamma: Option<u8>,
    /// No more subflows than this.
    pub most: u8,
}

impl Default for PathFinder {
    fn default() -> Self {
        Self {
            beta: 20,
            gamma: None,
            most: 16,
        }
    }
}

/// The text names no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "there are fullmesh, ndiffports=N, passive, userspace, smart-backup, streaming, refresh and pathfinder, \
             the last four with parameters as in smart-backup:threshold=1s,retry=10s, \
             streaming:block=65536,period=1s,bound=1s, refresh:subflows=5,every=2500ms, pathfinder:beta=20,gamma=4,most=16; \
             the first three of these with rule=paper as well, for the paper's own rule",
        )
    }
}

impl core::error::Error for UnknownPolicy {}

impl fmt::Display for PathManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passive => f.write_str("passive"),
            Self::FullMesh => f.write_str("fullmesh"),
            Self::Ndiffports(n) => write!(f, "ndiffports={n}"),
            Self::Userspace => f.write_str("userspace"),
            Self::SmartBackup(SmartBackup {
                threshold,
                retry,
                rule,
            }) => {
                let (threshold, retry) = (Span(*threshold), Span(*retry));
                let rule = rule.words();
                write!(f, "smart-backup:threshold={threshold},retry={retry}{rule}")
            }
            Self::Streaming(Streaming {
                block,
                period,
                bound,
                rule,
            }) => {
                let (period, bound) = (Span(*period), Span(*bound));
                let rule = rule.words();
                write!(
                    f,
                    "streaming:block={block},period={period},bound={bound}{rule}"
                )
            }
            Self::Refresh(Refresh {
                subflows,
                every,
                rule,
            }) => {
                let (every, rule) = (Span(*every), rule.words());
                write!(f, "refresh:subflows={subflows},every={every}{rule}")
            }
            Self::PathFinder(PathFinder { beta, gamma, most }) => {
                write!(f, "pathfinder:beta={beta}")?;
                match gamma {
                    Some(gamma) => write!(f, ",gamma={gamma}")?,
                    None => f.write_str(",gamma=auto")?,
                }
                write!(f, ",most={most}")
            }
            Self::Custom(custom) => f.write_str(custom.name()),
        }
    }
}

impl FromStr for PathManager {
    type Err = UnknownPolicy;

    /// What [`fmt::Display`] writes; parameters may be left out and come in any order.
    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let (name, rest) = text.split_once([':', '=']).unwrap_or((text, ""));
        let plain = |policy| match rest {
            "" => Ok(policy),
            _ => Err(UnknownPolicy),
        };
        match name {
            "passive" => plain(Self::Passive),
            "fullmesh" | "full-mesh" => plain(Self::FullMesh),
            "userspace" => plain(Self::Userspace),
            "ndiffports" => {
                let mut subflows = 0;
                count(rest, &mut subflows).map(|()| Self::Ndiffports(subflows))
            }
            "smart-backup" => {
                let mut own = SmartBackup::default();
                each(rest, |key, value| match key {
                    "threshold" => span(value, &mut own.threshold),
                    "retry" => span(value, &mut own.retry),
                    "rule" => rule(value, &mut own.rule),
                    _ => Err(UnknownPolicy),
                })?;
                Ok(Self::SmartBackup(own))
            }
            "streaming" => {
                let mut own = Streaming::default();
                each(rest, |key, value| match key {
                    "block" => count(value, &mut own.block),
                    "period" => span(value, &mut own.period),
                    "bound" => span(value, &mut own.bound),
                    "rule" => rule(value, &mut own.rule),
                    _ => Err(UnknownPolicy),
                })?;
                Ok(Self::Streaming(own))
            }
            "refresh" => {
                let mut own = Refresh::default();
                each(rest, |key, value| match key {
                    "subflows" => count(value, &mut own.subflows),
                    "every" => span(value, &mut own.every),
                    "rule" => rule(value, &mut own.rule),
                    _ => Err(UnknownPolicy),
                })?;
                Ok(Self::Refresh(own))
            }
            "pathfinder" => {
                let mut own = PathFinder::default();
                each(rest, |key, value| match (key, value) {
                    ("beta", _) => number(value, &mut own.beta),
                    ("gamma", "auto") => Ok(()),
                    ("gamma", _) => number(value, own.gamma.insert(0)),
                    ("most", _) => count(value, &mut own.most),
                    _ => Err(UnknownPolicy),
                })?;
                Ok(Self::PathFinder(own))
            }
            _ => Err(UnknownPolicy),
        }
    }
}

/// Takes in `key=value` words between commas.
fn each<'a>(
    words: &'a str,
    mut take: impl FnMut(&'a str, &'a str) -> Result<(), UnknownPolicy>,
) -> Result<(), UnknownPolicy> {
    for word in words.split(',').filter(|word| !word.is_empty()) {
        let (key, value) = word.split_once('=').ok_or(UnknownPolicy)?;
        take(key, value)?;
    }
    Ok(())
}

fn number<T: FromStr>(text: &str, place: &mut T) -> Result<(), UnknownPolicy> {
    *place = text.parse().map_err(|_| UnknownPolicy)?;
    Ok(())
}

fn rule(text: &str, place: &mut Rule) -> Result<(), UnknownPolicy> {
    *place = match text {
        "own" => Rule::Own,
        "paper" => Rule::Paper,
        _ => return Err(UnknownPolicy),
    };
    Ok(())
}

/// A number of which none would make no sense.
fn count<T: FromStr + Default + PartialEq>(text: &str, place: &mut T) -> Result<(), UnknownPolicy> {
    number(text, place)?;
    (*place != T::default()).then_some(()).ok_or(UnknownPolicy)
}

fn span(text: &str, place: &mut Duration) -> Result<(), UnknownPolicy> {
    let (text, unit) = match text.strip_suffix("ms") {
        Some(text) => (text, Duration::from_millis(1)),
        None => {
            let text = text.strip_suffix('s').ok_or(UnknownPolicy)?;
            (text, Duration::from_secs(1))
        }
    };
    match text.parse() {
        Ok(count) if count > 0 => *place = unit.times(count),
        _ => return Err(UnknownPolicy),
    }
    Ok(())
}

/// Writes a time as it is read: in milliseconds, or in seconds where they are whole.
struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            ms if ms % 1000 == 0 => write!(f, "{}s", ms / 1000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let all = [
            PathManager::Passive,
            PathManager::FullMesh,
            PathManager::Userspace,
            PathManager::Ndiffports(5),
            PathManager::SmartBackup(SmartBackup {
                threshold: Duration::from_millis(700),
                ..SmartBackup::default()
            }),
            PathManager::SmartBackup(SmartBackup {
                rule: Rule::Paper,
                ..SmartBackup::default()
            }),
            PathManager::Streaming(Streaming::default()),
            PathManager::Streaming(Streaming {
                rule: Rule::Paper,
                ..Streaming::default()
            }),
            PathManager::Refresh(Refresh {
                rule: Rule::Paper,
                ..Refresh::default()
            }),
            PathManager::Refresh(Refresh {
                subflows: 9,
                ..Refresh::default()
            }),
            PathManager::PathFinder(PathFinder::default()),
            PathManager::PathFinder(PathFinder {
                gamma: Some(4),
                ..PathFinder::default()
            }),
        ];
        for policy in all {
            assert_eq!(policy.to_string().parse(), Ok(policy), "{policy}");
        }
    }

    #[test]
    fn parameters_have_defaults_and_nonsense_is_refused() {
        assert_eq!(
            "refresh".parse(),
            Ok(PathManager::Refresh(Refresh::default()))
        );
        assert_eq!("ndiffports:3".parse(), Ok(PathManager::Ndiffports(3)));
        for nonsense in [
            "",
            "ndiffports",
            "ndiffports=0",
            "fullmesh:x",
            "refresh:every=2",
            "refresh:every=0s",
            "refresh:often=2s",
            "refresh:subflows=0",
            "refresh:rule=ours",
            "pathfinder:rule=paper",
            "streaming:block=0",
            "pathfinder:most=0",
            "pathfinder:gamma=-1",
        ] {
            let read: Result<PathManager, _> = nonsense.parse();
            assert_eq!(read, Err(UnknownPolicy), "{nonsense}");
        }
    }
}
