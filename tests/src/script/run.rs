//! Plays a script against one arm.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use manypath_sim::attack::peer::Shape as Raw;
use manypath_wire::ids::{FourTuple, Key, Mss, Nonce};
use manypath_wire::segment::{Segment, Verify};
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::Flags;
use manypath_wire::tcp::mptcp::{CapableKeys, Join, MptcpOption};
use manypath_wire::tcp::options::{FastOpen, Timestamps};

use super::observed::Observed;
use super::option::{self, End, Material, Voice};
use super::{
    Action, Arm, Either, PORT, Progress, Script, Shape, Step, What, device_address, dialled,
    peer_address,
};

/// What should not take long takes no longer than this.
const SOON: Duration = Duration::from_secs(1);
/// The pause between two looks at an application that waits.
const LOOK: Duration = Duration::from_millis(2);
/// The script's Fast Open cookie.
const COOKIE: [u8; 8] = *b"biscuits";

/// How a script went on an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As the script wants it.
    AsWanted,
    /// As the script permits this arm to differ, with the reasons.
    Differs(Vec<String>),
    /// Otherwise.
    Failed(String),
}

/// Plays a script. `make` sets the arm up: a script that permits differences may be played more than once.
///
/// # Errors
/// When the arm cannot be set up.
pub fn play<A: Arm>(
    script: &Script,
    mut make: impl FnMut() -> Result<A, String>,
) -> Result<Outcome, String> {
    // Which of the places where arms may differ are played as this arm does it; each failure switches one.
    let mut instead: Vec<usize> = Vec::new();
    let mut first = None;
    loop {
        let mut arm = make()?;
        let mut player = Player::new(&mut arm, &instead);
        let Err(failure) = player.run(&script.steps) else {
            return Ok(match player.reasons {
                reasons if reasons.is_empty() => Outcome::AsWanted,
                reasons => Outcome::Differs(reasons),
            });
        };
        let place = player.last_place;
        let told = first.get_or_insert_with(|| player.tell(&failure)).clone();
        match place {
            Some(line) if !instead.contains(&line) => instead.push(line),
            Some(_) => return Ok(Outcome::Failed(told + &player.tell(&failure))),
            None => return Ok(Outcome::Failed(told)),
        }
    }
}

/// What went wrong where.
struct Failure {
    line: usize,
    why: String,
}

/// The keys and numbers of one connection.
struct Connection {
    device: Option<Material>,
    peer: Material,
    cookie: Option<FastOpen>,
}

/// The script's end of one subflow.
struct Flow {
    /// As the script sees it.
    tuple: FourTuple,
    connection: usize,
    /// The script's initial and next number.
    isn: SeqNum,
    next: SeqNum,
    /// The device's.
    irs: Option<SeqNum>,
    expected: SeqNum,
    /// Numbers of the device that were seen, relative.
    seen: i64,
    device_nonce: Option<Nonce>,
    peer_nonce: Nonce,
    /// Everything that the device sent, and what of it the script has not looked at.
    history: Vec<Observed>,
    queue: VecDeque<Observed>,
}

impl Flow {
    fn new(tuple: FourTuple, connection: usize, count: usize) -> Self {
        // Close to where numbers wrap, and another one for each flow.
        let isn = SeqNum::new(0xffff_ff00_u32.wrapping_add(count as u32 * 0x1000));
        Self {
            tuple,
            connection,
            isn,
            next: isn,
            irs: None,
            expected: SeqNum::new(0),
            seen: -1,
            device_nonce: None,
            peer_nonce: Nonce(0x0102_0304 + count as u32),
            history: Vec::new(),
            queue: VecDeque::new(),
        }
    }
}

struct Player<'a> {
    arm: &'a mut dyn Arm,
    connections: Vec<Connection>,
    flows: Vec<Flow>,
    /// Which flow a script's number names.
    names: BTreeMap<usize, usize>,
    instead: &'a [usize],
    /// The line of the last `either` that this arm may play differently.
    last_place: Option<usize>,
    reasons: Vec<String>,
    log: Vec<String>,
}

impl<'a> Player<'a> {
    fn new(arm: &'a mut dyn Arm, instead: &'a [usize]) -> Self {
        let mut player = Self {
            arm,
            connections: Vec::new(),
            flows: Vec::new(),
            names: BTreeMap::new(),
            instead,
            last_place: None,
            reasons: Vec::new(),
            log: Vec::new(),
        };
        player.connect();
        player
    }

    fn connect(&mut self) {
        let mut key = [0xdb, 0xb7, 0x60, 0xdb, 0x1d, 0x55, 0xe0, 0x7b];
        key[7] ^= self.connections.len() as u8;
        let cookie = self.connections.last().and_then(|c| c.cookie);
        self.connections.push(Connection {
            device: None,
            peer: Material::derive(Key(key)),
            cookie,
        });
    }

    fn note(&mut self, text: &str) {
        let now = self.arm.now();
        self.log
            .push(format!("  {:>9.3} ms {text}", now.as_secs_f64() * 1e3));
    }

    fn tell(&self, failure: &Failure) -> String {
        format!(
            "line {}: {}\n{}\n",
            failure.line,
            failure.why,
            self.log.join("\n")
        )
    }

    fn run(&mut self, steps: &[Step]) -> Result<(), Failure> {
        for step in steps {
            if let What::Either(either) = &step.what {
                self.choose(step.line, either)?;
                continue;
            }
            self.step(step).map_err(|why| Failure {
                line: step.line,
                why,
            })?;
        }
        Ok(())
    }

    fn choose(&mut self, line: usize, either: &Either) -> Result<(), Failure> {
        if self.arm.name() != either.arm {
            return self.run(&either.wanted);
        }
        self.last_place = Some(line);
        if self.instead.contains(&line) {
            self.reasons.push(either.reason.clone());
            self.run(&either.instead)
        } else {
            self.run(&either.wanted)
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        self.note(&step.text);
        match &step.what {
            What::Flow { from, to } => self.dial(step.flow, *from, *to),
            What::Connection => {
                self.connect();
                self.names.clear();
                self.arm.next_connection();
                Ok(())
            }
            What::App(action) => self.act(action),
            What::Inject(shape) => self.inject(step.flow, shape),
            What::Expect(shape, within) => {
                self.expect(step.flow, shape, within.unwrap_or(SOON), false)
            }
            What::Find(shape, within) => {
                self.expect(step.flow, shape, within.unwrap_or(SOON), true)
            }
            What::Never(shape, within) => self.never(Some((step.flow, shape)), *within),
            What::Nothing(within) => self.never(None, *within),
            What::Either(_) => Ok(()),
        }
    }

    fn act(&mut self, action: &Action) -> Result<(), String> {
        let until = self.arm.now() + self.arm.patience(SOON);
        loop {
            match self.arm.act(action) {
                Progress::Done => return self.drain(),
                Progress::Failed(why) => return Err(why),
                Progress::NotYet if self.arm.now() >= until => {
                    return Err("the application waits in vain".to_owned());
                }
                Progress::NotYet => {}
            }
            let look = (self.arm.now() + LOOK).min(until);
            while let Some(packet) = self.arm.receive(look) {
                self.arrive(&packet)?;
            }
        }
    }

    /// The script opens a subflow.
    fn dial(&mut self, name: usize, from: IpAddr, device: SocketAddr) -> Result<(), String> {
        let count = self.flows.len();
        let own = dialled(from, count);
        let connection = self.connections.len() - 1;
        self.names.insert(name, count);
        self.flows
            .push(Flow::new(FourTuple::new(own, device), connection, count));
        Ok(())
    }

    fn end_of(&self, flow: &Flow, device: bool) -> End {
        let connection = &self.connections[flow.connection];
        if device {
            End {
                key: connection.device,
                nonce: flow.device_nonce,
            }
        } else {
            End {
                key: Some(connection.peer),
                nonce: Some(flow.peer_nonce),
            }
        }
    }

    fn inject(&mut self, name: usize, shape: &Shape) -> Result<(), String> {
        if !self.names.contains_key(&name) {
            self.dial(
                name,
                peer_address(0),
                SocketAddr::new(device_address(0), PORT),
            )?;
        }
        let at = self.names[&name];
        let packet = self.write(at, shape)?;
        self.arm.inject(&packet)?;
        self.drain()
    }

    /// Reads what the device has sent already, before the script goes on.
    fn drain(&mut self) -> Result<(), String> {
        let now = self.arm.now();
        while let Some(packet) = self.arm.receive(now) {
            self.arrive(&packet)?;
        }
        Ok(())
    }

    /// The packet that a shape stands for. Moves the flow's next number unless the shape has its own.
    fn write(&mut self, at: usize, shape: &Shape) -> Result<Vec<u8>, String> {
        let flow = &self.flows[at];
        let payload = shape.payload.clone().unwrap_or_default();
        let flags = flags(&shape.flags)?;
        let relative = |base: SeqNum, n: i64| base + n as u32;
        let seq = shape
            .seq
            .map_or(flow.next, |(start, _)| relative(flow.isn, start));
        let irs = flow.irs.unwrap_or(SeqNum::new(0));
        let ack = match shape.ack {
            Some(n) => relative(irs, n),
            None => flow.expected,
        };
        let ack = if flags.ack() { ack } else { SeqNum::new(0) };
        let mut raw = Raw::new(flags, seq, ack);
        raw.window = shape.window.unwrap_or(u16::MAX);
        let voice = Voice {
            from: self.end_of(flow, false),
            to: self.end_of(flow, true),
            payload: &payload,
        };
        if flags.syn() {
            raw.options.mss = Some(Mss(1460));
        }
        for text in shape.options.iter().flatten() {
            self.add_option(&mut raw, text, &voice)?;
        }
        let packet = raw.packet(&flow.tuple, &payload);
        if shape.seq.is_none() && !flags.rst() {
            let space = u32::from(flags.syn()) + u32::from(flags.fin());
            // Payloads of scripts fit into a packet.
            self.flows[at].next = seq + (payload.len() as u32 + space);
        }
        Ok(packet)
    }

    fn add_option(&self, raw: &mut Raw, text: &str, voice: &Voice<'_>) -> Result<(), String> {
        if let Some(rest) = text.strip_prefix("mptcp ") {
            let option = option::read(rest, voice).map_err(|why| format!("{text}: {why}"))?;
            return match raw.options.mptcp.push(option) {
                true => Ok(()),
                false => Err("too many options".to_owned()),
            };
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str| {
            word.parse::<u32>()
                .map_err(|_| format!("no number: {word}"))
        };
        match words[..] {
            ["mss", n] => raw.options.mss = Some(Mss(number(n)? as u16)),
            ["wscale", n] => raw.options.window_scale = Some(number(n)? as u8),
            ["sackOK"] => raw.options.sack_permitted = true,
            ["TS", "val", val, "ecr", ecr] => {
                let (val, ecr) = (number(val)?, number(ecr)?);
                raw.options.timestamps = Some(Timestamps { val, ecr });
            }
            ["tfo", "cookiereq"] => raw.options.fastopen = Some(FastOpen::REQUEST),
            ["tfo", "cookie", which] => {
                let known = self.connections.last().and_then(|c| c.cookie);
                raw.options.fastopen = match which {
                    "good" => Some(known.or(FastOpen::new(&COOKIE)).ok_or("no cookie")?),
                    _ => FastOpen::new(b"no such!"),
                };
            }
            _ => return Err(format!("no option '{text}'")),
        }
        Ok(())
    }

    /// Takes a packet of the device into account.
    fn arrive(&mut self, packet: &[u8]) -> Result<(), String> {
        let Ok(segment) = Segment::parse(packet, Verify::Full) else {
            self.note(&format!(
                "    > {}",
                manypath_wire::describe::packet(packet)
            ));
            return Ok(());
        };
        let found = self
            .flows
            .iter()
            .rposition(|flow| flow.tuple == segment.tuple);
        let syn = segment.header.flags.syn() && !segment.header.flags.ack();
        let at = match found {
            Some(at) => at,
            None if syn => {
                let (count, connection) = (self.flows.len(), self.connections.len() - 1);
                self.flows.push(Flow::new(segment.tuple, connection, count));
                count
            }
            None => {
                let text = manypath_wire::describe::segment(&segment);
                return Err(format!("a packet that belongs to no flow: {text}"));
            }
        };
        self.learn(at, &segment);
        let flow = &self.flows[at];
        let voice = Voice {
            from: self.end_of(flow, true),
            to: self.end_of(flow, false),
            payload: segment.payload,
        };
        let base = (flow.irs.unwrap_or(segment.header.seq), flow.isn);
        let known = self.connections[flow.connection]
            .cookie
            .or(FastOpen::new(&COOKIE));
        let mut seen = Observed::of(&segment, &voice, base, known);
        let flow = &mut self.flows[at];
        let stale = seen.space() > 0 && seen.seq <= flow.seen;
        seen.repeats = stale || flow.history.contains(&seen);
        flow.seen = flow.seen.max(seen.seq + seen.space() - 1);
        if segment.header.seq == flow.expected {
            flow.expected += seen.space() as u32;
        }
        let name = self.names.iter().find(|(_, flow)| **flow == at);
        let name = name.map_or("?".to_owned(), |(name, _)| name.to_string());
        self.note(&format!("  device {name}> {seen}"));
        let flow = &mut self.flows[at];
        flow.history.push(Observed {
            repeats: false,
            ..seen.clone()
        });
        flow.queue.push_back(seen);
        Ok(())
    }

    /// Keys, nonces, cookies and initial numbers that a segment tells.
    fn learn(&mut self, at: usize, segment: &Segment<'_>) {
        let flow = &mut self.flows[at];
        let connection = &mut self.connections[flow.connection];
        if segment.header.flags.syn() && flow.irs != Some(segment.header.seq) {
            flow.irs = Some(segment.header.seq);
            flow.expected = segment.header.seq;
        }
        for option in segment.options.mptcp.iter() {
            match option {
                MptcpOption::Capable(capable) => match capable.keys {
                    CapableKeys::Syn => {}
                    CapableKeys::SynAck { sender }
                    | CapableKeys::Ack { sender, .. }
                    | CapableKeys::Data { sender, .. } => {
                        connection
                            .device
                            .get_or_insert_with(|| Material::derive(sender));
                    }
                },
                MptcpOption::Join(Join::Syn { nonce, .. } | Join::SynAck { nonce, .. }) => {
                    flow.device_nonce = Some(*nonce);
                }
                _ => {}
            }
        }
        if let Some(cookie) = segment.options.fastopen.filter(|c| !c.cookie().is_empty()) {
            connection.cookie.get_or_insert(cookie);
        }
    }

    /// A number of the script that names nothing yet means the device's oldest SYN without a name.
    fn name(&mut self, name: usize) -> Option<usize> {
        if let Some(at) = self.names.get(&name) {
            return Some(*at);
        }
        let connection = self.connections.len() - 1;
        let at = (0..self.flows.len()).find(|at| {
            self.flows[*at].connection == connection && !self.names.values().any(|f| f == at)
        })?;
        self.names.insert(name, at);
        Some(at)
    }

    /// The next segment is this one, or with `find` one of those that come.
    fn expect(
        &mut self,
        name: usize,
        shape: &Shape,
        within: Duration,
        find: bool,
    ) -> Result<(), String> {
        let until = self.arm.now() + self.arm.patience(within);
        loop {
            if let Some(at) = self.name(name) {
                while let Some(seen) = self.flows[at].queue.pop_front() {
                    match seen.check(shape) {
                        Ok(()) => return Ok(()),
                        // Acknowledgements and repetitions that the script does not speak of may come at any time.
                        Err(_) if find || seen.is_bare || seen.repeats => {}
                        Err(why) => {
                            return Err(format!(
                                "the next segment of flow {name} is not it: {why}"
                            ));
                        }
                    }
                }
            }
            match self.arm.receive(until) {
                Some(packet) => self.arrive(&packet)?,
                None => return Err(format!("flow {name} has no such segment in time")),
            }
        }
    }

    /// Waits and sees that this does not come (or nothing at all). Everything else stays for the lines that follow.
    fn never(&mut self, what: Option<(usize, &Shape)>, within: Duration) -> Result<(), String> {
        let until = self.arm.now() + within;
        while let Some(packet) = self.arm.receive(until) {
            self.arrive(&packet)?;
        }
        let wrong = |at: usize, seen: &Observed| match what {
            None => true,
            Some((name, shape)) => {
                let named = self.names.values().any(|flow| *flow == at);
                let meant = self.names.get(&name).map_or(!named, |flow| *flow == at);
                meant && seen.check(shape).is_ok()
            }
        };
        let flows = self.flows.iter().enumerate();
        let mut all = flows.flat_map(|(at, flow)| flow.queue.iter().map(move |seen| (at, seen)));
        match all.find(|(at, seen)| wrong(*at, seen)) {
            Some((_, seen)) => Err(format!("must not be sent: {seen}")),
            None => Ok(()),
        }
    }
}

/// The flags of letters as `describe` prints them.
fn flags(letters: &str) -> Result<Flags, String> {
    letters.chars().try_fold(Flags::NONE, |all, letter| {
        Ok(all
            | match letter {
                'F' => Flags::FIN,
                'S' => Flags::SYN,
                'R' => Flags::RST,
                'P' => Flags::PSH,
                'U' => Flags::URG,
                'E' => Flags::ECE,
                'W' => Flags::CWR,
                '.' => Flags::ACK,
                other => return Err(format!("no flag '{other}'")),
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::ours::Ours;
    use crate::script::parse;

    fn played(text: &str) -> Outcome {
        let script = parse::script("x", &format!("# T\n{text}")).expect("right");
        play(&script, || Ok(Ours::new(&script.settings))).expect("the arm is there")
    }

    fn failure(text: &str) -> String {
        match played(text) {
            Outcome::Failed(why) => why,
            other => panic!("{text}: {other:?}"),
        }
    }

    const DATA: &str = "established server\n< [P.], options [mptcp dss ack64 1 seq64 1 subseq 1 len 5], \"hello\"\n";

    #[test]
    fn what_does_not_happen_fails_and_says_in_which_line() {
        for (line, why) in [
            ("> [.], ack 7", "line 4: flow 0 has no such segment"),
            ("> [.], options [mptcp dss ack64 7]", "no such segment"),
            ("> [R.]", "no such segment"),
            ("app read \"hella\"", "the application read \"hello\""),
            ("app read end", "the application read \"hello\""),
            ("app speaks tcp", "waits in vain"),
            ("! [.], ack 6, within 10ms", "must not be sent"),
            ("nothing within 10ms", "must not be sent"),
            ("1> [S]", "no such segment"),
            ("app write \"a\"\n> [.], \"b\"", "another payload"),
        ] {
            let found = failure(&format!("{DATA}{line}\n"));
            assert!(found.contains(why), "{line}: {found}");
        }
    }

    #[test]
    fn time_limits_are_kept_to_the_millisecond() {
        let lost = "app connect\n> [S]\n> [S], within ";
        // RFC 6298 section 2.1: the first time-out is one second.
        assert_eq!(played(&format!("{lost}1000ms")), Outcome::AsWanted);
        failure(&format!("{lost}999ms"));
    }

    #[test]
    fn an_arm_may_differ_only_where_the_script_permits_it() {
        let either = |wanted: &str, arm: &str, instead: &str| {
            format!(
                "{DATA}either\n{wanted}\nor {arm}: why; right: rfc8684:D7\n{instead}\nend\napp read \"hello\"\n"
            )
        };
        let (good, bad) = ("> [.], ack 6", "> [.], ack 7");
        assert_eq!(played(&either(good, "ours", bad)), Outcome::AsWanted);
        let differs = Outcome::Differs(vec!["why; right: rfc8684:D7".to_owned()]);
        assert_eq!(played(&either(bad, "ours", good)), differs);
        failure(&either(bad, "kernel", good));
        failure(&either(bad, "ours", bad));
    }
}
