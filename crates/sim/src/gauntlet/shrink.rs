//! Cutting a scenario down while it still fails: fewer paths, boxes and events, shorter transfers, rounder numbers.

use toml::Value;

use crate::scenario::units::{Size, Span, Speed};
use crate::scenario::{Action, Scenario};

/// Cuts `scenario` down as far as `fails` stays true, with at most `runs` calls of it.
///
/// `fails` is true for `scenario` itself.
pub fn shrink(
    scenario: &Scenario,
    mut fails: impl FnMut(&Scenario) -> bool,
    mut runs: usize,
) -> Scenario {
    let mut best = scenario.clone();
    loop {
        let before = best.clone();
        for pass in PASSES {
            let mut at = 0;
            // A cut that worked makes way for the next one at the same place.
            while let Some(candidate) = pass(&best).into_iter().nth(at) {
                if runs == 0 {
                    return best;
                }
                runs -= 1;
                if candidate != best && fails(&candidate) {
                    best = candidate;
                } else {
                    at += 1;
                }
            }
        }
        if best == before {
            return best;
        }
    }
}

/// What each pass would try next, the largest cuts first.
const PASSES: [fn(&Scenario) -> Vec<Scenario>; 4] =
    [without_a_link, shorter, without_a_word, rounder];

/// Without one link and the interfaces, events and addresses that go with it.
fn without_a_link(scenario: &Scenario) -> Vec<Scenario> {
    let cut = |index: usize| {
        let mut less = scenario.clone();
        let link = less.links.remove(index);
        let mut gone = Vec::new();
        for host in &mut less.hosts {
            host.interfaces.retain(|interface| {
                let stays = !link.ends.contains(&interface.end(&host.name));
                if !stays {
                    gone.extend(interface.addresses.iter().copied());
                }
                stays
            });
        }
        less.events.retain(|event| match event {
            Action::Cut { link: name, .. }
            | Action::Mend { link: name, .. }
            | Action::Change { link: name, .. } => *name != link.name,
            Action::RemoveAddress { interface, .. } | Action::AddAddress { interface, .. } => {
                !link.ends.contains(interface)
            }
            Action::SetOptions { .. } => true,
        });
        for app in &mut less.apps {
            for address in [&mut app.from, &mut app.to] {
                *address = address.filter(|address| !gone.contains(address));
            }
        }
        let whole = less.hosts.iter().all(|host| !host.interfaces.is_empty());
        whole.then_some(less)
    };
    (0..scenario.links.len()).filter_map(cut).collect()
}

/// With half as many bytes, rounds or connections.
fn shorter(scenario: &Scenario) -> Vec<Scenario> {
    let mut shorter = Vec::new();
    for index in 0..scenario.apps.len() {
        let mut with = |change: &dyn Fn(&mut crate::scenario::AppSpec)| {
            let mut less = scenario.clone();
            change(&mut less.apps[index]);
            shorter.push(less);
        };
        with(&|app| app.connections = 1);
        with(&|app| app.connections = app.connections.div_ceil(2));
        with(&|app| app.rounds = app.rounds.map(|rounds| rounds.div_ceil(2)));
        let half = |size: Size| Size(size.0.div_ceil(2));
        with(&|app| app.upload = Size(0));
        with(&|app| app.download = Size(0));
        with(&|app| app.upload = half(app.upload));
        with(&|app| app.download = half(app.download));
        with(&|app| app.request = app.request.map(half));
        with(&|app| app.response = app.response.map(half));
        with(&|app| (app.burst, app.pause) = (None, None));
    }
    shorter
}

/// Words that a scenario is not itself without: what is left out would mean something larger.
const KEPT: [&str; 6] = ["rate", "seed", "limit", "event-limit", "expect", "buffer"];

/// Words whose items stay: links go by a pass of their own, and everything else hangs on them.
const LISTS: [&str; 4] = ["app", "host", "interface", "link"];

/// Without one word, table or list item of the file: boxes, events, loss models, options.
fn without_a_word(scenario: &Scenario) -> Vec<Scenario> {
    let Ok(whole) = Value::try_from(scenario) else {
        return Vec::new();
    };
    let mut ways = Vec::new();
    collect(&whole, &mut Vec::new(), &mut ways);
    ways.into_iter()
        .filter_map(|way| {
            let mut less = whole.clone();
            remove(&mut less, &way)?;
            less.try_into().ok()
        })
        .collect()
}

/// A step into a value.
#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Item(usize),
}

/// The ways to everything that could be left out, outermost first.
fn collect(value: &Value, way: &mut Vec<Step>, ways: &mut Vec<Vec<Step>>) {
    let mut inner: Vec<(Step, &Value)> = Vec::new();
    match value {
        Value::Table(table) => {
            let wanted = table
                .iter()
                .filter(|(key, _)| !KEPT.contains(&key.as_str()));
            inner.extend(wanted.map(|(key, value)| (Step::Key(key.clone()), value)));
        }
        Value::Array(items) => {
            // From the end: what happens later is easier to leave out.
            let items = items.iter().enumerate().rev();
            inner.extend(items.map(|(index, value)| (Step::Item(index), value)));
        }
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_) => {}
    }
    for (step, value) in inner {
        let stays = match (&step, way.last()) {
            (Step::Key(key), _) | (Step::Item(_), Some(Step::Key(key))) => {
                LISTS.contains(&key.as_str())
            }
            (Step::Item(_), _) => false,
        };
        way.push(step);
        if !stays {
            ways.push(way.clone());
        }
        collect(value, way, ways);
        way.pop();
    }
}

fn remove(value: &mut Value, way: &[Step]) -> Option<()> {
    let (last, steps) = way.split_last()?;
    let mut place = value;
    for step in steps {
        place = match step {
            Step::Key(key) => place.get_mut(key)?,
            Step::Item(index) => place.get_mut(index)?,
        };
    }
    match (last, place) {
        (Step::Key(key), Value::Table(table)) => table.remove(key).map(|_| ()),
        (Step::Item(index), Value::Array(items)) if *index < items.len() => {
            items.remove(*index);
            Some(())
        }
        _ => None,
    }
}

/// With one number of the links and events that has only one digit besides zeros.
fn rounder(scenario: &Scenario) -> Vec<Scenario> {
    let mut rounder = Vec::new();
    for index in 0..scenario.links.len() {
        let mut with = |change: &dyn Fn(&mut crate::scenario::LineSpec)| {
            let mut less = scenario.clone();
            change(&mut less.links[index].line);
            rounder.push(less);
        };
        with(&|line| line.rate = line.rate.map(round_speed));
        with(&|line| line.delay = line.delay.map(round_span));
    }
    rounder
}

fn round(number: u64) -> u64 {
    let digit = 10_u64.pow(number.max(1).ilog10());
    (number + digit / 2) / digit * digit
}

fn round_span(span: Span) -> Span {
    Span(manypath_tcp::time::Duration::from_nanos(round(
        span.0.as_nanos(),
    )))
}

fn round_speed(speed: Speed) -> Speed {
    use manypath_tcp::units::Rate;
    if speed.0 == Rate::MAX {
        return speed;
    }
    let bits = speed.0.as_bytes_per_sec().saturating_mul(8);
    Speed(Rate::from_bits_per_sec(round(bits)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gauntlet::plan;

    #[test]
    fn only_what_makes_it_fail_is_left() {
        let seed = (0..)
            .find(|seed| {
                let scenario = plan(*seed);
                let boxes = |index: usize| scenario.links.get(index).map_or(0, |l| l.boxes.len());
                boxes(1) > 1 && scenario.links.len() > 2 && !scenario.events.is_empty()
            })
            .expect("some plan has boxes and events");
        // "Fails" when the second path has any box at all.
        let mut runs = 0;
        let fails = |scenario: &Scenario| {
            runs += 1;
            let mut links = scenario.links.iter();
            links.any(|link| link.name == "path1" && !link.boxes.is_empty())
        };
        let small = shrink(&plan(seed), fails, 2_000);
        let text = small.to_toml().unwrap();
        assert!(runs < 2_000, "it comes to an end:\n{text}");
        assert_eq!(
            small.links.iter().map(|l| l.boxes.len()).sum::<usize>(),
            1,
            "{text}"
        );
        assert!(small.events.is_empty() && small.links.len() <= 2, "{text}");
        assert_eq!(small.apps[0].options, Default::default(), "{text}");
        assert_eq!(
            small.apps[0].upload.0 + small.apps[0].download.0,
            0,
            "{text}"
        );
    }

    #[test]
    fn numbers_get_rounder_and_stay_near() {
        for (number, rounded) in [
            (0, 0),
            (7, 7),
            (14, 10),
            (15, 20),
            (96, 100),
            (1_234, 1_000),
        ] {
            assert_eq!(round(number), rounded, "{number}");
        }
    }
}
