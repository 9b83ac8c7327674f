//! What a service gives up once it is set up: root's number, and everything that the list of its system calls and the list of
//! its files do not have.

use std::path::PathBuf;

use manypath_io::User;

use crate::commands::Opened;
use crate::exit::{Code, Failure};
use crate::lines;

/// Who a service that was started by root becomes if nobody is named.
const DEFAULT: &str = "nobody";

/// Who says that root shall stay root.
const ROOT: &str = "root";

/// What is still to be given up.
#[derive(Debug)]
pub(crate) struct Confinement {
    user: Option<User>,
}

/// Who to become: decided before anything is changed, so that a wrong name changes nothing.
fn choose(is_root: bool, named: Option<&str>) -> Result<Option<User>, Failure> {
    match (is_root, named) {
        (_, Some(ROOT)) | (false, None) => Ok(None),
        (false, Some(_)) => Err(
            Failure::new(Code::Privilege, "only root can become another user")
                .hint("leave out --user: who is not root stays who he is"),
        ),
        (true, named) => {
            let name = named.unwrap_or(DEFAULT);
            match User::find(name) {
                Ok(user) if user.is_mapped() => Ok(Some(user)),
                Ok(_) if named.is_none() => {
                    tracing::info!(
                        "'{name}' does not exist in this user namespace: its root stays"
                    );
                    Ok(None)
                }
                Ok(_) => Err(Failure::usage(format!(
                    "'{name}', or the group {} of our services, does not exist in this user namespace",
                    manypath_io::GROUP
                ))),
                Err(error) if named.is_none() => {
                    tracing::warn!(%error, "the service stays root; --user names another user");
                    Ok(None)
                }
                Err(error) => {
                    Err(Failure::usage(format!("--user: {error}")).hint("`--user root` stays root"))
                }
            }
        }
    }
}

impl Confinement {
    /// Gives up at once what the set-up does not need. Comes before any thread: threads would keep theirs.
    pub(crate) fn prepare(named: Option<&str>) -> Result<Self, Failure> {
        crate::runtime::raise_limits();
        let user = choose(rustix::process::geteuid().is_root(), named)?;
        let limited = match user {
            Some(_) => manypath_io::limit_privileges_for_now(),
            None => manypath_io::limit_privileges(),
        };
        if let Err(error) = limited {
            tracing::warn!(%error, "cannot give up the privileges that are not needed");
        }
        Ok(Self { user })
    }

    /// Gives up the rest, when devices, rules and sockets are there. From here on lines are written by threads.
    pub(crate) fn enter(self, opened: &Opened) -> Result<(), Failure> {
        self.enter_with(opened, &[], Vec::new())
    }

    /// As [`Confinement::enter`], and what lies below `readable` can still be read, and below `writable` written, as far as the
    /// user may.
    pub(crate) fn enter_with(
        self,
        opened: &Opened,
        readable: &[PathBuf],
        mut writable: Vec<PathBuf>,
    ) -> Result<(), Failure> {
        if let Some(user) = self.user {
            manypath_io::become_user(user).map_err(|error| {
                Failure::from_io(format!("cannot become another user: {error}"), error.kind())
                    .hint("`--user root` stays root")
            })?;
        }
        writable.extend(own_folders(opened));
        match manypath_io::confine(readable, &writable) {
            Ok(confined) if confined.files => {}
            Ok(_) => tracing::info!("this kernel cannot keep a process from files (Landlock)"),
            Err(error) => tracing::warn!(%error, "the service may make any system call"),
        }
        if let Err(error) = lines::detach() {
            tracing::warn!(%error, "a full pipe of the log can stop the service");
        }
        Ok(())
    }
}

/// Folders of ours outside of `/run/manypath`: of the control socket, and of journals where that cannot be had.
fn own_folders(opened: &Opened) -> Vec<PathBuf> {
    let temporary = std::fs::read_dir(std::env::temp_dir());
    let ours = temporary.into_iter().flatten().flatten().filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with("manypath-")
    });
    ours.map(|entry| entry.path())
        .chain(opened.control_folder())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_a_service_becomes() {
        assert!(choose(false, None).expect("stays").is_none());
        assert!(choose(true, Some("root")).expect("stays").is_none());
        assert!(choose(false, Some("nobody")).is_err());
        let error = choose(true, Some("no such user")).expect_err("unknown");
        assert!(error.to_string().contains("no such user"), "{error}");
    }
}
