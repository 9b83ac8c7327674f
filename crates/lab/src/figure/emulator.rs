//! How faithful the emulated paths are that real packets go over: what was measured over what was asked for.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use manypath_sim::loss::Loss;
use manypath_sim::rng::Chance;
use rustix::net::sockopt;

use super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Line, Load, Paper, Run, Sample, Seen, Unit,
};
use crate::emulator::Way;
use crate::testbed::{SERVER, TestPath, Testbed};

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    id: "emulator",
    source: "this laboratory",
    title: "What emulated paths do over what they are asked to do",
    paper: Paper {
        says: "Rate, delay and loss should be within 2 % of what was asked for, up to 100 Mbit/s a path.",
        lines: &[],
    },
    knobs: &[
        Knob::new("rate", Unit::Rate, "10mbit", "rate"),
        Knob::new("delay", Unit::Time, "20ms", "delay one way"),
        Knob::new("loss", Unit::Percent, "20%", "loss"),
        Knob::new("time", Unit::Time, "5s", "length of a measurement")
            .quick("2s")
            .measures(),
        Knob::new("probes", Unit::Count, "100k", "packets that count losses")
            .quick("40k")
            .measures(),
    ],
    x: Across::Knob {
        name: "rate",
        quick: "2mbit,10mbit,100mbit",
        full: "1mbit,2mbit,5mbit,10mbit,20mbit,50mbit,100mbit",
        logarithmic: true,
    },
    y: Axis::linear("measured over asked for"),
    lines: &[line(RATE), line(DELAY), line(LOSS)],
    load: Load::Heavy,
    run,
    verdict,
};

const RATE: &str = "rate";
const DELAY: &str = "delay";
const LOSS: &str = "loss";

const fn line(name: &'static str) -> Line {
    Line {
        name,
        arms: &[Arm::Real],
        does: Does::Own(name),
    }
}

const PORT: u16 = 5004;
/// Bytes of IPv4 and UDP headers.
const HEADERS: usize = 28;
/// Payload of packets that fill the path, and of those that only pass it.
const LARGE: usize = 1_400;
const SMALL: usize = 32;
/// Probes of the delay and the time between two.
const DELAY_PROBES: usize = 200;
const DELAY_EVERY: Duration = Duration::from_millis(5);
/// Probes of the loss that leave together, and how much of the path they take at most.
const TRAIN: usize = 10;
const MOST_PACKETS: f64 = 20_000.0;
/// How long after the last packet was sent the receiver goes on waiting.
const TAIL: Duration = Duration::from_millis(500);

/// Bytes that may wait for the receiver.
const ROOM: usize = 64 << 20;
/// Packets that an emulator carries beside those of a measurement: the end of it, and what kernels say to each other.
const SPARE: u64 = 200;
/// Packets between two looks at the rate.
const WINDOW: usize = 50;

/// What arrived: when, and which of the packets.
type Arrivals = Vec<(Instant, u64)>;

fn run(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let knobs = run.knobs;
    let rate = knobs.get("rate");
    let delay = Duration::from_secs_f64(knobs.get("delay"));
    let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
    let round_trip = manypath_tcp::time::Duration::from_nanos(nanos.saturating_mul(2));
    let buffer = manypath_tcp::time::Duration::from_millis(200);
    let mut path = TestPath::symmetric("p0", rate as u64, round_trip, buffer);
    let chance = knobs.get("loss") / 100.0;
    if run.line.name == LOSS {
        something(chance)?;
        path.up.loss = vec![Loss::Bernoulli(Chance::new(chance))];
    }
    let bed = Testbed::new("emulator", &[path], "cubic", 1).map_err(|error| error.to_string())?;
    let measured = match run.line.name {
        RATE => of_rate(&bed, rate, knobs.get("time"))?,
        DELAY => of_delay(&bed, rate, delay)?,
        _ => of_loss(&bed, rate, chance, knobs.whole("probes"))?,
    };
    let missed: u64 = bed
        .emulator()
        .counters()
        .iter()
        .map(|path| path.missed)
        .sum();
    if missed > 0 {
        return Err(format!(
            "the emulator did not keep up: {missed} frames missed"
        ));
    }
    Ok(run.point(measured))
}

/// What is measured over nothing says nothing.
fn something(loss: f64) -> Result<(), String> {
    match loss > 0.0 {
        true => Ok(()),
        false => Err("no loss was asked for that could be measured".to_owned()),
    }
}

/// Sends packets of so much payload from the client, each at its time after the beginning, and gives when each was sent
/// and what arrived at the server.
fn send(
    bed: &Testbed,
    payload: usize,
    times: impl Iterator<Item = Duration> + Send + 'static,
) -> Result<(Vec<Instant>, Arrivals), String> {
    let failed = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
    let to = SocketAddr::from((SERVER, PORT));
    let receiver = bed
        .server
        .run(move || UdpSocket::bind(to))
        .map_err(failed("receive"))?;
    // Small packets fill the usual buffer in a moment in which somebody else has the processor. Without the right to more
    // it stays as it is.
    let _ = sockopt::set_socket_recv_buffer_size_force(&receiver, ROOM);
    receiver
        .set_read_timeout(Some(TAIL))
        .map_err(failed("receive"))?;
    let receiving = bed
        .server
        .thread("probe-receiver", move || {
            let mut arrivals = Arrivals::new();
            let mut packet = [0; 2_048];
            loop {
                match receiver.recv(&mut packet) {
                    Ok(len) if len >= 8 => {
                        let number = packet[..8].try_into().map_or(0, u64::from_be_bytes);
                        if number == u64::MAX {
                            return arrivals;
                        }
                        arrivals.push((Instant::now(), number));
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock && !arrivals.is_empty() => {
                        return arrivals;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Ok(_) | Err(_) => return arrivals,
                }
            }
        })
        .map_err(|error| error.to_string())?;
    let sent = bed
        .client
        .run(move || -> std::io::Result<Vec<Instant>> {
            let socket = UdpSocket::bind((Testbed::client_address(0), 0))?;
            let mut sent = Vec::new();
            let mut packet = vec![0; payload];
            let begun = Instant::now();
            for (number, at) in (0_u64..).zip(times) {
                let due = begun + at;
                let left = due.saturating_duration_since(Instant::now());
                if !left.is_zero() {
                    std::thread::sleep(left);
                }
                packet[..8].copy_from_slice(&number.to_be_bytes());
                sent.push(Instant::now());
                socket.send_to(&packet, to)?;
            }
            // The path is idle when these come: one of them says that it is over.
            std::thread::sleep(TAIL);
            packet[..8].copy_from_slice(&u64::MAX.to_be_bytes());
            for _ in 0..50 {
                socket.send_to(&packet, to)?;
            }
            Ok(sent)
        })
        .map_err(failed("send"))?;
    let arrivals = receiving
        .join()
        .map_err(|_| "the receiver panicked".to_owned())?;
    Ok((sent, arrivals))
}

/// More than the path takes is offered; what comes out says how fast it is.
fn of_rate(bed: &Testbed, rate: f64, seconds: f64) -> Result<f64, String> {
    let bits = ((LARGE + HEADERS) * 8) as f64;
    let each = bits / rate / 1.2;
    let count = (seconds / each) as u64;
    let times = (0..count).map(move |n| Duration::from_secs_f64(n as f64 * each));
    let (_, arrivals) = send(bed, LARGE, times)?;
    // The median of many looks: in some of them the sender or the receiver waited for a processor.
    let ends = arrivals.iter().zip(arrivals.iter().skip(WINDOW));
    let rates = ends.map(|((from, _), (to, _))| {
        let time = (*to - *from).as_secs_f64();
        WINDOW as f64 * bits / time.max(1e-9) / rate
    });
    median(rates.collect())
}

fn median(mut values: Vec<f64>) -> Result<f64, String> {
    values.sort_by(f64::total_cmp);
    let middle = values.get(values.len() / 2);
    middle.copied().ok_or_else(|| "nothing arrived".to_owned())
}

/// Single packets over the empty path; the median says how long it is.
fn of_delay(bed: &Testbed, rate: f64, delay: Duration) -> Result<f64, String> {
    let times = (0..DELAY_PROBES).map(|n| DELAY_EVERY * u32::try_from(n).unwrap_or(u32::MAX));
    let (sent, arrivals) = send(bed, SMALL, times)?;
    let own = ((SMALL + HEADERS) * 8) as f64 / rate;
    let took = arrivals.iter().filter_map(|(at, number)| {
        let sent = sent.get(usize::try_from(*number).ok()?)?;
        Some((*at - *sent).as_secs_f64() - own)
    });
    Ok(median(took.collect())? / delay.as_secs_f64())
}

/// Many packets, of which so many do not arrive.
fn of_loss(bed: &Testbed, rate: f64, chance: f64, probes: u64) -> Result<f64, String> {
    let most = rate / ((SMALL + HEADERS) * 8) as f64 * 0.8;
    let each = TRAIN as f64 / most.min(MOST_PACKETS);
    let times = (0..probes).map(move |n| Duration::from_secs_f64((n / TRAIN as u64) as f64 * each));
    let (sent, arrivals) = send(bed, SMALL, times)?;
    let carried = bed.emulator().counters()[0].line(Way::Out).delivered;
    if carried > arrivals.len() as u64 + SPARE {
        let arrived = arrivals.len();
        return Err(format!(
            "the receiver did not keep up: {arrived} of {carried} packets"
        ));
    }
    let lost = 1.0 - arrivals.len() as f64 / sent.len().max(1) as f64;
    Ok(lost / chance)
}

fn verdict(seen: &Seen<'_>) -> Vec<Finding> {
    let of = |name: &str| {
        let line = seen.line(Arm::Real, name)?;
        let off = line.points.iter().map(|point| (point[1] - 1.0).abs());
        let most = off.fold(0.0, f64::max);
        let statement = format!("{name} within 2 % of what was asked for");
        let seen = format!("off by {:.2} % at most", most * 100.0);
        Some(Finding::new(Arm::Real, &statement, seen, most <= 0.02))
    };
    [RATE, DELAY, LOSS].into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Series;
    use super::*;

    #[test]
    fn nothing_is_measured_over_nothing() {
        assert!(something(0.2).is_ok() && something(0.0).is_err());
        let mut knobs = super::super::Knobs::of(FIGURE.knobs);
        assert!(knobs.set("emulator", "delay=0").is_err());
        assert!(knobs.set("emulator", "delay=1ms").is_ok());
    }

    #[test]
    fn two_in_a_hundred_are_the_bound() {
        let series = |name: &str, values: [f64; 2]| {
            Series::of(Arm::Real, name, &[[1.0, values[0]], [100.0, values[1]]])
        };
        let all = [
            series(RATE, [1.0, 0.995]),
            series(DELAY, [1.019, 1.0]),
            series(LOSS, [1.0, 0.97]),
        ];
        let found = verdict(&Seen::of(&all));
        let held: Vec<bool> = found.iter().map(|f| f.holds).collect();
        assert_eq!(held, [true, true, false]);
        assert!(found[2].seen.contains("3.00 %"), "{}", found[2].seen);
    }
}
