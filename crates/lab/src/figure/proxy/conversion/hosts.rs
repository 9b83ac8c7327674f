//! Three hosts in a row: a client, what stands in between, and a server that speaks only TCP.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::super::super::ends::{CONGESTION, serve_each};
use super::super::super::real::{PATIENCE, failed};
use super::exchange::{Delays, Opening, Ways, delays};
use crate::kernel;
use crate::netns::{NetNs, Process};
use crate::relay;
use crate::tap::{Passed, Tap};
use crate::testbed::{Pair, Testbed};

const CABLE: &str = "p0";
const FAR_CABLE: &str = "o0";
const MIDDLE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 78, 0, 2), 80);
const RELAY_PORT: u16 = 3128;
/// How long a relay may take to end.
const ENDING: Duration = Duration::from_secs(3);

/// What stands in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relay {
    /// Nothing: the middle routes.
    Routed,
    /// `manypath proxy` with this opening, on our stack towards the client.
    Ours(&'static str),
    /// squid on the kernel's Multipath TCP.
    Squid,
    /// HAProxy on the kernel's Multipath TCP.
    Haproxy,
}

impl Relay {
    /// The relay of a line.
    pub(super) fn named(line: &str) -> Result<Self, String> {
        match line {
            "converter" => Ok(Self::Ours("convert")),
            "CONNECT" => Ok(Self::Ours("http")),
            "forward" => Ok(Self::Ours("fixed")),
            "squid" => Ok(Self::Squid),
            "HAProxy" => Ok(Self::Haproxy),
            "routed" => Ok(Self::Routed),
            other => Err(format!("there is no relay '{other}'")),
        }
    }

    fn opening(self) -> Opening {
        match self {
            Self::Routed => Opening::Routed,
            Self::Ours("convert") => Opening::WithSyn,
            Self::Ours("http") | Self::Squid => Opening::Request,
            Self::Ours(_) | Self::Haproxy => Opening::Connected,
        }
    }

    /// Where a client connects to.
    fn at(self) -> SocketAddr {
        match self {
            Self::Routed => SERVER.into(),
            Self::Ours(_) => SocketAddr::new(Testbed::own_server_address(0), RELAY_PORT),
            // The kernel's address on the client's cable.
            Self::Squid | Self::Haproxy => (Testbed::gateway(0), RELAY_PORT).into(),
        }
    }

    /// Starts it, with its file in a folder.
    fn start(self, ns: &NetNs, program: &Path, folder: &Path) -> Result<Option<Process>, String> {
        let file = folder.join("relay.conf");
        let write = |text: &str| std::fs::write(&file, text).map_err(failed("a configuration"));
        let mut command = match self {
            Self::Routed => return Ok(None),
            Self::Ours(opening) => {
                write(&proxy(opening))?;
                let (own, gateway) = (Testbed::own_server_address(0), Testbed::client_address(0));
                let path = format!("{CABLE}={own},gateway={gateway}");
                let paths = ["--path".to_owned(), path];
                let proxy = relay::proxy(ns, program, &file, &paths);
                let proxy = proxy.map_err(|error| error.to_string())?;
                return Ok(Some(proxy.into_process()));
            }
            Self::Squid => {
                write(&self.squid(folder))?;
                let mut squid = Command::new("mptcpize");
                // Its shared memory is not that of another one.
                squid.args(["run", "squid", "-n", "conversion", "-N", "-f"]);
                squid.arg(&file);
                squid
            }
            Self::Haproxy => {
                write(&self.haproxy())?;
                let mut haproxy = Command::new("mptcpize");
                haproxy.args(["run", "haproxy", "-db", "-f"]).arg(&file);
                haproxy
            }
        };
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let missing = failed("`scripts/setup bench` installs what is missing");
        let mut process = ns.spawn(command).map_err(missing)?;
        relay::await_listener(ns, RELAY_PORT, &mut process, PATIENCE)?;
        Ok(Some(process))
    }

    fn squid(self, folder: &Path) -> String {
        let web = SERVER.port();
        let access =
            format!("acl web port {web}\nhttp_access allow CONNECT web\nhttp_access deny all");
        relay::squid(&self.at().to_string(), &access, folder) + "visible_hostname proxy\n"
    }

    fn haproxy(self) -> String {
        let at = self.at();
        format!(
            "global\n nbthread 1\ndefaults\n mode tcp\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n\
             listen relay\n bind {at}\n server s {SERVER}\n"
        )
    }
}

fn proxy(opening: &str) -> String {
    let at = Relay::Ours("").at();
    let to = match opening {
        "fixed" => format!("to = \"tcp:{SERVER}\""),
        _ => "outside = \"tcp\"".to_owned(),
    };
    format!(
        "[[listen]]\non = \"mptcp:{at}\"\nopening = \"{opening}\"\n{to}\n\
         [[rule]]\nclient = \"10.77.0.0/16\"\nto = \"{}/32\"\nport = {}\nthen = \"allow\"\n",
        SERVER.ip(),
        SERVER.port()
    )
}

/// The hosts, with a relay that runs.
pub(super) struct Hosts {
    pair: Pair,
    client_tap: Tap,
    server_tap: Tap,
    relay: Relay,
    process: Option<Process>,
    /// The converter's, once it has given one.
    token: Vec<u8>,
    _server: NetNs,
    _folder: tempfile::TempDir,
}

impl Hosts {
    pub(super) fn new(relay: Relay, program: &Path) -> Result<Self, String> {
        let pair = Pair::new("conversion", &[CABLE], CONGESTION).map_err(failed("two hosts"))?;
        let server = NetNs::new("conversion-o").map_err(failed("a third host"))?;
        far_cable(&pair.server, &server).map_err(failed("the server's cable"))?;
        for ns in [&pair.client, &pair.server] {
            kernel::prepare(ns, false).map_err(failed("Multipath TCP"))?;
        }
        // As a client it says something with a SYN without having been there before.
        pair.client
            .sysctl("net.ipv4.tcp_fastopen", "5")
            .map_err(failed("Fast Open"))?;
        serve(&server)?;
        let folder = tempfile::tempdir().map_err(failed("a folder"))?;
        let process = relay.start(&pair.server, program, folder.path())?;
        let (client_tap, server_tap) = (
            Tap::open(&pair.client).map_err(failed("to see the client's packets"))?,
            Tap::open(&server).map_err(failed("to see the server's packets"))?,
        );
        Ok(Self {
            pair,
            client_tap,
            server_tap,
            relay,
            process,
            token: Vec::new(),
            _server: server,
            _folder: folder,
        })
    }

    /// One connection, and how long its packets were in the middle; nothing when not all of them were seen in their order.
    pub(super) fn exchange(&mut self) -> Result<Option<Delays>, String> {
        // What the connection before has left.
        for tap in [&self.client_tap, &self.server_tap] {
            seen(tap, |_| None)?;
        }
        let (opening, at) = (self.relay.opening(), self.relay.at());
        let mut token = std::mem::take(&mut self.token);
        let talk = move || {
            let port = opening.talk(at, SERVER, &mut token);
            port.map(|port| (port, token))
        };
        let talked = self.pair.client.run(talk);
        let (port, token) = talked.map_err(failed::<io::Error>("the client"))?;
        self.token = token;
        // Its packets have passed before it has read to the end.
        let client = seen(&self.client_tap, |passed| {
            leads(port, passed.from_port, passed.to_port)
        })?;
        let server = seen(&self.server_tap, |passed| {
            leads(SERVER.port(), passed.to_port, passed.from_port)
        })?;
        Ok(delays(opening, &client, &server))
    }

    /// Ends the relay in an orderly way: killed, ours would leave notes behind.
    pub(super) fn end(mut self) {
        if let Some(process) = &mut self.process {
            process.stop(ENDING);
        }
    }
}

/// Whether a packet leads there, when it has this port at the one end, or back.
fn leads(port: u16, there: u16, back: u16) -> Option<bool> {
    (port == there || port == back).then_some(port == there)
}

/// Everything that a tap has seen, by whether it leads there; what is of neither way is left out.
fn seen(tap: &Tap, there: impl Fn(&Passed) -> Option<bool>) -> Result<Ways, String> {
    let mut ways = Ways::default();
    while let Some(passed) = tap.next(Duration::ZERO).map_err(failed("a packet"))? {
        match there(&passed) {
            Some(true) => ways.there.push(passed),
            Some(false) => ways.back.push(passed),
            None => {}
        }
    }
    Ok(ways)
}

fn far_cable(middle: &NetNs, server: &NetNs) -> Result<(), crate::netns::NetNsError> {
    middle.veth(FAR_CABLE, server, FAR_CABLE)?;
    middle.ip([format!("addr add {MIDDLE}/24 dev {FAR_CABLE}")])?;
    server.ip([
        format!("addr add {}/24 dev {FAR_CABLE}", SERVER.ip()),
        format!("route add default via {MIDDLE}"),
    ])?;
    middle.sysctl("net.ipv4.ip_forward", "1")
}

/// Gives back what each connection says, one after the other, until nobody has come for a while.
fn serve(ns: &NetNs) -> Result<(), String> {
    let listener = ns.run(|| TcpListener::bind(SERVER));
    let listener = listener.map_err(failed::<io::Error>("the server"))?;
    serve_each(ns, listener, echo)
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut chunk = [0; 4096];
    loop {
        let length = stream.read(&mut chunk)?;
        if length == 0 {
            return Ok(());
        }
        stream.write_all(&chunk[..length])?;
    }
}
