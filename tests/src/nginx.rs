//! A stock web server in a namespace.

use std::path::Path;
use std::process::Stdio;

use manypath_lab::netns::{NetNs, Process};

use crate::net::tool;
use crate::until::wait_for;

/// Starts nginx with these lines in its `http` block, on port 80 and with its files in a folder; `under`: what it is started by, as `mptcpize run`.
/// `None`, with the reason printed, where it is not installed.
///
/// # Panics
/// When it does not listen.
#[must_use]
pub fn nginx(ns: &NetNs, folder: &Path, http: &str, under: &[&str]) -> Option<Process> {
    let here = folder.display();
    let config = format!(
        "daemon off; master_process off; pid {here}/nginx.pid; error_log {here}/error; events {{}}\n\
         http {{ client_body_temp_path {here}/a; proxy_temp_path {here}/b; fastcgi_temp_path {here}/c; uwsgi_temp_path {here}/d;\n\
         scgi_temp_path {here}/e; {http} }}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, config).expect("a folder of ours");
    let words = [under, &["nginx"]].concat();
    let mut command = tool(words[0]);
    command.args(&words[1..]).args(["-e", "/dev/null", "-c"]);
    command.arg(file).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    match ns.spawn(command) {
        Ok(process) => {
            wait_for("nginx to listen", || ns.listens(80).then_some(()));
            Some(process)
        }
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}
