//! The changes of one stack to its host.
//!
//! Owns the order "write down, change, undo". A [`Setup`] undoes its changes when it is dropped, and every new one first undoes
//! what a dead process left in the same network namespace ([`clean_up`] does only that).

use crate::firewall::{self, Guard};
use crate::journal::{Journal, Undo};
use crate::sysctl;
use std::io;
use std::ops::RangeInclusive;

/// The changes of one stack to its host.
#[derive(Debug)]
pub struct Setup {
    journal: Journal,
}

impl Setup {
    /// Starts a set of changes, and first undoes what dead processes left behind.
    ///
    /// # Errors
    /// When the journal cannot be written; nothing is changed then.
    pub fn new() -> io::Result<Self> {
        Ok(Setup {
            journal: Journal::open(&mut apply)?,
        })
    }

    /// Takes `count` local TCP ports away from the host. Both families share them.
    ///
    /// # Errors
    /// `AddrInUse` when there is no such range. A kernel setting that cannot be written is not an error: the range
    /// is chosen outside the host's own wherever possible, and then nothing is lost.
    pub fn reserve_ports(&mut self, count: u16) -> io::Result<RangeInclusive<u16>> {
        let range = sysctl::choose_ports(count)?;
        match sysctl::reserve_ports(&mut self.journal, &range) {
            Ok(()) => Ok(range),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::PermissionDenied
                        | io::ErrorKind::ReadOnlyFilesystem
                        | io::ErrorKind::NotFound
                ) =>
            {
                Ok(range)
            }
            Err(e) => Err(e),
        }
    }

    /// Puts the rules into force that keep the kernel from answering in our place; replaces earlier ones.
    ///
    /// # Errors
    /// `NotFound` without the program `nft`, `PermissionDenied` without `CAP_NET_ADMIN`.
    pub fn guard(&mut self, guards: &[Guard]) -> io::Result<()> {
        let name = format!("{}_guard", self.journal.name());
        self.load(&name, &firewall::guard_script(&name, guards))
    }

    pub(crate) fn translate(
        &mut self,
        tun: &str,
        list: &[firewall::Translation],
    ) -> io::Result<()> {
        let name = format!("{}_nat", self.journal.name());
        self.load(&name, &firewall::translation_script(&name, tun, list))
    }

    fn load(&mut self, name: &str, script: &str) -> io::Result<()> {
        self.journal.record(Undo::FirewallTable(name.to_owned()))?;
        firewall::load(name, script)
    }

    pub(crate) fn set_sysctl(&mut self, key: &str, value: &str) -> io::Result<()> {
        sysctl::set(&mut self.journal, key, value)
    }

    pub(crate) fn add_rule(&mut self, rule: &crate::netlink::Rule) -> io::Result<()> {
        self.journal.record(Undo::Rule(*rule))?;
        match crate::netlink::add_rule(rule) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    pub(crate) fn route_table(&mut self, table: u32) -> io::Result<()> {
        self.journal.record(Undo::RouteTable(table))
    }

    /// Undoes everything now. Dropping does the same.
    pub fn undo(&mut self) {
        self.journal.undo(&mut apply);
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.undo();
    }
}

/// Undoes what dead processes left behind in this network namespace.
///
/// # Errors
/// When there is no place for journals.
pub fn clean_up() -> io::Result<()> {
    Setup::new().map(drop)
}

/// Undoes one change. What is gone already is fine; what cannot be undone must not keep the rest from being undone.
fn apply(undo: &Undo, others: &[Undo]) {
    let _ = match undo {
        Undo::FirewallTable(name) => firewall::delete(name),
        Undo::Rule(rule) => crate::netlink::delete_rule(rule),
        Undo::RouteTable(table) => crate::netlink::flush_table(*table),
        Undo::Sysctl { key, before, ours } => sysctl::restore(key, before, ours, others),
        Undo::ReservedPorts(low, high) => sysctl::release_ports(*low, *high),
    };
}
