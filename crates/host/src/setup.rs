//! The changes of one stack to its host.
//!
//! Owns the order "write down, change, undo". A [`Setup`] undoes its changes when it is dropped, and every new one first undoes
//! what a dead process left in the same network namespace ([`clean_up`] does only that).

use crate::firewall::{self, Firewall, Guard, Translation};
use crate::journal::{Journal, Undo};
use crate::nat::Networks;
use crate::sysctl::{self, Setting};
use crate::take::{Mark, Take, Turn, take_table};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The changes of one stack to its host.
#[derive(Debug)]
pub struct Setup {
    journal: Journal,
    guard: Option<Firewall>,
    nat: Option<Firewall>,
    take: Option<Firewall>,
    /// Whether connections were ever redirected.
    redirects: bool,
    /// What leads packets that are handed to a listener to this host, and for which families it is there.
    mark: Option<(Mark, Vec<bool>)>,
    /// Let tables belong to the process where the kernel can.
    owned: bool,
    /// Kernel settings and what they have to be.
    settings: BTreeMap<Setting, String>,
}

impl Setup {
    /// Starts a set of changes, and first undoes what dead processes left behind.
    ///
    /// # Errors
    /// When the journal cannot be written; nothing is changed then.
    pub fn new() -> io::Result<Self> {
        Ok(Setup {
            journal: Journal::open(&mut apply)?,
            guard: None,
            nat: None,
            take: None,
            redirects: false,
            mark: None,
            owned: true,
            settings: BTreeMap::new(),
        })
    }

    /// The same with tables that anybody may change, as on Linux before 5.12.
    ///
    /// # Errors
    /// As [`Setup::new`].
    pub fn with_exposed_tables() -> io::Result<Self> {
        let mut setup = Setup::new()?;
        setup.owned = false;
        Ok(setup)
    }

    /// Takes `count` local TCP ports in a row for connections of ours. No program of the host has one of them now, and the kernel
    /// will give none of them to a connection of the host's; a program that asks for one by its number gets it. Both families
    /// share them. May be called again for more.
    ///
    /// # Errors
    /// `AddrInUse` when there is no such row. A kernel setting that cannot be written is not an error: the ports
    /// are chosen outside the host's own wherever possible, and then nothing is lost.
    pub fn reserve_ports(&mut self, count: u16) -> io::Result<RangeInclusive<u16>> {
        let _others_wait = self.journal.exclusive();
        let taken: Vec<_> = self
            .journal
            .others()?
            .into_iter()
            .filter_map(|undo| match undo {
                Undo::ReservedPorts(low, high) => Some(low..=high),
                _ => None,
            })
            .collect();
        let range = sysctl::choose_ports(count, &taken)?;
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

    /// Takes networks for a TUN device, by their number: none that an address of the host is in or another process of ours has.
    pub(crate) fn reserve_network(&mut self, host: &[IpAddr]) -> io::Result<u8> {
        let _others_wait = self.journal.exclusive();
        let taken: Vec<u8> = self
            .journal
            .others()?
            .into_iter()
            .filter_map(|undo| match undo {
                Undo::Network(number) => Some(number),
                _ => None,
            })
            .collect();
        let number = Networks::choose(host, &taken).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::AddrInUse,
                "no private network is left for the TUN device",
            )
        })?;
        self.journal.record(Undo::Network(number))?;
        Ok(number)
    }

    /// Puts the rules into force that keep the kernel from answering in our place; replaces earlier ones. The answer is where
    /// connections on shared addresses are told.
    ///
    /// # Errors
    /// `Unsupported` ([`crate::NoFirewall`]) without nf_tables in the kernel, `PermissionDenied` without `CAP_NET_ADMIN`.
    pub fn guard(&mut self, guards: &[Guard]) -> io::Result<Firewall> {
        let name = format!("{}_guard", self.journal.name());
        let firewall = prepare(&mut self.guard, &mut self.journal, &name, self.owned)?;
        firewall.guard(&name, guards)?;
        Ok(firewall)
    }

    pub(crate) fn translate(&mut self, list: &[Translation]) -> io::Result<()> {
        let name = format!("{}_nat", self.journal.name());
        let firewall = prepare(&mut self.nat, &mut self.journal, &name, self.owned)?;
        firewall.translate(&name, list)
    }

    /// Turns these connections to listeners of this host from now on, and no others. Those that were turned before go on. The rules
    /// are replaced at one moment.
    ///
    /// # Errors
    /// `Unsupported` ([`crate::NoFirewall`]) without nf_tables in the kernel, `PermissionDenied` without `CAP_NET_ADMIN`, and what the
    /// kernel says of rules that it does not know. Then those before stay in force.
    pub fn take(&mut self, takes: &[Take]) -> io::Result<()> {
        for ipv6 in [false, true] {
            let wants = |take: &Take| take.turn == Turn::Tproxy && (take.ipv6 || !ipv6);
            if takes.iter().any(wants) {
                self.lead_here(ipv6)?;
            }
        }
        let mark = self.mark.as_ref().map(|(mark, _)| *mark);
        self.redirects |= takes.iter().any(|take| take.turn == Turn::Redirect);
        if !self.redirects && mark.is_none() {
            return Ok(());
        }
        let name = format!("{}_take", self.journal.name());
        let firewall = prepare(&mut self.take, &mut self.journal, &name, self.owned)?;
        firewall.load(take_table(&name, takes, self.redirects, mark))
    }

    /// Has packets with the mark of this process end at this host.
    fn lead_here(&mut self, ipv6: bool) -> io::Result<()> {
        let mark = match &self.mark {
            Some((_, families)) if families.contains(&ipv6) => return Ok(()),
            Some((mark, _)) => *mark,
            None => {
                let _others_wait = self.journal.exclusive();
                let others = self.journal.others()?.into_iter();
                let taken = others.filter_map(|undo| match undo {
                    Undo::MarkRule(rule) => Some(rule),
                    _ => None,
                });
                let mark = Mark::choose(&taken.collect::<Vec<_>>()).ok_or_else(|| {
                    io::Error::new(
                        io::ErrorKind::AddrInUse,
                        "no mark is left for packets that are handed to a listener",
                    )
                })?;
                self.journal.record(Undo::MarkRule(mark.rule(ipv6)))?;
                self.mark = Some((mark, Vec::new()));
                mark
            }
        };
        let rule = mark.rule(ipv6);
        if !self.journal.entries().contains(&Undo::MarkRule(rule)) {
            self.journal.record(Undo::MarkRule(rule))?;
        }
        self.journal.record(Undo::RouteTable(rule.table))?;
        is_new(crate::netlink::add_local_route(ipv6, rule.table))?;
        is_new(crate::netlink::add_mark_rule(&rule))?;
        if let Some((_, families)) = &mut self.mark {
            families.push(ipv6);
        }
        Ok(())
    }

    /// Puts the rules and routes of [`Setup::lead_here`] back. Answers whether one was gone.
    fn repair_marks(&self) -> io::Result<bool> {
        let Some((mark, families)) = &self.mark else {
            return Ok(false);
        };
        let mut restored = false;
        for ipv6 in families {
            let rule = mark.rule(*ipv6);
            // What is there is not put up again: that would be news, of which whoever repairs is told.
            restored |= is_new(crate::netlink::add_local_route(*ipv6, rule.table))?;
            restored |= is_new(crate::netlink::add_mark_rule(&rule))?;
        }
        Ok(restored)
    }

    /// Puts back the tables that somebody took away and the settings that somebody changed. Answers them in words.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn repair(&mut self) -> (Vec<String>, io::Result<()>) {
        let mut restored = Vec::new();
        let mut result = Ok(());
        let tables = [
            (
                &self.guard,
                "the firewall rules that keep the kernel from answering in our place",
            ),
            (&self.nat, "the rules that translate addresses"),
            (
                &self.take,
                "the rules that turn connections to our listeners",
            ),
        ];
        for (firewall, name) in tables {
            match firewall.as_ref().map(Firewall::repair) {
                Some(Ok(true)) => restored.push(name.to_owned()),
                Some(Err(e)) => result = Err(e),
                Some(Ok(false)) | None => {}
            }
        }
        match self.repair_marks() {
            Ok(true) => restored.push("the rules that lead tproxy's packets here".to_owned()),
            Ok(false) => {}
            Err(e) => result = Err(e),
        }
        for (setting, value) in &self.settings {
            match sysctl::put_back(&mut self.journal, setting, value) {
                Ok(true) => {
                    restored.push(format!("the kernel setting {} = {value}", setting.path()));
                }
                Ok(false) => {}
                Err(e) => result = Err(e),
            }
        }
        (restored, result)
    }

    /// Whether others can change our tables, so that news of rules are worth following.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        [&self.guard, &self.nat, &self.take]
            .into_iter()
            .flatten()
            .any(Firewall::is_exposed)
    }

    pub(crate) fn set_sysctl(&mut self, setting: Setting, value: &str) -> io::Result<()> {
        self.set_sysctl_once(&setting, value)?;
        // Since then the interface may have got another name.
        self.settings.retain(|known, _| !known.is_same(&setting));
        self.settings.insert(setting, value.to_owned());
        Ok(())
    }

    /// The same for a setting that others may change again: how a network manager listens to router advertisements is its business.
    pub(crate) fn set_sysctl_once(&mut self, setting: &Setting, value: &str) -> io::Result<()> {
        sysctl::set(&mut self.journal, setting, value)
    }

    /// See [`sysctl::note_overwritten`].
    pub(crate) fn note_overwritten(
        &mut self,
        settings: &[Setting],
        untouched: bool,
    ) -> io::Result<()> {
        sysctl::note_overwritten(&mut self.journal, settings, untouched)
    }

    /// Strikes out the settings of interfaces that are gone: modems that are plugged in again and again must not fill the journal.
    pub(crate) fn forget_gone_interfaces(&mut self) {
        self.settings.retain(|setting, _| !setting.is_gone());
        for entry in self.journal.entries().to_vec() {
            if matches!(&entry, Undo::Sysctl { setting, .. } if setting.is_gone()) {
                self.journal.forget(&entry);
            }
        }
    }

    pub(crate) fn add_rule(&mut self, rule: &crate::netlink::Rule) -> io::Result<()> {
        self.journal.record(Undo::Rule(*rule))?;
        match crate::netlink::add_rule(rule) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    /// Takes a policy rule away, and the routes of its table. What cannot be taken away now stays written down for later.
    pub(crate) fn remove_rule(&mut self, rule: &crate::netlink::Rule, table: u32) {
        let gone = |result: io::Result<()>| {
            result.is_ok() || result.is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
        };
        if gone(crate::netlink::delete_rule(rule)) {
            self.journal.forget(&Undo::Rule(*rule));
        }
        if gone(crate::netlink::flush_table(table)) {
            self.journal.forget(&Undo::RouteTable(table));
        }
    }

    pub(crate) fn route_table(&mut self, table: u32) -> io::Result<()> {
        self.journal.record(Undo::RouteTable(table))
    }

    /// Undoes everything now. Dropping does the same.
    pub fn undo(&mut self) {
        // A table that belongs to this process can be taken away by its own socket alone.
        let tables = [self.guard.take(), self.nat.take(), self.take.take()];
        for firewall in tables.into_iter().flatten() {
            firewall.end();
        }
        (self.mark, self.redirects) = (None, false);
        self.journal.undo(&mut apply);
    }
}

/// Whether what was to be added was not there.
fn is_new(added: io::Result<()>) -> io::Result<bool> {
    match added {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(e),
    }
}

/// A table's keeper; that there is such a table is written down before it is made.
fn prepare(
    place: &mut Option<Firewall>,
    journal: &mut Journal,
    name: &str,
    owned: bool,
) -> io::Result<Firewall> {
    if let Some(firewall) = place {
        return Ok(firewall.clone());
    }
    journal.record(Undo::FirewallTable(name.to_owned()))?;
    Ok(place.insert(Firewall::new(owned)?).clone())
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.undo();
    }
}

/// Undoes what dead processes left behind in this network namespace. Answers it in the words of their notes.
///
/// # Errors
/// When there is no place for journals.
pub fn clean_up() -> io::Result<Vec<String>> {
    let mut undone = Vec::new();
    Journal::open(&mut |undo, others| {
        undone.push(undo.to_string());
        apply(undo, others);
    })?
    .undo(&mut apply);
    Ok(undone)
}

/// Undoes one change. What is gone already is fine; what cannot be undone must not keep the rest from being undone.
fn apply(undo: &Undo, others: &[Undo]) {
    let _ = match undo {
        Undo::FirewallTable(name) => firewall::delete(name),
        Undo::Rule(rule) => crate::netlink::delete_rule(rule),
        Undo::MarkRule(rule) => crate::netlink::delete_mark_rule(rule),
        Undo::RouteTable(table) => crate::netlink::flush_table(*table),
        Undo::Sysctl {
            setting,
            before,
            ours,
        } => sysctl::restore(setting, before, ours, others),
        Undo::ReservedPorts(low, high) => sysctl::release_ports(*low, *high),
        Undo::Network(_) => Ok(()),
    };
}
