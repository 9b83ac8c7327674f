//! Users and their passwords, from a file of names and hashes: Argon2 as `manypath password` makes them, or bcrypt as
//! `htpasswd -B` does.
//!
//! A wrong name costs as much work as a wrong password, so that nobody learns which names exist. Hashes are slow on purpose; a
//! password that was right is known again by a keyed digest, as HTTP clients send it with every request.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, Params, PasswordHasher, PasswordVerifier};
use sha2::{Digest, Sha256};

/// The longest name and the longest password (RFC 1929 section 2).
const LONGEST: usize = 255;

/// The most memory that a hash of the file may take, in KiB, and the most passes over it.
const MOST_MEMORY: u32 = 256 * 1024;
const MOST_PASSES: u32 = 16;

/// The highest cost of bcrypt: beyond it one look takes seconds.
const MOST_COST: u32 = 14;

/// Passwords that were right and are known again; when there are more, all are forgotten.
const MOST_KNOWN: usize = 4096;

/// A line of a users file that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// From 1.
    pub line: usize,
    /// What is wrong. Nothing of the line itself.
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hash {
    Argon2(Box<PasswordHash>),
    Bcrypt(String),
}

impl Hash {
    /// Reads `$argon2id$...` or `$2y$...`.
    fn read(text: &str) -> Result<Self, String> {
        if text.starts_with("$2") {
            let parts: bcrypt::HashParts = text
                .parse()
                .map_err(|_| "the bcrypt hash is malformed".to_owned())?;
            return match parts.get_cost() {
                4..=MOST_COST => Ok(Self::Bcrypt(text.to_owned())),
                cost => Err(format!(
                    "the bcrypt cost is {cost}, and 4 to {MOST_COST} are taken"
                )),
            };
        }
        if !text.starts_with("$argon2") {
            return Err("the hash is neither Argon2 ($argon2id$...) nor bcrypt ($2y$...): `manypath password` and `htpasswd -B` make such".to_owned());
        }
        const MALFORMED: &str = "the Argon2 hash is malformed";
        let hash = PasswordHash::new(text).map_err(|_| MALFORMED)?;
        let params = Params::try_from(&hash).map_err(|_| MALFORMED)?;
        if hash.hash.is_none() || hash.salt.is_none() {
            return Err("the Argon2 hash has no salt or no hash".to_owned());
        }
        if params.m_cost() > MOST_MEMORY || params.t_cost() > MOST_PASSES {
            return Err(format!(
                "the Argon2 hash takes more than {MOST_MEMORY} KiB or {MOST_PASSES} passes"
            ));
        }
        Ok(Self::Argon2(Box::new(hash)))
    }

    fn fits(&self, password: &[u8]) -> bool {
        match self {
            Self::Argon2(hash) => Argon2::default()
                .verify_password(password, hash.as_ref())
                .is_ok(),
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
        }
    }

    /// A measure of the work that it takes, to compare hashes of one kind by; Argon2 above bcrypt.
    fn work(&self) -> (bool, u64) {
        match self {
            Self::Argon2(hash) => {
                let params = Params::try_from(hash.as_ref()).unwrap_or_default();
                let work = u64::from(params.m_cost()) * u64::from(params.t_cost());
                (true, work)
            }
            Self::Bcrypt(hash) => {
                let cost = hash
                    .parse()
                    .map_or(0, |parts: bcrypt::HashParts| parts.get_cost());
                (false, 1 << cost)
            }
        }
    }
}

/// The users of one file. Read anew, nothing is known of what was right before.
pub struct Users {
    users: HashMap<Arc<str>, Hash>,
    /// What a name that there is not is checked against; `None` where there are no users.
    decoy: Option<Hash>,
    /// Makes the digests worthless to who reads them elsewhere.
    secret: [u8; 32],
    known: Mutex<HashSet<[u8; 32]>>,
}

impl fmt::Debug for Users {
    /// Names only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.users.keys()).finish()
    }
}

impl Users {
    /// Reads a file's text: `NAME:HASH` a line; empty lines and those that begin with `#` say nothing.
    ///
    /// # Errors
    /// Every line that cannot be.
    pub fn read(text: &str) -> Result<Self, Vec<BadLine>> {
        let (mut users, mut bad) = (HashMap::new(), Vec::new());
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match read_line(line) {
                Ok((name, _)) if users.contains_key(name) => bad.push(BadLine {
                    line: i + 1,
                    message: "there is a line for this user already".to_owned(),
                }),
                Ok((name, hash)) => {
                    users.insert(name.into(), hash);
                }
                Err(message) => bad.push(BadLine {
                    line: i + 1,
                    message,
                }),
            }
        }
        if !bad.is_empty() {
            return Err(bad);
        }
        let mut secret = [0; 32];
        if let Err(error) = getrandom::fill(&mut secret) {
            let message = format!("the system has no random numbers: {error}");
            return Err(vec![BadLine { line: 0, message }]);
        }
        let decoy = users.values().max_by_key(|hash| hash.work()).cloned();
        Ok(Self {
            users,
            decoy,
            secret,
            known: Mutex::default(),
        })
    }

    /// The names, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.users.keys().map(AsRef::as_ref)
    }

    /// Whether the password is known to be this user's, as it was right before. False says nothing.
    #[must_use]
    pub fn knows(&self, name: &str, password: &[u8]) -> bool {
        let short = name.len() <= LONGEST && password.len() <= LONGEST;
        short && lock(&self.known).contains(&self.digest(name, password))
    }

    /// Whether the password is this user's. Blocks for as long as a hash takes.
    #[must_use]
    pub fn authenticate(&self, name: &str, password: &[u8]) -> bool {
        if name.len() > LONGEST || password.len() > LONGEST {
            return false;
        }
        let digest = self.digest(name, password);
        if lock(&self.known).contains(&digest) {
            return true;
        }
        let user = self.users.get(name);
        let Some(hash) = user.or(self.decoy.as_ref()) else {
            return false;
        };
        let fits = hash.fits(password) && user.is_some();
        if fits {
            let mut known = lock(&self.known);
            if known.len() >= MOST_KNOWN {
                known.clear();
            }
            known.insert(digest);
        }
        fits
    }

    fn digest(&self, name: &str, password: &[u8]) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(self.secret);
        digest.update((name.len() as u64).to_be_bytes());
        digest.update(name);
        digest.update(password);
        digest.finalize().into()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read_line(line: &str) -> Result<(&str, Hash), String> {
    let (name, hash) = line
        .split_once(':')
        .ok_or("it is not NAME:HASH".to_owned())?;
    check_name(name)?;
    Ok((name, Hash::read(hash)?))
}

/// Whether a user may be called so.
///
/// # Errors
/// What is wrong with the name.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = !name.contains(|c: char| c == ':' || c.is_control());
    match fits && (1..=LONGEST).contains(&name.len()) && name.trim() == name {
        true => Ok(()),
        false => Err(format!(
            "a user's name has 1 to {LONGEST} bytes without colons, control characters and spaces around it"
        )),
    }
}

/// The line of a users file for a user and its password, with a new Argon2id hash (19 MiB, two passes: the least that OWASP
/// recommends).
///
/// # Errors
/// The name or the password cannot be.
pub fn line_for(name: &str, password: &[u8]) -> Result<String, String> {
    check_name(name)?;
    if password.is_empty() || password.len() > LONGEST {
        return Err(format!("a password has 1 to {LONGEST} bytes"));
    }
    let hash: PasswordHash = Argon2::default()
        .hash_password(password)
        .map_err(|error| format!("cannot hash the password: {error}"))?;
    Ok(format!("{name}:{hash}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `htpasswd -nbBC 4 bob secret`.
    const BOB: &str = "bob:$2y$04$ZjFhYzRhNDQxYjY3NjQ0OOLRgZXHLJPqBPGVgPKpr0wHFr8hxFXYm";

    #[test]
    fn the_right_password_of_a_user_is_accepted_and_nothing_else() {
        let alice = line_for("alice", b"correct horse").expect("hashed");
        assert!(
            alice.starts_with("alice:$argon2id$v=19$m=19456,t=2,p=1$"),
            "{alice}"
        );
        let cost = bcrypt::hash("secret", 4).expect("hashed");
        let users =
            Users::read(&format!("# people\n\n{alice}\nbob:{cost}\n")).expect("well-formed");
        for (name, password, right) in [
            ("alice", "correct horse", true),
            ("alice", "correct horse", true),
            ("bob", "secret", true),
            ("alice", "secret", false),
            ("bob", "correct horse", false),
            ("alice", "", false),
            ("carol", "correct horse", false),
            ("Alice", "correct horse", false),
            ("", "", false),
        ] {
            let found = users.authenticate(name, password.as_bytes());
            assert_eq!(found, right, "{name}, {password}");
        }
        let nobody = Users::read("").expect("well-formed");
        assert!(!nobody.authenticate("alice", b"correct horse"));
    }

    #[test]
    fn an_unknown_user_is_checked_against_the_costliest_hash() {
        let alice = line_for("alice", b"a").expect("hashed");
        let bob = bcrypt::hash("b", 4).expect("hashed");
        let users = Users::read(&format!("bob:{bob}\n{alice}")).expect("well-formed");
        let decoy = users.decoy.as_ref();
        assert_eq!(decoy, users.users.get("alice"));
        assert!(!users.authenticate("carol", b"a"), "even with its password");
    }

    #[test]
    fn every_bad_line_is_told_without_what_stands_there() {
        let text = "alice\nbob:plain-secret\ncarol:$2y$31$ZjFhYzRhNDQxYjY3NjQ0OOLRgZXHLJPqBPGVgPKpr0wHFr8hxFXYm\n\
                    dora:$argon2id$v=19$m=999999999,t=2,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA\n:x\n";
        let bad = Users::read(&format!("{text}{BOB}\n{BOB}\n")).expect_err("five bad lines");
        let lines: Vec<usize> = bad.iter().map(|bad| bad.line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5, 7], "{bad:?}");
        let told = format!("{bad:?}");
        assert!(
            !told.contains("plain-secret") && !told.contains("ZjFh"),
            "{told}"
        );
    }

    #[test]
    fn names_and_passwords_have_bounds() {
        for name in ["", "a:b", "a\n", " a", &"x".repeat(256)] {
            assert!(line_for(name, b"x").is_err(), "{name}");
        }
        assert!(line_for("a", b"").is_err() && line_for("a", &[b'x'; 256]).is_err());
    }
}
