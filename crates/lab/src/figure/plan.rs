//! Which runs a figure consists of.

use super::knob::{self, Knobs};
use super::{Across, Arm, Arms, Figure, FigureError, Line, Sample};

/// What somebody wants of a figure.
#[derive(Debug, Clone, Default)]
pub(super) struct Request {
    pub(super) arms: Arms,
    pub(super) quick: bool,
    /// `--set`s.
    pub(super) set: Vec<String>,
    /// `--sweep`.
    pub(super) sweep: Option<String>,
}

impl Request {
    /// What one types to get this figure again.
    fn command(&self, figure: &Figure) -> String {
        let mut words = format!("manypath lab figure {}", figure.id);
        if let Arms::One(arm) = self.arms {
            words += &format!(" --arm {arm}");
        }
        if self.quick {
            words += " --quick";
        }
        for set in &self.set {
            words += &format!(" --set {}", quoted(set));
        }
        if let Some(sweep) = &self.sweep {
            words += &format!(" --sweep {}", quoted(sweep));
        }
        words
    }
}

/// As a shell takes it for one word: names, numbers and units need quotes for the spaces between them only.
fn quoted(word: &str) -> String {
    match word.contains(char::is_whitespace) {
        true => format!("'{word}'"),
        false => word.to_owned(),
    }
}

/// The runs of a figure, and what its horizontal axis shows.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) figure: &'static Figure,
    /// What makes it again.
    pub(super) command: String,
    /// The label of the horizontal axis.
    pub(super) across: String,
    pub(super) logarithmic: bool,
    /// Axis and network are the figure's own, about which its statements are.
    pub(super) own: bool,
    /// The parameters; the one on the axis as it would be elsewhere.
    pub(super) knobs: Knobs,
    /// Those that are the same for all runs, in words.
    pub(super) parameters: String,
    pub(super) runs: Vec<Planned>,
}

/// One run.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) arm: Arm,
    pub(super) line: Line,
    pub(super) knobs: Knobs,
    /// Its place, in the unit that is drawn.
    pub(super) x: f64,
}

impl Planned {
    /// What it is known by among the finished runs: everything that its result depends on. On which axis it lies is no part of it.
    pub(super) fn key(&self) -> String {
        format!("{} | {} | {}", self.arm, self.line.name, self.knobs)
    }

    /// The same for people, with the parameters as `--set` takes them.
    pub(super) fn words(&self) -> String {
        let knobs = self.knobs.written(None);
        format!("{} | {} | {knobs}", self.arm, self.line.name)
    }
}

impl Plan {
    /// What a finished run gave, at its place on this axis: it may have been made for another one.
    pub(super) fn placed(&self, run: &Planned, mut samples: Vec<Sample>) -> Vec<Sample> {
        match self.figure.x {
            Across::Knob { .. } => samples.iter_mut().for_each(|sample| sample.at[0] = run.x),
            Across::Measured(_) => {}
        }
        samples
    }
}

/// The places on the horizontal axis: their label, and each with the parameters to run with.
struct Places {
    label: String,
    logarithmic: bool,
    own: bool,
    /// The parameter on it.
    axis: Option<&'static str>,
    all: Vec<(f64, Knobs)>,
}

/// The runs of a figure.
pub(super) fn of(figure: &'static Figure, request: &Request) -> Result<Plan, FigureError> {
    if let Arms::One(arm) = request.arms {
        let known = figure.arms();
        if !known.contains(&arm) {
            let names: Vec<&str> = known.iter().map(|arm| arm.name()).collect();
            return Err(FigureError::Arm {
                id: figure.id,
                arm,
                known: names.join(", "),
            });
        }
    }
    let mut knobs = Knobs::of_speed(figure.knobs, request.quick);
    for (n, words) in request.set.iter().enumerate() {
        knobs.set(figure.id, words)?;
        let (name, _) = words.split_once('=').unwrap_or((words, ""));
        if request.set[..n].iter().any(|before| sets(before, name)) {
            let name = name.to_owned();
            return Err(knob::KnobError::Twice { name }.into());
        }
    }
    let places = places(figure, request, &knobs)?;
    let mut runs = Vec::new();
    if let Some(name) = places
        .axis
        .filter(|name| request.set.iter().any(|words| sets(words, name)))
    {
        return Err(knob::KnobError::Axis { name }.into());
    }
    let measures = |words: &str| {
        figure
            .knobs
            .iter()
            .any(|k| k.measures && sets(words, k.name))
    };
    let own_network = request.set.iter().all(|words| measures(words));
    for (x, knobs) in &places.all {
        for line in figure.lines {
            for &arm in line.arms.iter().filter(|arm| request.arms.has(**arm)) {
                runs.push(Planned {
                    arm,
                    line: *line,
                    knobs: knobs.clone(),
                    x: *x,
                });
            }
        }
    }
    Ok(Plan {
        figure,
        command: request.command(figure),
        across: places.label,
        logarithmic: places.logarithmic,
        own: places.own && own_network,
        parameters: knobs.written(places.axis),
        knobs,
        runs,
    })
}

/// `NAME=VALUE` with that name.
fn sets(words: &str, name: &str) -> bool {
    words.split_once('=').is_some_and(|(set, _)| set == name)
}

fn places(
    figure: &'static Figure,
    request: &Request,
    knobs: &Knobs,
) -> Result<Places, FigureError> {
    let (words, logarithmic) = match (figure.x, &request.sweep) {
        (Across::Measured(axis), None) => {
            return Ok(Places {
                label: axis.label.to_owned(),
                logarithmic: axis.logarithmic,
                own: true,
                axis: None,
                all: vec![(0.0, knobs.clone())],
            });
        }
        (Across::Measured(_), Some(_)) => {
            return Err(knob::KnobError::Distribution(figure.id).into());
        }
        (Across::Knob { .. }, Some(words)) => (words.clone(), None),
        (
            Across::Knob {
                name,
                quick,
                full,
                logarithmic,
            },
            None,
        ) => {
            let values = if request.quick { quick } else { full };
            (format!("{name}={values}"), Some(logarithmic))
        }
    };
    let (knob, values) = knob::sweep(figure.id, figure.knobs, &words)?;
    let spread = match (values.first(), values.last()) {
        (Some(first), Some(last)) if *first > 0.0 => last / first,
        _ => 1.0,
    };
    let at = |value: f64| {
        let mut here = knobs.clone();
        here.put(knob.name, value);
        (value / knob.unit.scale(), here)
    };
    Ok(Places {
        label: knob.label(),
        logarithmic: logarithmic.unwrap_or(spread >= 30.0),
        own: matches!(figure.x, Across::Knob { name, .. } if name == knob.name),
        axis: Some(knob.name),
        all: values.into_iter().map(at).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;

    fn figure() -> &'static Figure {
        find("nsdi-4a").expect("it is there")
    }

    #[test]
    fn a_sweep_takes_the_place_of_the_axis() {
        let request = Request {
            arms: Arms::One(Arm::Sim),
            set: vec!["buffer=300 k".to_owned()],
            sweep: Some("wifi.rate=1mbit,20mbit".to_owned()),
            ..Request::default()
        };
        let plan = of(figure(), &request).expect("both are parameters of it");
        let lines = figure().lines.iter();
        let simulated = lines.filter(|line| line.arms.contains(&Arm::Sim)).count();
        assert_eq!(plan.runs.len(), 2 * simulated);
        assert!(plan.across.contains("Mbit/s"), "{}", plan.across);
        assert!(!plan.own, "the paper says nothing about other rates");
        assert_eq!(
            plan.command,
            "manypath lab figure nsdi-4a --arm sim --set 'buffer=300 k' --sweep wifi.rate=1mbit,20mbit"
        );
        let set = |words: &str| {
            let set = vec![words.to_owned()];
            of(
                figure(),
                &Request {
                    set,
                    ..Request::default()
                },
            )
        };
        assert!(set("time=5s").expect("it has a length").own);
        let other = set("wifi.rate=20mbit").expect("it has a rate");
        assert!(!other.own, "nor about this");
        let error = set("buffer=300k").expect_err("it lies on the axis");
        assert!(error.to_string().contains("--sweep buffer="), "{error}");
        let twice = Request {
            set: ["time=1s", "wifi.rate=20mbit", "time=2s"]
                .map(str::to_owned)
                .into(),
            ..Request::default()
        };
        let error = of(figure(), &twice).expect_err("which of them?");
        assert!(
            error.to_string().contains("--set time=VALUE once"),
            "{error}"
        );
        let own = Request {
            sweep: Some("buffer=50k..1m".to_owned()),
            ..Request::default()
        };
        assert!(of(figure(), &own).expect("its own axis").own);
        let last = plan.runs.last().expect("there are some");
        assert_eq!((last.x, last.knobs.whole("buffer")), (20.0, 300_000));
        assert!(last.key().contains("wifi.rate=20000000"));
        assert!(plan.parameters.contains("buffer=300k wifi.rtt=20ms"));
        assert!(
            !plan.parameters.contains("wifi.rate"),
            "it is no single one"
        );
        let keys: std::collections::BTreeSet<String> = plan.runs.iter().map(Planned::key).collect();
        assert_eq!(
            keys.len(),
            plan.runs.len(),
            "each run has a name of its own"
        );
    }

    #[test]
    fn statements_are_about_a_figure_however_long_it_is_measured() {
        let own = |id: &str, words: &str| {
            let request = Request {
                set: vec![words.to_owned()],
                ..Request::default()
            };
            of(find(id).expect(id), &request).expect(words).own
        };
        for (id, words) in [
            ("smapp-2c", "real-runs=20"),
            ("smapp-2b", "blocks=50"),
            ("smapp-2b", "seconds=50"),
            ("nsdi-10", "attempts=100"),
            ("emulator", "probes=1k"),
            ("net11-4", "warm-up=1s"),
        ] {
            assert!(own(id, words), "{id} {words}");
        }
        // How long these last decides what happens in them.
        for (id, words) in [
            ("smapp-2a-gaps", "time=20s"),
            ("smapp-2a", "time=20s"),
            ("pathfinder-4", "time=1s"),
        ] {
            assert!(!own(id, words), "{id} {words}");
        }
    }

    #[test]
    fn an_arm_that_a_figure_lacks_is_told() {
        let request = Request {
            arms: Arms::One(Arm::Process),
            ..Request::default()
        };
        let error = of(figure(), &request).expect_err("nothing to measure in a process");
        assert!(error.to_string().contains("it has sim"), "{error}");
    }
}
