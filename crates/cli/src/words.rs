//! Values that completion scripts offer, for arguments that take words of ours.
//!
//! An argument offers the words and takes whatever its type can read: `smart-backup` is offered, and
//! `smart-backup:threshold=1s` is taken.

use std::ffi::OsStr;
use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use manypath_lab::{boxes, figure};
use manypath_stack::api::ReceiveAlgorithm;
use manypath_stack::sched::Scheduler;
use manypath_tcp::cc::Algorithm;

/// What `--mechanisms` is made of.
pub(crate) const MECHANISMS: [&str; 7] = [
    "default",
    "none",
    "opportunistic",
    "penalise",
    "autotune",
    "cap",
    "guard",
];

/// Whose sockets there are.
pub(crate) const PROTOS: [&str; 3] = ["tcp", "mptcp", "kernel-mptcp"];

/// The arms of figures.
pub(crate) const ARMS: [&str; 5] = ["all", "sim", "process", "real", "kernel"];

/// The policies of path managers, without their parameters.
pub(crate) fn policies() -> Vec<String> {
    let named = [
        "fullmesh",
        "ndiffports",
        "passive",
        "userspace",
        "smart-backup",
        "streaming",
        "refresh",
        "pathfinder",
    ];
    named.map(str::to_owned).to_vec()
}

/// The schedulers.
pub(crate) fn schedulers() -> Vec<String> {
    Scheduler::ALL.iter().map(ToString::to_string).collect()
}

/// The congestion controls.
pub(crate) fn algorithms() -> Vec<String> {
    Algorithm::ALL.iter().map(ToString::to_string).collect()
}

/// The algorithms that find the place of what arrives out of order.
pub(crate) fn receive_algorithms() -> Vec<String> {
    let all = ReceiveAlgorithm::ALL.iter();
    all.map(ToString::to_string).collect()
}

/// The figures.
pub(crate) fn figures() -> Vec<String> {
    figure::all().map(|figure| figure.id.to_owned()).collect()
}

/// The figures, and the word for all of them.
pub(crate) fn figures_or_all() -> Vec<String> {
    let mut names = figures();
    names.push("all".to_owned());
    names
}

/// The middleboxes.
pub(crate) fn boxes() -> Vec<String> {
    boxes::cases().into_iter().map(|case| case.name).collect()
}

/// Reads a value by its type, and offers these words for it.
#[derive(Clone, Debug)]
pub(crate) struct Words<T> {
    offered: Vec<String>,
    of: PhantomData<fn() -> T>,
}

/// A parser that offers these words.
pub(crate) fn words<T>(offered: impl IntoIterator<Item = impl Into<String>>) -> Words<T> {
    Words {
        offered: offered.into_iter().map(Into::into).collect(),
        of: PhantomData,
    }
}

impl<T> TypedValueParser for Words<T>
where
    T: FromStr<Err: Display> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        let text = value.to_string_lossy();
        text.parse::<T>().map_err(|error| {
            let mut told = clap::Error::raw(
                ErrorKind::ValueValidation,
                format!(
                    "invalid value '{text}' for '{}': {error}\n",
                    arg.map(ToString::to_string).unwrap_or_default()
                ),
            )
            .with_cmd(command);
            told.insert(
                ContextKind::InvalidValue,
                ContextValue::String(text.to_string()),
            );
            told
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.offered.iter().map(PossibleValue::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manypath_lab::figure::Arms;
    use manypath_proxy::endpoint::Proto;
    use manypath_stack::{Mechanisms, PathManager};

    /// An offer that is refused would be worse than none.
    #[test]
    fn what_is_offered_is_taken() {
        fn all<T: FromStr>(words: impl IntoIterator<Item = impl AsRef<str>>) {
            for word in words {
                assert!(word.as_ref().parse::<T>().is_ok(), "{}", word.as_ref());
            }
        }
        all::<Scheduler>(schedulers());
        all::<Algorithm>(algorithms());
        all::<ReceiveAlgorithm>(receive_algorithms());
        all::<Mechanisms>(MECHANISMS);
        all::<Proto>(PROTOS);
        all::<Arms>(ARMS);
        let policies = policies().into_iter().map(|name| match name.as_str() {
            "ndiffports" => "ndiffports=2".to_owned(),
            _ => name,
        });
        all::<PathManager>(policies);
        for name in figures() {
            assert!(figure::find(&name).is_some(), "{name}");
        }
    }

    #[test]
    fn completion_scripts_offer_the_words() {
        let mut script = Vec::new();
        let mut command = <crate::args::Cli as clap::CommandFactory>::command();
        clap_complete::generate(
            clap_complete::Shell::Bash,
            &mut command,
            "manypath",
            &mut script,
        );
        let script = String::from_utf8(script).expect("text");
        for word in ["blest", "wvegas", "smart-backup", "nsdi-4c", "kernel-mptcp"] {
            assert!(script.contains(word), "{word} is not offered");
        }
        for name in boxes() {
            assert!(script.contains(&name), "{name} is not offered");
        }
    }

    #[test]
    fn what_is_not_offered_and_can_be_read_is_taken() {
        let parser = words::<PathManager>(policies());
        let command = clap::Command::new("x");
        let read = |text: &str| parser.parse_ref(&command, None, OsStr::new(text));
        assert!(read("smart-backup:threshold=1s").is_ok());
        assert!(read("dance").is_err());
    }
}
