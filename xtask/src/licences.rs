//! Licences of everything that is linked in: each must offer one from the list.

use crate::check::Findings;
use crate::workspace::Metadata;

/// Licences that ask for nothing but notices, so that MIT OR Apache-2.0 binaries may contain them.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// Checks every package of the dependency graph.
pub(crate) fn check(metadata: &Metadata) -> Findings {
    let mut found = Findings::default();
    for package in &metadata.packages {
        let name = format!("{} {}", package.name, package.version);
        match &package.license {
            None => found.error(format!("{name} names no licence")),
            Some(text) if !permits(text) => found.error(format!("{name}: {text}")),
            Some(_) => {}
        }
    }
    found.note = Some(format!("{} packages", metadata.packages.len()));
    found
}

/// Whether an SPDX expression can be satisfied with allowed licences alone.
fn permits(expression: &str) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    any(&words, &mut at) == Some(true) && at == words.len()
}

// The three levels of the grammar; `None` where the expression is malformed.

fn any(words: &[&str], at: &mut usize) -> Option<bool> {
    let mut value = all(words, at)?;
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        value |= all(words, at)?;
    }
    Some(value)
}

fn all(words: &[&str], at: &mut usize) -> Option<bool> {
    let mut value = one(words, at)?;
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        value &= one(words, at)?;
    }
    Some(value)
}

fn one(words: &[&str], at: &mut usize) -> Option<bool> {
    let word = *words.get(*at)?;
    *at += 1;
    if word == "(" {
        let value = any(words, at)?;
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return closed.then_some(value);
    }
    // An exception only adds permissions to the licence before it.
    if words.get(*at) == Some(&"WITH") {
        *at += 2;
    }
    Some(ALLOWED.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::permits;

    #[test]
    fn expressions() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR GPL-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(permits(good), "{good}");
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "",
            "MIT OR",
            "(MIT",
            "MIT MIT",
        ] {
            assert!(!permits(bad), "{bad}");
        }
    }
}
