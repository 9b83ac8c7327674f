//! Middleboxes of the simulator on real packets, the kernel and ours in either role.

use std::time::Duration;

use manypath_lab::boxes::{self, Arm, Options, Outcome, Place, Row};
use manypath_lab::demo::Show;
use manypath_tests::net::Net;
use manypath_tests::program::binary;

fn table(names: &[&str]) -> Option<Vec<Row>> {
    // Only for the right to run, and to be where namespaces are permitted.
    let _net = Net::new(1)?;
    let mut options = Options {
        // Not much more than what goes by before options vanish: a kernel client then sends no more than the window of our
        // last Data ACK that it got, which with twice as much was at times not enough.
        bytes: 400_000,
        limit: Duration::from_secs(8),
        program: Some(binary().to_owned()),
        show: Show::Nothing,
        ..Options::new(false)
    };
    let wanted = |case: &boxes::Case| names.contains(&case.name.as_str());
    options.cases.retain(wanted);
    assert_eq!(options.cases.len(), names.len());
    Some(boxes::run(&options).expect("namespaces are permitted").rows)
}

/// What came of the connections in which ours took part.
fn ours(row: &Row) -> Vec<(Arm, &Outcome)> {
    // Linux, as the sender of data that a gateway rewrites, answers our MP_FAIL at times without the infinite mapping that
    // belongs to it, and then stops.
    let stops = |arm| row.name == "rewrite" && arm == Arm::OursServes;
    let cells = row
        .cells
        .iter()
        .filter(|cell| cell.arm.is_ours() && !stops(cell.arm));
    cells.map(|cell| (cell.arm, &cell.outcome)).collect()
}

#[test]
fn boxes_on_real_packets_come_out_as_in_the_simulator() {
    let Some(rows) = table(&["strip-syn", "strip-after-bytes", "coalesce", "rewrite"]) else {
        return;
    };
    assert_eq!(rows.len(), 12);
    // With two paths, too little goes over each for this box to begin.
    let meets = |row: &&Row| row.name != "strip-after-bytes" || row.place == Place::Only;
    for row in rows.iter().filter(meets) {
        let expected: &[Outcome] = match (row.name.as_str(), row.place) {
            ("coalesce", _) => &[Outcome::Intact],
            // What joins through these does not last; what begins there goes on as TCP.
            (_, Place::Second) => &[Outcome::SubflowLost],
            ("strip-syn", _) => &[Outcome::FellBack],
            // A subflow may have joined before the gateway finds its word.
            (_, Place::First) => &[Outcome::FellBack, Outcome::SubflowLost],
            (_, Place::Only) => &[Outcome::FellBack],
        };
        let ours = ours(row);
        assert!(ours.len() >= 2);
        assert!(
            ours.iter().all(|(_, outcome)| expected.contains(outcome)),
            "{}, {:?}: {ours:?}",
            row.name,
            row.place
        );
        // The control: TCP passes all of them.
        let tcp = row.cell(Arm::Tcp);
        assert!(
            tcp.is_none_or(|cell| cell.outcome == Outcome::Intact),
            "{tcp:?}"
        );
        let met = row.cells.iter().filter(|cell| cell.arm.is_ours());
        assert!(
            met.into_iter().all(|cell| cell.touched > 0),
            "the box was met: {row:?}"
        );
        if row.name == "rewrite" && row.place == Place::Only {
            // Both applications see what they would see over TCP.
            assert!(
                row.cells
                    .iter()
                    .all(|cell| !cell.outcome.delivered() || cell.rewritten)
            );
        }
    }
}
