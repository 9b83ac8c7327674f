//! The quotas in force, what was used of each, and the file that keeps it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use manypath_control::report::QuotaReport;
use manypath_control::wire::LimitOf;
use tracing::{info, warn};

use super::keeping::Keeping;
use super::quota::{Carried, Found, Meter, QuotaSpec, Ruling};
use super::standing::Spent;

/// A path by its interface, or a class, and what it has carried.
pub(super) type AllCarried = BTreeMap<(LimitOf, String), Carried>;

/// A quota, and whose it is.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) of: LimitOf,
    /// As the configuration calls it.
    pub(super) name: String,
    /// What counts it: the interface of a path, or the class.
    pub(super) counted: String,
    pub(super) spec: QuotaSpec,
}

#[derive(Debug)]
struct Account {
    of: LimitOf,
    name: String,
    counted: String,
    key: String,
    meter: Meter,
}

impl Account {
    fn is_of(&self, of: LimitOf, name: &str) -> bool {
        self.of == of && (self.name == name || self.counted == name)
    }

    fn carried(&self, all: &AllCarried) -> Carried {
        let known = all.get(&(self.of, self.counted.clone()));
        known.copied().unwrap_or_default()
    }
}

/// All quotas.
#[derive(Debug, Default)]
pub(super) struct Books {
    accounts: Vec<Account>,
    /// Something is to be done about what the last looks have found.
    turned: bool,
    /// Quotas that are used up or count anew since that was told, by their keys.
    told: Vec<String>,
    keeping: Keeping,
}

impl Books {
    /// Has these quotas from now on. Those that were there go on with what was used of them, those that the file knows with what it has.
    pub(super) fn set(
        &mut self,
        wanted: Vec<Wanted>,
        file: &Path,
        all: &AllCarried,
        now: Timestamp,
    ) {
        self.keep_counts();
        if !wanted.is_empty() {
            self.keeping.open(file);
            self.keeping.is_behind();
        }
        let mut before = std::mem::take(&mut self.accounts);
        for quota in wanted {
            let key = quota.spec.key(quota.of.name(), &quota.name);
            let known = before.iter().position(|account| account.key == key);
            let account = match known.map(|at| before.swap_remove(at)) {
                Some(mut account) if account.counted == quota.counted => {
                    account.meter.change(quota.spec);
                    account
                }
                _ => {
                    let carried = all.get(&(quota.of, quota.counted.clone())).copied();
                    let kept = self.keeping.kept(&key);
                    let meter = Meter::new(quota.spec, kept, carried.unwrap_or_default(), now);
                    Account {
                        of: quota.of,
                        name: quota.name,
                        counted: quota.counted,
                        key,
                        meter,
                    }
                }
            };
            self.accounts.push(account);
        }
    }

    fn keep_counts(&mut self) {
        let counts = self.accounts.iter();
        let counts = counts.map(|account| (account.key.clone(), account.meter.used));
        self.keeping.note(counts);
    }

    /// Counts what was carried since the last look, and tells what came of it. `None`: there are no quotas; otherwise when to look again.
    pub(super) fn look(&mut self, all: &AllCarried, now: Timestamp) -> Option<Duration> {
        for account in &mut self.accounts {
            let before = account.meter.used;
            let carried = account.carried(all);
            let (of, name) = (account.of.name(), &account.name);
            let found = account.meter.look(carried, now);
            self.turned |= found != Found::Nothing;
            if matches!(found, Found::Spent | Found::Reset) {
                self.told.push(account.key.clone());
            }
            match found {
                Found::Nothing => {}
                Found::Spent => {
                    let (spec, next) = (&account.meter.spec, account.meter.spec.reset.next(now));
                    warn!("the quota of {of} {name} is used up until {next}: {spec}");
                }
                Found::Reset => info!(
                    "the quota of {of} {name} begins anew: {}",
                    account.meter.spec
                ),
                Found::ClockWentBack => warn!(
                    "the clock went back to before the period that the quota of {of} {name} counts: counting goes on, and begins anew with the first period after that one"
                ),
            }
            if account.meter.used != before {
                self.keeping.is_behind();
            }
        }
        let waits = self
            .accounts
            .iter()
            .map(|account| account.meter.look_again());
        waits.min().map(Duration::from_nanos)
    }

    /// Whether something is to be done about what was found since this was asked last.
    pub(super) fn take_turned(&mut self) -> bool {
        std::mem::take(&mut self.turned)
    }

    /// Counts the quotas of a path or a class anew. False if it has none.
    pub(super) fn reset(&mut self, of: LimitOf, name: &str, all: &AllCarried) -> bool {
        let mut any = false;
        for account in self.accounts.iter_mut().filter(|a| a.is_of(of, name)) {
            let carried = account.carried(all);
            account.meter.reset(carried);
            self.told.push(account.key.clone());
            any = true;
        }
        if any {
            self.keeping.is_behind();
        }
        any
    }

    /// Why nothing can be ordered about counts here: another process keeps them.
    pub(super) fn kept_elsewhere(&self) -> Option<String> {
        self.keeping.elsewhere()
    }

    /// What the quotas that are used up make of a path or a class, by its name in the configuration.
    pub(super) fn ruling(&self, of: LimitOf, name: &str) -> Ruling {
        Ruling::of(self.spent_of(of, name).map(|meter| &meter.spec.then))
    }

    /// The quotas of a path or a class that are used up, and when the next period of each begins.
    pub(super) fn spent(&self, of: LimitOf, name: &str, now: Timestamp) -> Vec<Spent<'_>> {
        let spent = self.spent_of(of, name);
        spent
            .map(|meter| (&meter.spec, meter.resets_at(now)))
            .collect()
    }

    fn spent_of(&self, of: LimitOf, name: &str) -> impl Iterator<Item = &Meter> {
        let of_it = self.accounts.iter();
        let of_it = of_it.filter(move |account| account.of == of && account.name == name);
        of_it
            .map(|account| &account.meter)
            .filter(|meter| meter.is_spent())
    }

    /// The file and what is to be in it, if that is due; `at_once`: it is in any case.
    pub(super) fn take_unsaved(&mut self, at_once: bool) -> Option<(PathBuf, String)> {
        if !self.keeping.is_due(at_once) {
            return None;
        }
        if let Some(regained) = self.keeping.regain() {
            for account in &mut self.accounts {
                account.meter.used = regained.with(&account.key, account.meter.used);
            }
            self.turned = true;
        }
        self.keep_counts();
        self.keeping.take()
    }

    /// What became of it.
    pub(super) fn saved(&mut self, result: io::Result<()>) {
        self.keeping.saved(result);
    }

    /// The quotas that were used up, or counted anew, since this was asked last.
    pub(super) fn take_told(&mut self, now: Timestamp) -> Vec<QuotaReport> {
        let told = std::mem::take(&mut self.told);
        let account = |key: &String| self.accounts.iter().find(|account| account.key == *key);
        let found = told.iter().filter_map(account);
        found.map(|account| self.report(account, now)).collect()
    }

    pub(super) fn reports(&self, now: Timestamp) -> Vec<QuotaReport> {
        self.accounts
            .iter()
            .map(|account| self.report(account, now))
            .collect()
    }

    fn report(&self, account: &Account, now: Timestamp) -> QuotaReport {
        let (spec, used) = (&account.meter.spec, account.meter.used);
        QuotaReport {
            of: account.of,
            name: account.name.clone(),
            period: spec.reset.period().name().to_owned(),
            count: spec.count.name().to_owned(),
            then: spec.then.to_string(),
            amount: spec.amount,
            used: used.bytes,
            spent: account.meter.is_spent(),
            resets_at: account.meter.resets_at(now).as_second(),
            kept: self.keeping.is_kept(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::calendar::{Period, Reset};
    use super::super::path::Priority;
    use super::super::quota::{Count, Then};
    use super::super::store;
    use super::*;

    fn quota(amount: u64, period: Period, then: Then) -> Wanted {
        Wanted {
            of: LimitOf::Path,
            name: "lte".into(),
            counted: "wwan0".into(),
            spec: QuotaSpec {
                amount,
                reset: Reset::usual(period),
                count: Count::Both,
                then,
            },
        }
    }

    fn carried(bytes: u64) -> AllCarried {
        let carried = Carried { up: bytes, down: 0 };
        [((LimitOf::Path, "wwan0".to_owned()), carried)].into()
    }

    fn save(books: &mut Books) {
        if let Some((file, text)) = books.take_unsaved(true) {
            let result = store::write(&file, &text);
            books.saved(result);
        }
    }

    #[test]
    fn several_quotas_of_one_path_hold_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, now) = (folder.path().join("quotas"), Timestamp::now());
        let (day, month) = (
            quota(50, Period::Day, Then::Backup),
            quota(80, Period::Month, Then::Never),
        );
        let mut books = Books::default();
        books.set(vec![day, month], &file, &carried(0), now);
        for (bytes, priority) in [
            (49, Priority::Always),
            (50, Priority::Backup),
            (79, Priority::Backup),
            (80, Priority::Never),
        ] {
            assert!(books.look(&carried(bytes), now).is_some());
            assert_eq!(
                books.ruling(LimitOf::Path, "lte").priority,
                priority,
                "{bytes}"
            );
        }
        assert!(
            books.reset(LimitOf::Path, "wwan0", &carried(80)),
            "by its interface"
        );
        assert!(!books.reset(LimitOf::Class, "lte", &carried(80)));
        assert_eq!(
            books.ruling(LimitOf::Path, "lte").priority,
            Priority::Always
        );
        assert!(books.reports(now).iter().all(|report| report.used == 0));
    }

    #[test]
    fn counts_go_on_over_a_start_and_a_change_of_the_amount() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, now) = (folder.path().join("quotas"), Timestamp::now());
        let wanted = |amount| vec![quota(amount, Period::Month, Then::Never)];
        let mut books = Books::default();
        books.set(wanted(100), &file, &carried(5), now);
        books.look(&carried(65), now);
        save(&mut books);
        // Killed here, and started anew.
        drop(books);
        let mut books = Books::default();
        books.set(wanted(100), &file, &carried(0), now);
        books.look(&carried(10), now);
        assert_eq!(books.reports(now)[0].used, 70);
        books.set(wanted(70), &file, &carried(10), now);
        assert_eq!(books.ruling(LimitOf::Path, "lte").priority, Priority::Never);
        // Without a quota for a while.
        books.set(Vec::new(), &file, &carried(10), now);
        assert_eq!(books.look(&carried(50), now), None);
        books.set(wanted(100), &file, &carried(50), now);
        books.look(&carried(50), now);
        assert_eq!(books.reports(now)[0].used, 70);
        books.reset(LimitOf::Path, "lte", &carried(50));
        save(&mut books);
        drop(books);
        let mut books = Books::default();
        books.set(wanted(100), &file, &carried(0), now);
        assert_eq!(books.reports(now)[0].used, 0, "the reset is kept");
    }

    #[test]
    fn counting_goes_on_where_the_file_cannot_be_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, now) = (folder.path().join("no/quotas"), Timestamp::now());
        let mut books = Books::default();
        let wanted = vec![quota(50, Period::Day, Then::Backup)];
        books.set(wanted, &file, &carried(0), now);
        books.look(&carried(60), now);
        save(&mut books);
        assert_eq!(
            books.ruling(LimitOf::Path, "lte").priority,
            Priority::Backup
        );
        assert!(!books.reports(now)[0].kept, "it is told");
        std::fs::create_dir(folder.path().join("no")).expect("a folder of ours");
        save(&mut books);
        assert!(books.reports(now)[0].kept, "it is tried again");
        assert!(file.exists());
    }

    #[test]
    fn a_second_process_on_one_file_counts_in_memory_and_goes_on_with_both_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, now) = (folder.path().join("quotas"), Timestamp::now());
        let wanted = || vec![quota(100, Period::Day, Then::Backup)];
        let (mut first, mut second) = (Books::default(), Books::default());
        first.set(wanted(), &file, &carried(0), now);
        first.look(&carried(20), now);
        save(&mut first);
        second.set(wanted(), &file, &carried(0), now);
        second.look(&carried(5), now);
        assert_eq!(second.reports(now)[0].used, 25);
        assert!(second.take_unsaved(true).is_none(), "it does not write");
        assert!(!second.reports(now)[0].kept, "it is told");
        assert!(second.kept_elsewhere().is_some() && first.kept_elsewhere().is_none());
        first.look(&carried(90), now);
        save(&mut first);
        drop(first);
        save(&mut second);
        let told = &second.reports(now)[0];
        assert_eq!((told.used, told.kept), (95, true));
        assert_eq!(second.kept_elsewhere(), None);
        second.look(&carried(10), now);
        assert!(second.take_turned());
        assert_eq!(
            second.ruling(LimitOf::Path, "lte").priority,
            Priority::Backup
        );
    }
}
