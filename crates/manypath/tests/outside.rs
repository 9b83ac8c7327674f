//! An application outside of this workspace has no other crate of ours in its `use` nor in its manifest: its scheduler, congestion
//! control and path controller plug in by what `manypath` exports.

use std::path::Path;
use std::process::Command;

/// What such an application is built of.
fn manifest() -> String {
    format!(
        "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         manypath = {{ path = {:?} }}\n\
         tokio = {{ version = \"1\", features = [\"io-util\", \"macros\", \"rt-multi-thread\"] }}\n",
        env!("CARGO_MANIFEST_DIR")
    )
}

#[test]
fn policies_of_an_application_plug_in_from_outside_of_the_workspace() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let app = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside");
    let source = include_str!("../examples/own_policies.rs");
    std::fs::create_dir_all(app.join("src")).expect("a folder");
    std::fs::write(app.join("Cargo.toml"), manifest()).expect("a manifest");
    std::fs::write(app.join("src/main.rs"), source).expect("a program");
    // The same versions as here, which need no network.
    std::fs::copy(here.join("../../Cargo.lock"), app.join("Cargo.lock")).expect("a lock file");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = Command::new(cargo)
        .args(["run", "--quiet", "--offline", "--target-dir"])
        .arg(app.join("target"))
        .current_dir(&app)
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .expect("cargo runs");
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}");
    let told = String::from_utf8_lossy(&done.stdout);
    for own in ["youngest", "twenty"] {
        assert!(told.contains(own), "{own} is not at work: {told}");
    }
}
