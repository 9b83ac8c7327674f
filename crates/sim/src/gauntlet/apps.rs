//! Random applications: what programs do with a connection.

use super::dice::{Dice, kilobits, millis};
use super::network::Path;
use crate::scenario::units::{Size, Span};
use crate::scenario::{AppSpec, CloseSpec, OptionsSpec};

/// Most bytes in one direction: enough for every path to fill its buffer, few enough for ten thousand seeds.
const MOST: u64 = 1_200_000;

/// Draws an application. `rewritten`: something on the way changes streams.
pub(super) fn draw(dice: &mut Dice, paths: &[Path], rewritten: bool) -> AppSpec {
    // What the first path alone carries in a few seconds, because plain TCP has to carry it on that one.
    let first = &paths[0];
    let most = (first.kilobits * 1_000 / 8 * 3).clamp(20_000, MOST);
    let mut app = blank();
    app.from = Some(first.client);
    match dice.weighted(&[20, 15, 15, 12, 8, 10, 10, 10]) {
        0 => app.download = dice.size(1, most),
        1 => app.upload = dice.size(1, most),
        2 => (app.upload, app.download) = (dice.size(1, most), dice.size(1, most)),
        3 => pauses(dice, &mut app, most),
        4 => half_close(dice, &mut app, most),
        5 => requests(dice, &mut app, most, first.delay),
        6 => slow_reader(dice, &mut app, most, first.kilobits),
        _ => abort(dice, &mut app, most),
    }
    let plain = app.close == CloseSpec::AfterSending;
    // A connection among several says its number in its first bytes, which must arrive as they are.
    if plain && !rewritten && dice.percent(15) {
        app.connections = dice.between(2, 4) as u32;
        app.spacing = dice.millis(1, 500);
    }
    if plain && dice.percent(25) {
        app.close = CloseSpec::AfterBoth;
    }
    app.options = both_ends(dice);
    for end in [&mut app.client_options, &mut app.server_options] {
        // Only checksums tell that somebody rewrites (RFC 8684 section 3.7).
        one_end(dice, end, rewritten);
    }
    if app.close == CloseSpec::Abort {
        // A reset can be lost, and then only a probe shows that the peer is gone.
        app.server_options.keepalive = Some(Span(manypath_tcp::time::Duration::from_secs(4)));
    }
    if paths.len() > 1 && dice.percent(10) {
        app.client_options.path_manager = Some(format!("ndiffports:{}", dice.between(2, 4)));
    }
    app
}

fn blank() -> AppSpec {
    AppSpec {
        name: "app".into(),
        client: "client".into(),
        server: "server".into(),
        to: None,
        from: None,
        port: None,
        start: millis(0),
        connections: 1,
        spacing: millis(0),
        parallel: None,
        upload: Size(0),
        download: Size(0),
        request: None,
        response: None,
        rounds: None,
        burst: None,
        pause: None,
        client_reads: None,
        server_reads: None,
        close: CloseSpec::AfterSending,
        options: OptionsSpec::default(),
        client_options: OptionsSpec::default(),
        server_options: OptionsSpec::default(),
    }
}

fn pauses(dice: &mut Dice, app: &mut AppSpec, most: u64) {
    let burst = dice.log(100, 100_000);
    app.burst = Some(Size(burst));
    app.pause = Some(dice.millis(1, 500));
    app.upload = Size((burst * dice.between(1, 10)).min(most));
    app.download = Size(burst);
}

/// One large request, whose sender closes its half; one large answer on the half-closed connection.
fn half_close(dice: &mut Dice, app: &mut AppSpec, most: u64) {
    app.rounds = Some(1);
    app.request = Some(dice.size(1, most / 2));
    app.response = Some(dice.size(1, most));
}

fn requests(dice: &mut Dice, app: &mut AppSpec, most: u64, delay: u64) {
    let rounds = dice.between(1, 3_000 / (delay + 20));
    app.rounds = Some(rounds);
    app.request = Some(dice.size(1, 2_000));
    app.response = Some(dice.size(1, (most / rounds).max(2)));
}

fn slow_reader(dice: &mut Dice, app: &mut AppSpec, most: u64, path: u64) {
    let rate = dice.between(path / 10, path).max(400);
    // A few seconds of reading.
    let most = most.min(rate * 1_000 / 8 * 4);
    if dice.percent(50) {
        app.client_reads = Some(kilobits(rate));
        app.download = dice.size(most / 8, most);
    } else {
        app.server_reads = Some(kilobits(rate));
        app.upload = dice.size(most / 8, most);
    }
}

fn abort(dice: &mut Dice, app: &mut AppSpec, most: u64) {
    app.close = CloseSpec::Abort;
    if dice.percent(50) {
        app.download = dice.size(1, most);
    } else {
        app.rounds = Some(dice.between(1, 5));
        app.request = Some(dice.size(1, 2_000));
        app.response = Some(dice.size(1, most / 5));
    }
}

fn both_ends(dice: &mut Dice) -> OptionsSpec {
    OptionsSpec {
        congestion: Some(dice.pick(&["cubic", "reno", "lia"]).to_owned()),
        ecn: dice.percent(20).then_some(true),
        long_dsn: dice.percent(40).then_some(false),
        nodelay: dice.percent(50).then_some(true),
        ..OptionsSpec::default()
    }
}

fn one_end(dice: &mut Dice, options: &mut OptionsSpec, rewritten: bool) {
    let unchecked = dice.percent(35);
    options.checksum = (unchecked && !rewritten).then_some(false);
    options.pacing = dice.percent(30).then_some(false);
    if dice.percent(40) {
        let receive = dice.log(30_000, 2_000_000);
        options.recv_buffer = Some(Size(receive));
        options.send_buffer = Some(dice.size(receive, 4_000_000));
    }
}
