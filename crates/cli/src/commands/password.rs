//! `manypath password`.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::os::fd::AsFd;

use manypath_proxy::users::{check_name, line_for};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::commands::print_text;
use crate::exit::{Code, Failure};
use crate::proxy_args::PasswordArgs;

/// More is no password.
const LONGEST: u64 = 4096;

/// Prints the line of a users file for a user, whose password comes from the terminal or standard input.
pub(crate) fn run(args: &PasswordArgs) -> Result<(), Failure> {
    check_name(&args.name).map_err(Failure::usage)?;
    let stdin = io::stdin();
    let password = match stdin.is_terminal() {
        true => asked_twice()?,
        false => read_line().map_err(|e| unread(&e))?,
    };
    let line = line_for(&args.name, &password).map_err(|e| Failure::new(Code::Failure, e))?;
    print_text(&(line + "\n"))
}

fn unread(error: &io::Error) -> Failure {
    Failure::new(Code::Failure, format!("cannot read a password: {error}"))
}

/// A terminal that does not show what is typed, until this is dropped.
struct Hidden(Termios);

impl Hidden {
    fn new() -> io::Result<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(stdin.as_fd())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        // The end of the line moves on all the same.
        hidden.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(stdin.as_fd(), OptionalActions::Flush, &hidden)?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin().as_fd(), OptionalActions::Now, &self.0);
    }
}

fn asked_twice() -> Result<Vec<u8>, Failure> {
    let ask = |what: &str| -> io::Result<Vec<u8>> {
        // Standard output is for the line.
        write!(io::stderr(), "{what}")?;
        read_line()
    };
    let hidden = Hidden::new().map_err(|e| unread(&e))?;
    let first = ask("Password: ").map_err(|e| unread(&e))?;
    let second = ask("Again: ").map_err(|e| unread(&e))?;
    drop(hidden);
    match first == second {
        true => Ok(first),
        false => Err(Failure::new(
            Code::Failure,
            "the two passwords are not the same",
        )),
    }
}

/// A line without its end.
fn read_line() -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    io::stdin()
        .lock()
        .take(LONGEST)
        .read_until(b'\n', &mut line)?;
    if line.ends_with(b"\n") {
        line.pop();
        if line.ends_with(b"\r") {
            line.pop();
        }
    }
    Ok(line)
}
