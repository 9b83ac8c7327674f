//! From the words of a scenario file to the values that a network is built from, and what can be wrong with them.

use manypath_stack::api::{ConnOptions, LARGEST_BUFFER, Mode};
use manypath_tcp::machine::Keepalive;
use manypath_tcp::units::Rate;

use super::units::{Depth, Size, Span};
use super::{KindSpec, LineSpec, LossModel, LossSpec, LossSpecs, OptionsSpec, Scenario};
use crate::line::{Buffer, LineConfig, Reorder};
use crate::loss::{Kind, Loss};
use crate::rng::Chance;

/// What is wrong with a scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The file is not what it should be.
    #[error("{0}")]
    Syntax(String),
    /// A name that nothing has.
    #[error("{place} names {what} \"{name}\", which does not exist")]
    Unknown {
        /// Where.
        place: String,
        /// What was looked for.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A combination that makes no sense.
    #[error("{0}")]
    Senseless(String),
}

impl Scenario {
    /// Reads a scenario file.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        toml::from_str(text).map_err(|error| ScenarioError::Syntax(error.to_string()))
    }

    /// The scenario as a file that [`parse`](Self::parse) reads back as the same.
    pub fn to_toml(&self) -> Result<String, ScenarioError> {
        toml::to_string(self).map_err(|error| ScenarioError::Syntax(error.to_string()))
    }
}

impl LossSpecs {
    /// The loss models meant.
    #[must_use]
    pub fn models(&self) -> Vec<Loss> {
        let model = |spec: &LossSpec| match spec {
            LossSpec::Chance(chance) => Loss::Bernoulli(chance.0),
            LossSpec::Model(LossModel::GilbertElliott {
                worsen,
                recover,
                good,
                bad,
            }) => Loss::gilbert_elliott(worsen.0, recover.0, good.0, bad.0),
            LossSpec::Model(LossModel::Mask { of, numbers }) => {
                Loss::mask(kind(*of), numbers.clone())
            }
        };
        self.0.iter().map(model).collect()
    }
}

fn kind(spec: KindSpec) -> Kind {
    match spec {
        KindSpec::Any => Kind::Any,
        KindSpec::Payload => Kind::Payload,
        KindSpec::Acknowledgement => Kind::Acknowledgement,
        KindSpec::Syn => Kind::Syn,
        KindSpec::SynAck => Kind::SynAck,
        KindSpec::Fin => Kind::Fin,
    }
}

impl LineSpec {
    /// A line like `self`, except where `over` says otherwise.
    #[must_use]
    pub fn config(&self, over: &Self) -> LineConfig {
        let rate = over.rate.or(self.rate).map_or(Rate::MAX, |speed| speed.0);
        let buffer = match over.buffer.or(self.buffer) {
            None => Buffer::Unlimited,
            Some(Depth::Bytes(bytes)) => Buffer::Bytes(bytes),
            Some(Depth::Time(time)) => Buffer::Time(time),
        };
        let loss = over.loss.as_ref().or(self.loss.as_ref());
        let reorder = over.reorder.as_ref().or(self.reorder.as_ref());
        LineConfig {
            rate,
            delay: over
                .delay
                .or(self.delay)
                .map_or_else(Default::default, |span| span.0),
            buffer,
            mtu: over.mtu.or(self.mtu).unwrap_or(1500),
            loss: loss.map(LossSpecs::models).unwrap_or_default(),
            reorder: reorder.map(|spec| Reorder {
                chance: spec.chance.0,
                extra: spec.extra.0,
            }),
            duplicate: over
                .duplicate
                .or(self.duplicate)
                .map_or(Chance::NEVER, |chance| chance.0),
            mark_above: over.mark_above.or(self.mark_above).map(|size| size.0),
        }
    }
}

impl OptionsSpec {
    /// Changes `options` where this specification says so.
    pub fn apply(&self, options: &mut ConnOptions) -> Result<(), ScenarioError> {
        // Destructured, so that a new word cannot be forgotten here.
        let Self {
            plain_tcp,
            scheduler,
            mechanisms,
            congestion,
            receive,
            path_manager,
            checksum,
            long_dsn,
            send_buffer,
            recv_buffer,
            nodelay,
            ecn,
            pacing,
            keepalive,
            user_timeout,
            break_before_make,
            max_subflows,
        } = self;
        if let Some(plain) = plain_tcp {
            options.mode = if *plain {
                Mode::PlainTcp
            } else {
                Mode::Multipath
            };
        }
        if let Some(name) = scheduler {
            options.scheduler = name
                .parse()
                .map_err(|known| unlisted("scheduler", name, &known))?;
        }
        if let Some(name) = mechanisms {
            let known = name.parse().map_err(|_| unknown("mechanism", name))?;
            options.mechanisms = known;
        }
        if let Some(name) = congestion {
            options.congestion = name
                .parse()
                .map_err(|known| unlisted("congestion control", name, &known))?;
        }
        if let Some(name) = receive {
            options.receive = name
                .parse()
                .map_err(|known| unlisted("receive algorithm", name, &known))?;
        }
        if let Some(name) = path_manager {
            options.path_manager = name.parse().map_err(|_| unknown("path manager", name))?;
        }
        set(&mut options.checksum, checksum.as_ref().copied());
        set(&mut options.long_dsn, long_dsn.as_ref().copied());
        set(&mut options.send_buffer, buffer("send", *send_buffer)?);
        set(&mut options.recv_buffer, buffer("receive", *recv_buffer)?);
        set(&mut options.nodelay, nodelay.as_ref().copied());
        set(&mut options.ecn, ecn.as_ref().copied());
        set(&mut options.pacing, pacing.as_ref().copied());
        set(
            &mut options.break_before_make,
            break_before_make.map(|span| span.0),
        );
        set(&mut options.max_subflows, max_subflows.as_ref().copied());
        if let Some(Span(idle)) = *keepalive {
            options.keepalive = Some(Keepalive {
                idle,
                interval: idle.over(4),
                count: 5,
            });
        }
        if let Some(span) = user_timeout {
            options.user_timeout = Some(span.0);
        }
        Ok(())
    }
}

/// A buffer holds a byte at least, and no more than the largest window.
fn buffer(which: &str, size: Option<Size>) -> Result<Option<u32>, ScenarioError> {
    let sensible = |size: &u32| (1..=LARGEST_BUFFER).contains(size);
    let bytes = size.map(|size| u32::try_from(size.0).ok().filter(sensible));
    match bytes {
        Some(None) => Err(ScenarioError::Senseless(format!(
            "the {which} buffer of an application's options is 1 B to 1 GiB"
        ))),
        fits => Ok(fits.flatten()),
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// An unknown name whose error lists those that there are.
fn unlisted(what: &'static str, name: &str, known: &dyn std::fmt::Display) -> ScenarioError {
    ScenarioError::Senseless(format!(
        "an application's options name {what} \"{name}\": {known}"
    ))
}

fn unknown(what: &'static str, name: &str) -> ScenarioError {
    ScenarioError::Unknown {
        place: "an application's options".into(),
        what,
        name: name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manypath_stack::api::PathManager;
    use manypath_tcp::cc::Algorithm;
    use manypath_tcp::time::Duration;

    const SMALL: &str = r#"
        title = "small"
        [[host]]
        name = "c"
        [[host.interface]]
        name = "w"
        addresses = ["10.0.0.1"]
        [[host]]
        name = "s"
        [[host.interface]]
        name = "e"
        addresses = ["10.0.0.2"]
        [[link]]
        name = "l"
        ends = ["c.w", "s.e"]
        rate = "8Mbit/s"
        delay = "10ms"
        buffer = "80ms"
        loss = ["1%", { kind = "mask", of = "payload", numbers = [3] }]
        back = { rate = "1Mbit/s", loss = [] }
        [[link.box]]
        kind = "strip"
        phases = ["syn"]
        [[app]]
        name = "a"
        client = "c"
        server = "s"
        download = "1MB"
        options = { congestion = "lia", path-manager = "ndiffports:3" }
        [[event]]
        do = "cut"
        at = "3s"
        link = "l"
    "#;

    #[test]
    fn a_scenario_says_what_it_means() {
        let scenario = Scenario::parse(SMALL).unwrap();
        let link = &scenario.links[0];
        let out = link.line.config(&link.out);
        assert_eq!(out.rate, Rate::from_bits_per_sec(8_000_000));
        assert_eq!((out.delay, out.loss.len()), (Duration::from_millis(10), 2));
        let back = link.line.config(&link.back);
        assert_eq!(back.rate, Rate::from_bits_per_sec(1_000_000));
        assert_eq!(
            (back.buffer, back.loss.len()),
            (Buffer::Time(Duration::from_millis(80)), 0)
        );
        let mut options = ConnOptions::default();
        scenario.apps[0].options.apply(&mut options).unwrap();
        assert_eq!(options.congestion, Algorithm::Lia);
        assert_eq!(options.path_manager, PathManager::Ndiffports(3));
    }

    #[test]
    fn a_scenario_can_be_written_and_read_back() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
        let files = std::fs::read_dir(folder).unwrap();
        let paths = files.map(|entry| entry.unwrap().path());
        let texts = paths
            .filter(|path| path.is_file())
            .map(|path| std::fs::read_to_string(path).unwrap());
        for text in texts.chain([SMALL.to_owned()]) {
            let scenario = Scenario::parse(&text).unwrap();
            let written = scenario.to_toml().unwrap();
            let again = Scenario::parse(&written).unwrap_or_else(|e| panic!("{e}\n{written}"));
            assert_eq!(again, scenario, "{written}");
        }
    }

    #[test]
    fn a_misspelt_word_is_an_error_that_names_it() {
        for (right, wrong) in [
            ("rate =", "rat ="),
            ("download =", "downlod ="),
            ("numbers =", "number ="),
            ("title =", "tittle ="),
            ("\"cut\"", "\"cult\""),
            ("phases =", "phrases ="),
        ] {
            let text = SMALL.replacen(right, wrong, 1);
            let error = Scenario::parse(&text).unwrap_err().to_string();
            let word = wrong.trim_matches(|c: char| !c.is_ascii_alphabetic());
            assert!(error.contains(word), "{wrong}: {error}");
        }
        let options = OptionsSpec {
            congestion: Some("vegas9".into()),
            ..OptionsSpec::default()
        };
        let error = options.apply(&mut ConnOptions::default()).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("vegas9") && error.contains("wvegas"),
            "{error}"
        );
        let options = OptionsSpec {
            scheduler: Some("quickest".into()),
            ..OptionsSpec::default()
        };
        let error = options.apply(&mut ConnOptions::default()).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("quickest") && error.contains("blest"),
            "{error}"
        );
    }
}
