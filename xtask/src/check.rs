//! `cargo xtask check`: the list of steps, and how they are run and reported.

use std::process::Command;
use std::time::Instant;

use crate::source::Source;
use crate::workspace::{self, root};
use crate::{api, arch, compliance, hosts, licences, limits, parts, results, source};

/// What one step found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) errors: Vec<String>,
    pub(crate) warnings: Vec<String>,
    /// A figure for the report's line, such as how many things were looked at.
    pub(crate) note: Option<String>,
}

impl Findings {
    pub(crate) fn error(&mut self, text: String) {
        self.errors.push(text);
    }

    pub(crate) fn warning(&mut self, text: String) {
        self.warnings.push(text);
    }
}

/// The command line of `check`.
#[derive(Debug, Default)]
pub(crate) struct Options {
    only: Vec<String>,
    skip: Vec<String>,
    strict: bool,
    list: bool,
}

impl Options {
    /// Reads the arguments after `check`.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--strict" => options.strict = true,
                "--list" => options.list = true,
                "--only" | "--skip" => {
                    let step = args
                        .next()
                        .ok_or(format!("{arg} needs the name of a step"))?;
                    if !STEPS.iter().any(|s| s.name == step) {
                        return Err(format!(
                            "no step '{step}'; `cargo xtask check --list` shows them"
                        ));
                    }
                    if arg == "--only" {
                        &mut options.only
                    } else {
                        &mut options.skip
                    }
                    .push(step.clone());
                }
                other => return Err(format!("check does not know '{other}'")),
            }
        }
        Ok(options)
    }

    fn wants(&self, step: &str) -> bool {
        (self.only.is_empty() || self.only.iter().any(|s| s == step))
            && !self.skip.iter().any(|s| s == step)
    }
}

/// What a step works on.
enum Work {
    Sources(fn(&[Source]) -> Findings),
    Metadata {
        deps: bool,
        run: fn(&workspace::Metadata) -> Findings,
    },
    Compliance,
    Hosts,
    /// All tests, and what they say of the situations of `hosts`.
    Tests,
    Cargo {
        args: &'static [&'static str],
        env: &'static [(&'static str, &'static str)],
    },
    /// A program that not every machine has, in a folder of the workspace.
    Program {
        name: &'static str,
        folder: &'static str,
    },
}

struct Step {
    name: &'static str,
    what: &'static str,
    work: Work,
}

/// Quick ones first, so that a slip is seen before anything is compiled.
const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        what: "rustfmt changes nothing",
        work: Work::Cargo {
            args: &["fmt", "--all", "--check"],
            env: &[],
        },
    },
    Step {
        name: "crates",
        what: "crates depend only along the arrows of the architecture",
        work: Work::Metadata {
            deps: false,
            run: arch::crates,
        },
    },
    Step {
        name: "modules",
        what: "modules of tcp and stack, and parts of a connection, look only downwards",
        work: Work::Sources(arch::modules),
    },
    Step {
        name: "parts",
        what: "parts of a connection are small, and no file imports what imports it",
        work: Work::Sources(parts::check),
    },
    Step {
        name: "core",
        what: "wire, tcp and stack: no_std, no unsafe, no clock, locks, hash maps, shared pointers",
        work: Work::Sources(arch::core_rules),
    },
    Step {
        name: "unsafe",
        what: "unsafe only in crates/{io,host}/src/sys",
        work: Work::Sources(arch::unsafe_code),
    },
    Step {
        name: "api",
        what: "the public interface of the library is the one in crates/manypath/api.txt",
        work: Work::Sources(api::check),
    },
    Step {
        name: "limits",
        what: "sizes of files and functions",
        work: Work::Sources(limits::check),
    },
    Step {
        name: "licences",
        what: "licences of all dependencies",
        work: Work::Metadata {
            deps: true,
            run: licences::check,
        },
    },
    Step {
        name: "compliance",
        what: "rows of RFC 8684 with code and a test",
        work: Work::Compliance,
    },
    Step {
        name: "hosts",
        what: "situations of hosts and paths have tests, and are in docs/hosts.md",
        work: Work::Hosts,
    },
    Step {
        name: "mypy",
        what: "types of the Python library, strictly",
        work: Work::Program {
            name: "mypy",
            folder: "bindings/python",
        },
    },
    Step {
        name: "clippy",
        what: "lints, warnings as errors",
        work: Work::Cargo {
            args: &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--quiet",
                "--",
                "-D",
                "warnings",
            ],
            env: &[],
        },
    },
    Step {
        name: "fuzz",
        what: "fuzz targets compile",
        work: Work::Cargo {
            args: &[
                "check",
                "--manifest-path",
                "fuzz/Cargo.toml",
                "--all-targets",
                "--quiet",
            ],
            env: &[("RUSTFLAGS", "-D warnings")],
        },
    },
    Step {
        name: "docs",
        what: "documentation builds without a warning",
        work: Work::Cargo {
            args: &[
                "doc",
                "--workspace",
                "--no-deps",
                "--document-private-items",
                "--quiet",
            ],
            env: &[("RUSTDOCFLAGS", "-D warnings")],
        },
    },
    Step {
        name: "test",
        what: "all tests",
        work: Work::Tests,
    },
];

/// Runs the wanted steps, all of them even when one fails.
pub(crate) fn run(options: &Options) -> Result<bool, String> {
    if options.list {
        for step in STEPS {
            println!("{:<11} {}", step.name, step.what);
        }
        return Ok(true);
    }
    let sources = source::load()?;
    let mut failed = Vec::new();
    for step in STEPS.iter().filter(|s| options.wants(s.name)) {
        let started = Instant::now();
        let found = match &step.work {
            Work::Sources(run) => run(&sources),
            Work::Metadata { deps, run } => run(&workspace::metadata(*deps)?),
            Work::Compliance => compliance::findings(&sources)?,
            Work::Hosts => hosts::findings(&sources)?,
            Work::Tests => all_tests()?,
            Work::Cargo { args, env } => cargo(args, env),
            Work::Program { name, folder } => program(name, folder),
        };
        let mark = if found.errors.is_empty() {
            '✓'
        } else {
            '✗'
        };
        let note = found
            .note
            .as_deref()
            .map(|n| format!(" ({n})"))
            .unwrap_or_default();
        println!(
            "{mark} {:<11} {}{note}  {:.1} s",
            step.name,
            step.what,
            started.elapsed().as_secs_f64()
        );
        for text in &found.errors {
            println!("    error: {text}");
        }
        for text in &found.warnings {
            println!("    warning: {text}");
        }
        if !found.errors.is_empty() {
            failed.push(step.name);
        }
    }
    if failed.is_empty() {
        println!("all checks passed");
    } else {
        println!(
            "failed: {}; run one alone with `cargo xtask check --only STEP`",
            failed.join(", ")
        );
    }
    Ok(failed.is_empty())
}

/// Runs a program that finds what to check in its folder. Where there is none, the step is left out, and says so.
fn program(name: &str, folder: &str) -> Findings {
    let mut found = Findings::default();
    match Command::new(name).current_dir(root().join(folder)).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            found.error(format!("{name} ended with {}:\n{said}", output.status));
        }
        Err(error) => found.warning(format!(
            "not checked, {name} cannot be run ({error}); `scripts/setup test` installs it"
        )),
    }
    found
}

/// Runs all tests, and shows what they say of the situations of `hosts`.
fn all_tests() -> Result<Findings, String> {
    let mut found = Findings::default();
    let (passed, results) = results::run(&["test", "--workspace"], &[])?;
    print!("\n{}\n", hosts::table(&results)?);
    if !passed {
        found.error("a test failed".to_owned());
    }
    found.note = Some(format!("{} tests", results.len()));
    Ok(found)
}

/// Runs Cargo with its output shown as it comes.
fn cargo(args: &[&str], env: &[(&str, &str)]) -> Findings {
    let mut found = Findings::default();
    let status = Command::new("cargo")
        .current_dir(root())
        .args(args)
        .envs(env.iter().copied())
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => found.error(format!("cargo {} ended with {status}", args.join(" "))),
        Err(error) => found.error(format!("cannot run cargo: {error}")),
    }
    found
}
