//! What Cargo knows about the workspace: packages, their dependencies and licences.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// The part of `cargo metadata` that the checks read.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
}

/// One package of the dependency graph.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) id: String,
    pub(crate) license: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// One entry of a package's dependency tables, of whatever kind.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `dev` or `build`; nothing for what the package itself is made of.
    pub(crate) kind: Option<String>,
}

/// The workspace's root folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the manifest of xtask lies one folder below the workspace root")
        .to_path_buf()
}

/// Asks Cargo for the packages; with `deps`, for those of other people too.
pub(crate) fn metadata(deps: bool) -> Result<Metadata, String> {
    let mut command = Command::new("cargo");
    command
        .current_dir(root())
        .args(["metadata", "--format-version", "1"]);
    if !deps {
        command.arg("--no-deps");
    }
    let output = command
        .output()
        .map_err(|e| format!("cannot run cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))
}
