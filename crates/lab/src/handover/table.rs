//! The table of handovers.

use super::{End, Report, Row, Stack};

const fn name(stack: Stack) -> &'static str {
    match stack {
        Stack::Manypath => "manypath",
        Stack::Kernel => "kernel",
    }
}

/// One transfer in one line.
pub(super) fn line(row: &Row) -> String {
    let (sender, receiver) = row.cast.ends();
    let (sends, receives) = match row.cast.sender {
        End::Client => ("client", "server"),
        End::Server => ("server", "client"),
    };
    let arm = if row.simulated {
        "simulated"
    } else {
        "packets"
    };
    let head = format!(
        "{arm:<9}  {:<8} {sends}  {:<8} {receives}",
        name(sender),
        name(receiver)
    );
    let Some(m) = row.measured else {
        let why = row.failure.as_deref().unwrap_or("not measured");
        return format!("{head}  {why}");
    };
    let failback = m.failback.map_or_else(
        || format!("> {}", super::WATCH.as_secs()),
        |s| format!("{s:.2}"),
    );
    format!(
        "{head}  {:>8.1} {:>9.2} {failback:>11} {:>8.1}",
        m.before / 1e6,
        m.stall,
        m.after / 1e6
    )
}

impl Report {
    /// The table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let paths: Vec<String> = self
            .paths
            .iter()
            .map(|path| {
                format!(
                    "{} {:.0} Mbit/s {:.0} ms",
                    path.name,
                    path.rate as f64 / 1e6,
                    path.round_trip * 1e3
                )
            })
            .collect();
        let mut text = format!(
            "Linux {}; paths {}; the first is silent for {:.0} s\n\
             stall: longest wait of the reader; failback: until the returned path had carried 0.1 s of its rate\n\n\
             arm        sends            receives          before   stall s  failback s    after Mbit/s\n",
            self.kernel,
            paths.join(", "),
            self.outage
        );
        for row in &self.rows {
            text.push_str(&line(row));
            text.push('\n');
        }
        if let Some(why) = &self.forbidden {
            text.push_str(&format!("\nNo real packets here: {why}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cast, Measured};
    use super::*;

    #[test]
    fn a_line_says_who_sends_and_what_came_out() {
        let mut row = Row {
            cast: Cast {
                client: Stack::Kernel,
                server: Stack::Manypath,
                sender: End::Server,
            },
            simulated: false,
            measured: Some(Measured {
                before: 28.44e6,
                stall: 0.25,
                failback: None,
                after: 9.9e6,
            }),
            failure: None,
        };
        assert_eq!(
            line(&row),
            "packets    manypath server  kernel   client      28.4      0.25        > 20      9.9"
        );
        (row.measured, row.failure) = (None, Some("it ended".into()));
        assert!(line(&row).ends_with("client  it ended"));
    }
}
