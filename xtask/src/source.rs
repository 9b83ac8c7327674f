//! Rust files as the checks see them: tokens with their lines, and which of those lines are tests.
//!
//! Tokens rather than text, so that words in comments and strings do not count; tokens rather than a syntax
//! tree, so that what stands inside macro calls does.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::workspace::root;

/// One source file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path relative to the workspace root, with forward slashes.
    pub(crate) path: String,
    /// The file's text.
    pub(crate) text: String,
    /// Its tokens; empty for a file that is not Rust.
    pub(crate) tokens: TokenStream,
    /// Lines (from 1) that are compiled only for tests.
    test_lines: Vec<RangeInclusive<usize>>,
    /// The whole file is a test.
    test_file: bool,
}

/// A function's name and the lines from `fn` to its closing brace.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) lines: RangeInclusive<usize>,
}

impl Source {
    /// The crate's folder under `crates/`, if the file belongs to one.
    pub(crate) fn krate(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// The module path inside the crate, for a file below `crates/NAME/src`: `["machine", "state"]`.
    pub(crate) fn module(&self) -> Option<Vec<String>> {
        let krate = self.krate()?;
        let inner = self.path.strip_prefix(&format!("crates/{krate}/src/"))?;
        let inner = inner.strip_suffix(".rs")?;
        let mut parts: Vec<String> = inner.split('/').map(str::to_owned).collect();
        if matches!(
            parts.last().map(String::as_str),
            Some("mod" | "lib" | "main")
        ) {
            parts.pop();
        }
        Some(parts)
    }

    /// Whether the line is compiled only for tests.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.test_file || self.test_lines.iter().any(|r| r.contains(&line))
    }

    /// Whether all of it is compiled only for tests.
    pub(crate) fn is_test_file(&self) -> bool {
        self.test_file
    }

    /// Lines that are not test code.
    pub(crate) fn code_lines(&self) -> usize {
        (1..=self.text.lines().count())
            .filter(|&n| !self.is_test(n))
            .count()
    }

    /// Calls `visit` with every identifier outside test code, and its line.
    pub(crate) fn for_each_code_ident(&self, visit: &mut dyn FnMut(&str, usize)) {
        for_each_ident(&self.tokens, &mut |name, line| {
            if !self.is_test(line) {
                visit(name, line);
            }
        });
    }

    /// Calls `visit` with every identifier, and its line.
    pub(crate) fn for_each_ident(&self, visit: &mut dyn FnMut(&str, usize)) {
        for_each_ident(&self.tokens, visit);
    }

    /// Every function outside test code.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut out = Vec::new();
        collect_functions(&self.tokens, &mut out);
        out.retain(|f| !self.is_test(*f.lines.start()));
        out
    }
}

fn for_each_ident(tokens: &TokenStream, visit: &mut dyn FnMut(&str, usize)) {
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(ident) => visit(&ident.to_string(), ident.span().start().line),
            TokenTree::Group(group) => for_each_ident(&group.stream(), visit),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn collect_functions(tokens: &TokenStream, out: &mut Vec<Function>) {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let mut open: Option<(String, usize)> = None;
    for (i, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if *word == "fn" => {
                if let Some(TokenTree::Ident(name)) = tokens.get(i + 1) {
                    open = Some((name.to_string(), word.span().start().line));
                }
            }
            TokenTree::Punct(p) if p.as_char() == ';' => open = None,
            TokenTree::Group(group) => {
                if group.delimiter() == Delimiter::Brace {
                    if let Some((name, start)) = open.take() {
                        out.push(Function {
                            name,
                            lines: start..=group.span_close().end().line,
                        });
                    }
                }
                collect_functions(&group.stream(), out);
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// What `#[cfg(test)]` and `#[test]` cover in one file.
#[derive(Debug, Default)]
struct TestParts {
    lines: Vec<RangeInclusive<usize>>,
    /// Names of test modules that live in files of their own.
    modules: Vec<String>,
    /// `#![cfg(test)]` at the top.
    whole: bool,
}

fn test_parts(tokens: &TokenStream, parts: &mut TestParts) {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let mut i = 0;
    while i < tokens.len() {
        let start = tokens[i].span().start().line;
        if let Some((inner, is_test, next)) = attribute(&tokens, i) {
            if is_test && inner {
                parts.whole = true;
            } else if is_test {
                let (end_index, end_line, module) = item_end(&tokens, next);
                parts.lines.push(start..=end_line);
                parts.modules.extend(module);
                i = end_index;
                continue;
            }
            i = next;
            continue;
        }
        if let TokenTree::Group(group) = &tokens[i] {
            test_parts(&group.stream(), parts);
        }
        i += 1;
    }
}

/// If an attribute begins at `i`: whether it is an inner one, whether it says "test only", and what follows it.
fn attribute(tokens: &[TokenTree], i: usize) -> Option<(bool, bool, usize)> {
    let TokenTree::Punct(hash) = tokens.get(i)? else {
        return None;
    };
    if hash.as_char() != '#' {
        return None;
    }
    let inner = matches!(tokens.get(i + 1), Some(TokenTree::Punct(p)) if p.as_char() == '!');
    let at = if inner { i + 2 } else { i + 1 };
    let TokenTree::Group(group) = tokens.get(at)? else {
        return None;
    };
    let text: String = group
        .stream()
        .to_string()
        .chars()
        .filter(|c| !c.is_whitespace())
        .collect();
    let is_test = text == "test"
        || text == "tokio::test"
        || text.starts_with("tokio::test(")
        || text == "cfg(test)"
        || (text.starts_with("cfg(all(test,") || text.starts_with("cfg(any(test,"));
    Some((inner, is_test, at + 1))
}

/// The end of the item that begins at `i`: index after it, last line, and the name if it is `mod NAME;`.
fn item_end(tokens: &[TokenTree], mut i: usize) -> (usize, usize, Option<String>) {
    let mut module = None;
    let mut line = 0;
    while let Some(token) = tokens.get(i) {
        line = token.span().end().line;
        match token {
            TokenTree::Ident(word) if *word == "mod" => {
                if let Some(TokenTree::Ident(name)) = tokens.get(i + 1) {
                    module = Some(name.to_string());
                }
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let uses = tokens
                    .get(i + 1)
                    .is_some_and(|t| matches!(t, TokenTree::Punct(p) if p.as_char() == ';'));
                return (
                    i + if uses { 2 } else { 1 },
                    group.span_close().end().line,
                    None,
                );
            }
            TokenTree::Punct(p) if p.as_char() == ';' => return (i + 1, line, module),
            TokenTree::Ident(_)
            | TokenTree::Punct(_)
            | TokenTree::Literal(_)
            | TokenTree::Group(_) => {}
        }
        i += 1;
    }
    (i, line, None)
}

/// Reads every Rust file of the workspace, and scripts below `tests/` (without tokens).
pub(crate) fn load() -> Result<Vec<Source>, String> {
    let root = root();
    let mut files = Vec::new();
    for top in ["crates", "tests", "xtask", "fuzz"] {
        walk(&root.join(top), &mut files)?;
    }
    files.sort();
    let mut sources = Vec::new();
    let mut test_files: BTreeSet<String> = BTreeSet::new();
    for file in files {
        let path = relative(&root, &file);
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{path}: {e}"))?;
        sources.push(parse(path, text, &mut test_files)?);
    }
    for source in &mut sources {
        let path = &source.path;
        let declared = test_files
            .iter()
            .any(|stem| path == &format!("{stem}.rs") || path.starts_with(&format!("{stem}/")));
        source.test_file |= declared || path.starts_with("tests/") || path.contains("/tests/");
    }
    Ok(sources)
}

fn parse(path: String, text: String, test_files: &mut BTreeSet<String>) -> Result<Source, String> {
    let mut tokens = TokenStream::new();
    let mut parts = TestParts::default();
    if path.ends_with(".rs") {
        tokens = TokenStream::from_str(&text)
            .map_err(|e| format!("{path}:{}: {e}", e.span().start().line))?;
        test_parts(&tokens, &mut parts);
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let stem = name.trim_end_matches(".rs");
        for module in &parts.modules {
            let base = match stem {
                "lib" | "main" | "mod" => folder.to_owned(),
                _ => format!("{folder}/{stem}"),
            };
            test_files.insert(format!("{base}/{module}"));
        }
    }
    Ok(Source {
        path,
        text,
        tokens,
        test_lines: parts.lines,
        test_file: parts.whole,
    })
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries {
        let path = entry
            .map_err(|e| format!("{}: {e}", folder.display()))?
            .path();
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                walk(&path, files)?;
            }
        } else if matches!(
            path.extension().and_then(|e| e.to_str()),
            Some("rs" | "sh" | "py" | "script")
        ) {
            files.push(path);
        }
    }
    Ok(())
}

fn relative(root: &Path, file: &Path) -> String {
    file.strip_prefix(root)
        .unwrap_or(file)
        .to_string_lossy()
        .replace('\\', "/")
}

#[cfg(test)]
pub(crate) fn from_text(path: &str, text: &str) -> Source {
    parse(path.to_owned(), text.to_owned(), &mut BTreeSet::new()).expect("test text is Rust")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_code_is_told_from_code() {
        let text = "fn a() {\n  x();\n}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n";
        let source = from_text("crates/tcp/src/a.rs", text);
        assert_eq!(source.code_lines(), 4);
        assert!(source.is_test(6) && !source.is_test(8));
        let names: Vec<String> = source.functions().into_iter().map(|f| f.name).collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn a_test_module_in_its_own_file_is_noted() {
        let mut files = BTreeSet::new();
        let text = "#[cfg(test)]\nmod cases;\nmod other;\n";
        parse("crates/tcp/src/recv.rs".into(), text.into(), &mut files).expect("Rust");
        assert_eq!(
            files.into_iter().collect::<Vec<_>>(),
            ["crates/tcp/src/recv/cases"]
        );
    }

    #[test]
    fn words_in_comments_and_strings_are_no_identifiers() {
        let source = from_text(
            "crates/tcp/src/a.rs",
            "// HashMap\nfn f() { g(\"Arc\"); }\n",
        );
        let mut seen = Vec::new();
        source.for_each_code_ident(&mut |name, _| seen.push(name.to_owned()));
        assert_eq!(seen, ["fn", "f", "g"]);
    }
}
