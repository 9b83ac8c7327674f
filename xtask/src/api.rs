//! The public interface of the library `manypath`, as text, held against the file that froze it.
//!
//! Read from tokens, so that it needs no nightly compiler and no build. It covers what the crate itself declares: functions with their
//! signatures, types with public fields and variants, traits with their items, implementations, re-exports by name, and of other crates the
//! traits that applications implement. It does not follow re-exported types into their crates.

use std::fs;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

use crate::check::Findings;
use crate::source::Source;
use crate::workspace::root;

/// Where the interface is frozen.
const FILE: &str = "crates/manypath/api.txt";

/// Traits that applications implement, and what names the implementations.
const PLUGS: [&str; 3] = [
    "crates/stack/src/api/controller.rs",
    "crates/stack/src/sched/custom.rs",
    "crates/tcp/src/cc/custom.rs",
];

/// The interface is the frozen one.
pub(crate) fn check(sources: &[Source]) -> Findings {
    let mut found = Findings::default();
    let now = listing(sources);
    let frozen = fs::read_to_string(root().join(FILE)).unwrap_or_default();
    let missing = |from: &str, line: &str| !from.lines().any(|other| other == line);
    for gone in frozen.lines().filter(|line| missing(&now, line)) {
        found.error(format!("{FILE}: gone or changed: {gone}"));
    }
    for new in now.lines().filter(|line| missing(&frozen, line)) {
        found.error(format!("{FILE}: new: {new}"));
    }
    if !found.errors.is_empty() {
        let text = "the public interface changed; if that is meant, `cargo xtask api --write` and a line in CHANGELOG.md";
        found.error(text.to_owned());
    }
    found.note = Some(format!("{} items", now.lines().count()));
    found
}

/// Prints the interface, or writes it down.
pub(crate) fn run(args: &[String], sources: &[Source]) -> Result<bool, String> {
    let text = listing(sources);
    match args {
        [] => print!("{text}"),
        [write] if write == "--write" => {
            fs::write(root().join(FILE), text).map_err(|e| format!("{FILE}: {e}"))?;
        }
        _ => return Err("api knows only --write".to_owned()),
    }
    Ok(true)
}

fn listing(sources: &[Source]) -> String {
    let ours = |s: &&Source| {
        s.path.starts_with("crates/manypath/src/") || PLUGS.contains(&s.path.as_str())
    };
    let mut all: Vec<&Source> = sources.iter().filter(ours).collect();
    all.sort_by(|a, b| a.path.cmp(&b.path));
    let mut lines = Vec::new();
    for source in all {
        items(&tokens(&source.tokens), "", source, &mut lines);
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The tokens without attributes and documentation.
fn tokens(stream: &TokenStream) -> Vec<TokenTree> {
    let mut out: Vec<TokenTree> = Vec::new();
    for token in stream.clone() {
        let is_attribute = matches!(&token, TokenTree::Group(g) if g.delimiter() == Delimiter::Bracket)
            && matches!(out.last(), Some(TokenTree::Punct(p)) if matches!(p.as_char(), '#' | '!'));
        if !is_attribute {
            out.push(token);
            continue;
        }
        while matches!(out.last(), Some(TokenTree::Punct(p)) if matches!(p.as_char(), '#' | '!')) {
            out.pop();
        }
    }
    out
}

fn word(token: Option<&TokenTree>) -> String {
    match token {
        Some(TokenTree::Ident(name)) => name.to_string(),
        _ => String::new(),
    }
}

/// Adds the public items of a file, a module, an implementation or a macro; `within` names what they are in.
fn items(tokens: &[TokenTree], within: &str, source: &Source, lines: &mut Vec<String>) {
    let mut at = 0;
    while at < tokens.len() {
        let line = tokens[at].span().start().line;
        let end = end_of_item(tokens, at);
        let item = &tokens[at..end];
        if !source.is_test(line) {
            add(item, within, source, lines);
        }
        at = end;
    }
}

/// One past the `;`, or the body, that an item ends with.
fn end_of_item(tokens: &[TokenTree], from: usize) -> usize {
    let is_value = |at: usize| matches!(word(tokens.get(at)).as_str(), "const" | "static" | "use");
    let value = is_value(from) || is_value(from + 1) && word(tokens.get(from + 2)) != "fn";
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match token {
            TokenTree::Punct(p) if p.as_char() == ';' => return at + 1,
            TokenTree::Group(g) if g.delimiter() == Delimiter::Brace && !value => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

fn add(item: &[TokenTree], within: &str, source: &Source, lines: &mut Vec<String>) {
    let body = match item.last() {
        Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Brace => Some(g.stream()),
        _ => None,
    };
    let head = &item[..item.len() - usize::from(!item.is_empty())];
    let restricted = matches!(item.get(1), Some(TokenTree::Group(_)));
    let first = word(item.first());
    match (first.as_str(), word(item.get(1)).as_str()) {
        ("impl", _) => {
            let name = text(head);
            lines.push(name.clone());
            items(&tokens(&body.unwrap_or_default()), &name, source, lines);
        }
        ("macro_rules", _) => {
            let name = format!("macro {}", word(item.get(2)));
            for rule in body.unwrap_or_default() {
                if let TokenTree::Group(rule) = rule {
                    items(&tokens(&rule.stream()), &name, source, lines);
                }
            }
        }
        ("pub", _) if restricted => {}
        ("pub", "trait") => {
            lines.push(in_place(within, head));
            let name = text(&item[1..3]);
            each_item(&tokens(&body.unwrap_or_default()), &name, lines);
        }
        ("pub", "enum") => {
            lines.push(in_place(within, head));
            let name = text(&item[1..3]);
            parts(&tokens(&body.unwrap_or_default()), &name, false, lines);
        }
        ("pub", "struct") if body.is_some() => {
            lines.push(in_place(within, head));
            let name = text(&item[1..3]);
            parts(&tokens(&body.unwrap_or_default()), &name, true, lines);
        }
        ("pub", _) => lines.push(in_place(within, head)),
        // What a macro brings stands where the macro is.
        (_, "") if within.starts_with("impl") && body.is_none() && !first.is_empty() => {
            lines.push(in_place(within, head));
        }
        _ => {}
    }
}

fn in_place(within: &str, tokens: &[TokenTree]) -> String {
    match within {
        "" => text(tokens),
        _ => format!("{within}: {}", text(tokens)),
    }
}

/// The items of a trait, all of which are public.
fn each_item(tokens: &[TokenTree], name: &str, lines: &mut Vec<String>) {
    let mut at = 0;
    while at < tokens.len() {
        let end = end_of_item(tokens, at);
        let provided = matches!(tokens[end - 1], TokenTree::Group(_));
        let how = if provided { "provided " } else { "" };
        lines.push(format!("{name}: {how}{}", text(&tokens[at..end - 1])));
        at = end;
    }
}

/// Variants of an enumeration, or public fields of a structure.
fn parts(tokens: &[TokenTree], name: &str, fields: bool, lines: &mut Vec<String>) {
    let mut depth = 0_i32;
    let is_comma = |token: &TokenTree| {
        if let TokenTree::Punct(p) = token {
            match p.as_char() {
                '<' => depth += 1,
                '>' => depth -= 1,
                ',' => return depth == 0,
                _ => {}
            }
        }
        false
    };
    for part in tokens.split(is_comma) {
        let public =
            word(part.first()) == "pub" && !matches!(part.get(1), Some(TokenTree::Group(_)));
        if !part.is_empty() && (!fields || public) {
            lines.push(format!("{name}: {}", text(part)));
        }
    }
}

/// Tokens as one writes them, without attributes.
fn text(all: &[TokenTree]) -> String {
    let mut out = String::new();
    let mut joint = true;
    for token in all {
        let (piece, glued) = match token {
            TokenTree::Group(g) => {
                let inner = text(&tokens(&g.stream()));
                let piece = match g.delimiter() {
                    Delimiter::Parenthesis => format!("({inner})"),
                    Delimiter::Bracket => format!("[{inner}]"),
                    Delimiter::Brace => format!(" {{ {inner} }}"),
                    Delimiter::None => inner,
                };
                (piece, true)
            }
            TokenTree::Punct(p) => (
                p.as_char().to_string(),
                !matches!(p.as_char(), '=' | '-' | '+'),
            ),
            other => (other.to_string(), false),
        };
        if !joint && !glued {
            out.push(' ');
        }
        out.push_str(&piece);
        joint = match token {
            TokenTree::Punct(p) => {
                p.spacing() == Spacing::Joint
                    || matches!(p.as_char(), '&' | ':' | '<' | '\'' | '$' | '!')
                        && !out.ends_with(": ")
            }
            _ => false,
        };
        if out.ends_with(':') && !out.ends_with("::") && !joint_colon(token) {
            out.push(' ');
        }
    }
    out.trim().to_owned()
}

/// The first colon of two.
fn joint_colon(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(p) if p.as_char() == ':' && p.spacing() == Spacing::Joint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::from_text;

    #[test]
    fn what_is_public_is_listed_and_nothing_else() {
        let source = from_text(
            "crates/manypath/src/a.rs",
            "pub use other::Name;
             /// Said.
             #[derive(Debug)]
             pub struct Open { /// Here.
                 pub at: Vec<(u8, u8)>, hidden: u8 }
             pub enum Kind { One, Two { n: u8 } }
             struct Hidden;
             impl Open {
                 /// Does.
                 pub fn run(&self, of: &[u8]) -> Option<u8> { 1; None }
                 pub(crate) fn inner() {}
                 setters!();
             }
             pub trait Plug { fn must(&self); fn may(&self) -> bool { true } }
             pub const MOST: usize = { 3 };
             macro_rules! setters { () => { pub fn set(self) -> Self { self } }; }
             #[cfg(test)]
             mod tests { pub fn test() {} }",
        );
        let expected = [
            "pub use other::Name",
            "pub struct Open",
            "struct Open: pub at: Vec<(u8, u8)>",
            "pub enum Kind",
            "enum Kind: One",
            "enum Kind: Two { n: u8 }",
            "impl Open",
            "impl Open: pub fn run(&self, of: &[u8]) -> Option<u8>",
            "impl Open: setters!()",
            "pub trait Plug",
            "trait Plug: fn must(&self)",
            "trait Plug: provided fn may(&self) -> bool",
            "pub const MOST: usize = { 3 }",
            "macro setters: pub fn set(self) -> Self",
        ];
        let listed = listing(&[source]);
        assert_eq!(listed.lines().collect::<Vec<_>>(), expected);
    }
}
