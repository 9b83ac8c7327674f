//! The parts of a connection, as a machine can check them: they are small, the connection itself only lets them meet, and files do not
//! import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::check::Findings;
use crate::source::Source;

/// Where the rules hold.
const FOLDER: &str = "crates/stack/src/conn/";
const MOST_FIELDS: usize = 15;
const MOST_BOOLS: usize = 3;
/// Methods of the connection itself.
const MOST_METHODS: usize = 80;

/// Sizes of the structs in `conn`, methods of `Conn`, and circles of imports.
pub(crate) fn check(sources: &[Source]) -> Findings {
    let mut found = Findings::default();
    let inside: Vec<&Source> = sources
        .iter()
        .filter(|source| source.path.starts_with(FOLDER))
        .collect();
    let mut methods = 0;
    for source in &inside {
        let tokens: Vec<TokenTree> = source.tokens.clone().into_iter().collect();
        for at in 0..tokens.len() {
            if source.is_test(line(&tokens[at])) {
                continue;
            }
            if let Some((name, body)) = named(&tokens[at..], "struct") {
                check_struct(source, &name, &body, &mut found);
            }
            if let Some((name, body)) = named(&tokens[at..], "impl")
                && name == "Conn"
            {
                methods += count_words(&body, "fn");
            }
        }
    }
    if methods > MOST_METHODS {
        found.error(format!(
            "{FOLDER}: {methods} methods of Conn, {MOST_METHODS} allowed: give them to the part that they concern"
        ));
    }
    check_circles(&inside, &mut found);
    found
}

fn line(token: &TokenTree) -> usize {
    token.span().start().line
}

/// The name and the body in braces of an item that begins here with this keyword.
fn named(tokens: &[TokenTree], keyword: &str) -> Option<(String, TokenStream)> {
    let [
        TokenTree::Ident(word),
        TokenTree::Ident(name),
        TokenTree::Group(body),
        ..,
    ] = tokens
    else {
        return None;
    };
    let braced = body.delimiter() == Delimiter::Brace;
    (*word == keyword && braced).then(|| (name.to_string(), body.stream()))
}

fn check_struct(source: &Source, name: &str, body: &TokenStream, found: &mut Findings) {
    let (fields, bools) = fields(body);
    if fields > MOST_FIELDS || bools > MOST_BOOLS {
        found.error(format!(
            "{}: struct {name} has {fields} fields and {bools} bools; {MOST_FIELDS} and {MOST_BOOLS} are allowed",
            source.path
        ));
    }
}

/// Fields of a struct, and how many of them are `bool`.
fn fields(body: &TokenStream) -> (usize, usize) {
    let tokens: Vec<TokenTree> = body.clone().into_iter().collect();
    let is = |at: usize, sign: char| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == sign);
    let (mut fields, mut bools, mut depth) = (0, 0, 0_i32);
    for at in 0..tokens.len() {
        if is(at, '<') {
            depth += 1;
        } else if is(at, '>') && !(at > 0 && is(at - 1, '-')) {
            depth -= 1;
        }
        let single = is(at, ':') && !is(at + 1, ':') && !(at > 0 && is(at - 1, ':'));
        if single && depth == 0 {
            fields += 1;
            let bool =
                matches!(tokens.get(at + 1), Some(TokenTree::Ident(word)) if *word == "bool");
            bools += usize::from(bool);
        }
    }
    (fields, bools)
}

/// How often a word stands directly in a body.
fn count_words(body: &TokenStream, word: &str) -> usize {
    let is = |token: &TokenTree| matches!(token, TokenTree::Ident(found) if *found == word);
    body.clone().into_iter().filter(is).count()
}

/// The module of a file inside the folder: `send::queue`. The folder's own file is the root, which sees all and is seen by all.
fn module(source: &Source) -> Option<String> {
    let inner = source.path.strip_prefix(FOLDER)?.strip_suffix(".rs")?;
    let parts: Vec<&str> = inner.split('/').filter(|part| *part != "mod").collect();
    (!parts.is_empty()).then(|| parts.join("::"))
}

fn check_circles(sources: &[&Source], found: &mut Findings) {
    let modules: BTreeSet<String> = sources.iter().filter_map(|s| module(s)).collect();
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        let Some(own) = module(source) else { continue };
        let used = paths(source).into_iter().filter_map(|path| {
            (1..=path.len())
                .rev()
                .map(|len| path[..len].join("::"))
                .find(|name| modules.contains(name))
        });
        let used = used.filter(|name| *name != own).collect();
        imports.insert(own, used);
    }
    for name in imports.keys() {
        if reached(&imports, name).contains(name) {
            found.error(format!(
                "{FOLDER}: `{name}` imports what imports it, perhaps by way of others"
            ));
        }
    }
}

fn reached(imports: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&String> = imports.get(from).into_iter().flatten().collect();
    while let Some(name) = next.pop() {
        if seen.insert(name.clone()) {
            next.extend(imports.get(name).into_iter().flatten());
        }
    }
    seen
}

/// Paths below `crate::conn` that stand in `use` items at the beginning of lines, each as its segments.
fn paths(source: &Source) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for (at, text) in source.text.lines().enumerate() {
        let Some(path) = text.strip_prefix("use crate::conn::") else {
            continue;
        };
        if !source.is_test(at + 1) {
            let ends = path.find(['{', ';']).unwrap_or(path.len());
            let path = path[..ends].trim_end_matches(':');
            all.push(path.split("::").map(str::to_owned).collect());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::from_text;

    fn errors(files: &[(&str, &str)]) -> usize {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| from_text(&format!("{FOLDER}{path}"), text))
            .collect();
        check(&sources).errors.len()
    }

    #[test]
    fn a_part_with_four_flags_or_sixteen_fields_is_refused() {
        let flags = |n: usize| -> String {
            let fields: String = (0..n).map(|i| format!("pub(crate) f{i}: bool,")).collect();
            format!("struct Part {{ {fields} }}")
        };
        assert_eq!(errors(&[("life.rs", &flags(3))]), 0);
        assert_eq!(errors(&[("life.rs", &flags(4))]), 1);
        let maps = |n: usize| -> String {
            let fields: String = (0..n)
                .map(|i| format!("f{i}: Map<a::B, fn(c: u8) -> u8>,"))
                .collect();
            format!("struct Part {{ {fields} }}")
        };
        assert_eq!(errors(&[("life.rs", &maps(15))]), 0);
        assert_eq!(errors(&[("life.rs", &maps(16))]), 1);
    }

    #[test]
    fn files_that_import_each_other_are_found() {
        let a = ("send/queue.rs", "use crate::conn::send::ring::{A, B};");
        let b = ("send/ring.rs", "use crate::conn::recv::X;");
        assert_eq!(errors(&[a, b, ("recv/mod.rs", "")]), 0);
        let back = ("recv/mod.rs", "use crate::conn::send::queue::Q;");
        assert_eq!(errors(&[a, b, back]), 3);
    }
}
