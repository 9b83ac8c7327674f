//! The architecture's arrows and the rules of the pure crates, as a machine can check them.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::check::Findings;
use crate::source::Source;
use crate::workspace::Metadata;

/// Each crate and the crates it may depend on. `tests` and `xtask` may see everything and are seen by nobody.
const ARROWS: &[(&str, &[&str])] = &[
    ("manypath-wire", &[]),
    ("manypath-tcp", &["manypath-wire"]),
    ("manypath-stack", &["manypath-wire", "manypath-tcp"]),
    ("manypath-sim", CORE),
    ("manypath-host", &[]),
    (
        "manypath-io",
        &[
            "manypath-wire",
            "manypath-tcp",
            "manypath-stack",
            "manypath-host",
        ],
    ),
    ("manypath-control", CORE),
    // The library that applications take: what it needs of others it has under names of its own.
    (
        "manypath",
        &[
            "manypath-wire",
            "manypath-tcp",
            "manypath-stack",
            "manypath-io",
        ],
    ),
    (
        "manypath-proxy",
        &[
            "manypath-wire",
            "manypath-tcp",
            "manypath-stack",
            "manypath-host",
            "manypath-io",
            "manypath-control",
        ],
    ),
    (
        "manypath-lab",
        &[
            "manypath-wire",
            "manypath-tcp",
            "manypath-stack",
            "manypath-sim",
            "manypath-io",
        ],
    ),
    (TESTKIT, CORE),
    ("manypath-cli", ALL),
    ("manypath-tests", ALL),
    ("xtask", ALL),
];

const CORE: &[&str] = &["manypath-wire", "manypath-tcp", "manypath-stack"];

const ALL: &[&str] = &[
    "manypath-wire",
    "manypath-tcp",
    "manypath-stack",
    "manypath-sim",
    "manypath-host",
    "manypath-io",
    "manypath",
    "manypath-control",
    "manypath-proxy",
    "manypath-lab",
];

/// What tests share. Any crate's tests may use it, no crate itself.
const TESTKIT: &str = "manypath-testkit";

/// The crates that are pure: no clock, no allocation beyond `alloc`, no operating system.
const PURE: &[&str] = &["wire", "tcp", "stack"];

/// Levels of the modules of one crate, or of those within one of its modules, lowest first. A module may use the levels below its own;
/// those of the lowest level may also use each other. `lib.rs`, or the `mod.rs` around them, may name everything.
struct Levels {
    krate: &'static str,
    within: &'static [&'static str],
    levels: &'static [&'static [&'static str]],
}

const MODULES: &[Levels] = &[
    Levels {
        krate: "tcp",
        within: &[],
        levels: &[
            &["time", "units", "timer", "ranges", "config"],
            &["cc", "recovery"],
            &["send", "recv", "life"],
            &["machine"],
        ],
    },
    Levels {
        krate: "stack",
        within: &[],
        levels: &[
            &["crypto", "stats", "trace", "config", "ids", "slab", "table"],
            &["sched"],
            // The stack's vocabulary towards its caller; path managers and connections speak it too.
            &["api"],
            &["pm", "shape"],
            &["conn"],
            &["stack"],
        ],
    },
    Levels {
        krate: "stack",
        within: &["conn"],
        levels: &[
            &["types", "dss", "events", "level"],
            &["subflow"],
            &["send", "recv", "life"],
            &["paths"],
            &["pull", "failover", "handshake", "fallback"],
            &[
                "close",
                "commands",
                "data_timeout",
                "incoming",
                "info",
                "limits",
                "readable",
            ],
            &["descent"],
            &["timers"],
            &["pipeline"],
        ],
    },
];

/// Words that have no business in a pure crate, and why.
const FORBIDDEN: &[(&str, &str)] = &[
    ("std", "the operating system stays outside"),
    ("HashMap", "its order of iteration differs from run to run"),
    ("HashSet", "its order of iteration differs from run to run"),
    ("Rc", "one owner only"),
    ("Arc", "one owner only"),
    ("Mutex", "no locks"),
    ("RwLock", "no locks"),
    ("RefCell", "no hidden borrows"),
    ("SystemTime", "time comes in as an argument"),
    ("getrandom", "randomness comes in as an argument"),
    ("thread_rng", "randomness comes in as an argument"),
];

/// Dependencies between crates follow the arrows.
pub(crate) fn crates(metadata: &Metadata) -> Findings {
    let mut found = Findings::default();
    let members: BTreeSet<&str> = metadata
        .packages
        .iter()
        .filter(|p| metadata.workspace_members.contains(&p.id))
        .map(|p| p.name.as_str())
        .collect();
    for package in metadata
        .packages
        .iter()
        .filter(|p| members.contains(p.name.as_str()))
    {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
            found.error(format!(
                "{} has no place in the architecture (xtask/src/arch.rs)",
                package.name
            ));
            continue;
        };
        for dependency in package
            .dependencies
            .iter()
            .filter(|d| members.contains(d.name.as_str()))
        {
            let tests =
                package.name == "manypath-tests" || dependency.kind.as_deref() == Some("dev");
            let shared = tests && dependency.name == TESTKIT;
            if !shared && !allowed.contains(&dependency.name.as_str()) {
                found.error(format!(
                    "{} may not depend on {}",
                    package.name, dependency.name
                ));
            }
        }
    }
    found
}

/// `no_std` and no `unsafe` are declared, and the forbidden words are absent.
pub(crate) fn core_rules(sources: &[Source]) -> Findings {
    let mut found = Findings::default();
    for krate in PURE {
        let path = format!("crates/{krate}/src/lib.rs");
        let Some(lib) = sources.iter().find(|s| s.path == path) else {
            found.error(format!("{path} is missing"));
            continue;
        };
        for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            if !lib.text.lines().any(|line| line.trim() == attribute) {
                found.error(format!("{path} lacks {attribute}"));
            }
        }
    }
    let pure = |s: &&Source| s.krate().is_some_and(|k| PURE.contains(&k)) && s.module().is_some();
    for source in sources.iter().filter(pure) {
        source.for_each_code_ident(&mut |name, line| {
            if let Some((_, why)) = FORBIDDEN.iter().find(|(word, _)| *word == name) {
                found.error(format!("{}:{line}: `{name}`: {why}", source.path));
            }
        });
    }
    found
}

/// The folders of thin wrappers over system calls.
const SYS: [&str; 2] = ["crates/io/src/sys/", "crates/host/src/sys/"];

/// All `unsafe` of the workspace lives in the folders for it.
pub(crate) fn unsafe_code(sources: &[Source]) -> Findings {
    let mut found = Findings::default();
    for source in sources
        .iter()
        .filter(|s| !SYS.iter().any(|folder| s.path.starts_with(folder)))
    {
        source.for_each_ident(&mut |name, line| {
            if name == "unsafe" {
                found.error(format!(
                    "{}:{line}: unsafe code outside crates/{{io,host}}/src/sys",
                    source.path
                ));
            }
        });
    }
    found
}

/// Modules of `tcp` and `stack`, and the parts of a connection, use only modules of lower levels.
pub(crate) fn modules(sources: &[Source]) -> Findings {
    let mut found = Findings::default();
    for source in sources {
        let (Some(krate), Some(module)) = (source.krate(), source.module()) else {
            continue;
        };
        for rules in MODULES.iter().filter(|m| m.krate == krate) {
            check_levels(source, &module, rules, &mut found);
        }
    }
    found
}

fn check_levels(source: &Source, module: &[String], rules: &Levels, found: &mut Findings) {
    if source.is_test_file() {
        return;
    }
    let inside = module.iter().zip(rules.within).all(|(a, b)| a == b);
    let Some(own) = module.get(rules.within.len()).filter(|_| inside) else {
        return;
    };
    let level = |name: &str| rules.levels.iter().position(|l| l.contains(&name));
    let Some(own_level) = level(own) else {
        found.error(format!(
            "{}: module `{own}` has no level in xtask/src/arch.rs",
            source.path
        ));
        return;
    };
    for (used, line) in uses(&source.tokens, module, rules.within) {
        if source.is_test(line) || used == *own {
            continue;
        }
        // A name that is no module is an item that lib.rs or mod.rs defines or re-exports.
        let Some(used_level) = level(&used) else {
            continue;
        };
        if used_level > own_level || (used_level == own_level && own_level > 0) {
            found.error(format!(
                "{}:{line}: `{own}` may not use `{used}`",
                source.path
            ));
        }
    }
}

/// First segments of all paths that begin at the crate's root, or `within` one of its modules, with their lines.
fn uses(tokens: &TokenStream, module: &[String], within: &[&str]) -> Vec<(String, usize)> {
    let mut out = Vec::new();
    collect_uses(tokens, module, within, &mut out);
    out
}

fn collect_uses(
    tokens: &TokenStream,
    module: &[String],
    within: &[&str],
    out: &mut Vec<(String, usize)>,
) {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let mut i = 0;
    while i < tokens.len() {
        match &tokens[i] {
            TokenTree::Ident(word) if *word == "mod" => {
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                    (tokens.get(i + 1), tokens.get(i + 2))
                {
                    let mut inner = module.to_vec();
                    inner.push(name.to_string());
                    collect_uses(&body.stream(), &inner, within, out);
                    i += 3;
                    continue;
                }
            }
            TokenTree::Ident(word) if *word == "crate" => {
                if let Some(rest) = behind(&tokens[i + 1..], within) {
                    targets(rest, out);
                }
            }
            TokenTree::Ident(word) if *word == "super" => {
                let mut up = 1;
                let mut at = i + 1;
                while colons(&tokens, at) && is_word(tokens.get(at + 2), "super") {
                    up += 1;
                    at += 3;
                }
                if up + within.len() == module.len() {
                    targets(&tokens[at..], out);
                }
                i = at;
                continue;
            }
            TokenTree::Group(group) => collect_uses(&group.stream(), module, within, out),
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
        i += 1;
    }
}

/// What follows these segments, if the path begins with them.
fn behind<'a>(tokens: &'a [TokenTree], within: &[&str]) -> Option<&'a [TokenTree]> {
    within.iter().try_fold(tokens, |rest, segment| {
        let here = colons(rest, 0) && is_word(rest.get(2), segment);
        here.then(|| &rest[3..])
    })
}

fn colons(tokens: &[TokenTree], at: usize) -> bool {
    let colon =
        |t: Option<&TokenTree>| matches!(t, Some(TokenTree::Punct(p)) if p.as_char() == ':');
    colon(tokens.get(at)) && colon(tokens.get(at + 1))
}

fn is_word(token: Option<&TokenTree>, word: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if *ident == word)
}

/// After the crate's root: `::name` or `::{a, b::c}`.
fn targets(rest: &[TokenTree], out: &mut Vec<(String, usize)>) {
    if !colons(rest, 0) {
        return;
    }
    match rest.get(2) {
        Some(TokenTree::Ident(name)) => out.push((name.to_string(), name.span().start().line)),
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let mut first = true;
            for token in group.stream() {
                match token {
                    TokenTree::Ident(name) if first => {
                        out.push((name.to_string(), name.span().start().line));
                        first = false;
                    }
                    TokenTree::Punct(p) if p.as_char() == ',' => first = true,
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::from_text;

    fn errors(path: &str, text: &str) -> usize {
        modules(&[from_text(path, text)]).errors.len()
    }

    #[test]
    fn a_lower_module_may_not_look_up() {
        assert_eq!(
            errors("crates/tcp/src/cc/reno.rs", "use crate::time::Instant;"),
            0
        );
        assert_eq!(
            errors(
                "crates/tcp/src/cc/reno.rs",
                "use crate::{time, machine::Machine};"
            ),
            1
        );
        assert_eq!(
            errors("crates/tcp/src/cc/reno.rs", "use super::super::send::X;"),
            1
        );
        assert_eq!(
            errors("crates/tcp/src/cc/reno.rs", "use super::hystart::X;"),
            0
        );
        assert_eq!(
            errors("crates/tcp/src/send.rs", "fn f() { vec![super::recv::A] }"),
            1
        );
        assert_eq!(
            errors("crates/tcp/src/machine/state.rs", "use crate::recv::A;"),
            0
        );
    }

    #[test]
    fn the_parts_of_a_connection_have_levels_of_their_own() {
        let conn = |file: &str, text: &str| errors(&format!("crates/stack/src/conn/{file}"), text);
        assert_eq!(
            conn("send/queue.rs", "use crate::conn::dss::offset::Offset;"),
            0
        );
        assert_eq!(
            conn("send/queue.rs", "use crate::conn::{fallback::X, Conn};"),
            1
        );
        assert_eq!(conn("send/queue.rs", "use super::super::fallback::X;"), 1);
        assert_eq!(conn("send/queue.rs", "use crate::conn::recv::X;"), 1);
        assert_eq!(conn("send/queue.rs", "use super::ring::Ring;"), 0);
        assert_eq!(conn("mod.rs", "use pipeline::X;"), 0);
        assert_eq!(conn("maze.rs", ""), 1);
    }

    #[test]
    fn tests_may_look_anywhere_and_siblings_of_the_ground_floor_see_each_other() {
        assert_eq!(
            errors(
                "crates/tcp/src/cc.rs",
                "#[cfg(test)]\nmod t { use crate::machine::M; }"
            ),
            0
        );
        assert_eq!(
            errors("crates/tcp/src/timer.rs", "use crate::time::Instant;"),
            0
        );
    }

    #[test]
    fn forbidden_words_are_found_in_code_only() {
        let lib = "#![no_std]\n#![forbid(unsafe_code)]\n";
        let of = |text: &str| {
            let mut all: Vec<Source> = PURE
                .iter()
                .map(|k| from_text(&format!("crates/{k}/src/lib.rs"), lib))
                .collect();
            all.push(from_text("crates/tcp/src/time.rs", text));
            core_rules(&all).errors.len()
        };
        assert_eq!(of("use alloc::rc::Rc;"), 1);
        assert_eq!(of("// Rc\n#[cfg(test)]\nmod tests { use std::rc::Rc; }"), 0);
    }
}
