//! Controllers of the stack beside the process whose connections they steer: the same code, fed over the control socket.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use manypath_stack::api::{Command, Ending, NewSubflow, PathManager};
use manypath_stack::ids::SubflowId;
use manypath_stack::pm::controllers::{Controller, LocalView, Order, SubflowView, View};
use manypath_tcp::time::{Duration, Instant};

use crate::engine::{ControlError, Engine, Next};
use crate::news;
use crate::report::{ConnReport, SubflowReport};
use crate::wire::{EventReport, Filter, Reply, Request, Wanted};

/// What a controller in the stack would see of the connection.
#[must_use]
pub fn view(conn: &ConnReport) -> View {
    let lives = |sf: &&SubflowReport| sf.phase != "closing";
    let locals = conn.local_addresses.iter().filter(|local| local.up);
    View {
        may_join: conn.may_join,
        may_create: conn.may_create,
        written: conn.bytes_written,
        acked: conn.bytes_acked,
        subflows: conn
            .subflows
            .iter()
            .filter(lives)
            .filter_map(subflow)
            .collect(),
        locals: locals
            .filter_map(|local| {
                let backup = local.backup;
                local.address.map(|addr| LocalView { addr, backup })
            })
            .collect(),
        remotes: conn
            .remote_addresses
            .iter()
            .filter_map(|r| r.address)
            .collect(),
    }
}

fn subflow(sf: &SubflowReport) -> Option<SubflowView> {
    Some(SubflowView {
        id: SubflowId(u8::try_from(sf.id).ok()?),
        local: sf.local?,
        remote: sf.remote?,
        established: sf.phase == "established",
        backup: sf.backup_here || sf.backup_there,
        srtt: sf.srtt_us.map(Duration::from_micros),
        rto: Duration::from_micros(sf.rto_us),
        backoffs: sf.backoffs,
        stale: sf.stale,
        steady: sf.ssthresh.is_some_and(|t| sf.cwnd >= t && !sf.in_recovery),
        pacing_rate: sf.pacing_rate.unwrap_or(u64::MAX),
        acked: sf.bytes_acked,
        retransmitted: sf.bytes_retransmitted,
    })
}

/// A command as a request for a connection.
#[must_use]
pub fn request(connection: &str, command: &Command) -> Request {
    let connection = connection.to_owned();
    match *command {
        Command::Create(NewSubflow {
            local,
            iface: _,
            local_port,
            remote,
            remote_port,
            backup,
        }) => Request::SubflowCreate {
            connection,
            wanted: Wanted {
                local,
                local_port,
                remote,
                remote_port,
                backup,
            },
        },
        Command::Destroy { subflow, ending } => Request::SubflowDestroy {
            connection,
            subflow: u32::from(subflow.0),
            reset: ending == Ending::Reset,
        },
        Command::SetBackup { subflow, backup } => Request::SetFlags {
            connection,
            subflow: u32::from(subflow.0),
            backup,
        },
        Command::Announce {
            addr: address,
            port,
        } => Request::Announce {
            connection,
            address,
            port,
        },
        Command::Withdraw { id } => Request::Remove {
            connection,
            address_id: id.0,
        },
        Command::SetLimits {
            subflows,
            add_addr_accepted,
        } => Request::SetLimits {
            connection,
            subflows,
            add_addr_accepted,
        },
        Command::SetPolicy(policy) => Request::SetPolicy {
            connection,
            policy: policy.to_string(),
        },
    }
}

/// When the controllers' time begins: never at zero, which stands for "long ago".
const EPOCH: std::time::Duration = std::time::Duration::from_secs(1);

/// What a running controller did, for whoever watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// The connection.
    pub connection: String,
    /// What was ordered, or that nothing was.
    pub order: Order,
    /// Why the process refused it.
    pub refused: Option<String>,
}

/// Runs a policy beside a process or the kernel, for one connection or for all.
#[derive(Debug)]
pub struct Runner<E> {
    client: E,
    policy: PathManager,
    /// Starts the pauses of each connection's controller.
    seed: u64,
    start: std::time::Instant,
    controllers: HashMap<String, Controller>,
    owned_by_others: u32,
}

impl<E: Engine> Runner<E> {
    /// Claims the connections, by `force` also those of others, and subscribes to what happens to them.
    ///
    /// # Errors
    /// The session is over, the claim is refused, or the policy needs no controller.
    pub async fn start(
        mut client: E,
        policy: PathManager,
        connection: Option<String>,
        force: bool,
        seed: u64,
    ) -> io::Result<Self> {
        if Controller::remote(policy, seed).is_none() {
            let what = "this policy makes no subflows: there is nothing to run";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let filter = Filter {
            connection: connection.clone(),
            with_view: true,
            ..Filter::default()
        };
        // Whoever comes up in between is in the list, and the event that tells of it changes nothing then.
        expect_done(client.ask(Request::Subscribe(filter)).await?)?;
        let claim = Request::Claim {
            connection: connection.clone(),
            force,
        };
        let owned_by_others = match expect_done(client.ask(claim).await?)? {
            Reply::Done {
                owned_by_others, ..
            } => owned_by_others.unwrap_or(0),
            _ => 0,
        };
        let mut runner = Self {
            client,
            policy,
            seed,
            start: std::time::Instant::now(),
            controllers: HashMap::new(),
            owned_by_others,
        };
        let known = match runner.client.ask(Request::List).await? {
            Reply::Process { process } => process.connections,
            _ => Vec::new(),
        };
        for conn in known {
            if connection.as_ref().is_none_or(|wanted| *wanted == conn.id) {
                runner.adopt(&conn.id);
            }
        }
        Ok(runner)
    }

    /// How many connections other controllers owned when it began, and own until they release them or end.
    #[must_use]
    pub fn owned_by_others(&self) -> u32 {
        self.owned_by_others
    }

    fn now(&self) -> Instant {
        let elapsed = self.start.elapsed() + EPOCH;
        Instant::from_nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// A moment of the controllers by the system's clock.
    fn moment(&self, at: Instant) -> std::time::Instant {
        let elapsed = std::time::Duration::from_nanos(at.as_nanos());
        self.start + elapsed.saturating_sub(EPOCH)
    }

    fn adopt(&mut self, connection: &str) {
        let seed = self.seed.wrapping_add(self.controllers.len() as u64);
        if let Some(controller) = Controller::remote(self.policy, seed) {
            self.controllers
                .entry(connection.to_owned())
                .or_insert(controller);
        }
    }

    /// Lets the controllers look at connections that were there before, and then at everything that happens, until the
    /// process is gone. `told` hears of each decision, and ends the run by an error.
    ///
    /// # Errors
    /// The other side does not speak the protocol; those of `told`.
    pub async fn run(mut self, mut told: impl FnMut(&Deed) -> io::Result<()>) -> io::Result<()> {
        let adopted: Vec<String> = self.controllers.keys().cloned().collect();
        let ready = news::kind(&EventReport {
            event: "established".to_owned(),
            ..EventReport::default()
        });
        for connection in adopted {
            self.consult(&connection, ready.as_ref(), None, &mut told)
                .await?;
        }
        loop {
            let due = self
                .controllers
                .iter()
                .filter_map(|(name, c)| c.deadline().map(|at| (at, name.clone())))
                .min();
            let at = due.as_ref().map(|(at, _)| self.moment(*at));
            match self.client.next_event_by(at).await? {
                Next::Event(event) => self.hear(*event, &mut told).await?,
                Next::Moment => {
                    if let Some((_, name)) = due {
                        self.consult(&name, None, None, &mut told).await?;
                    }
                }
                Next::End => return Ok(()),
            }
        }
    }

    async fn hear(
        &mut self,
        event: EventReport,
        told: &mut impl FnMut(&Deed) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(kind) = news::kind(&event) else {
            return Ok(());
        };
        let Some(connection) = &event.connection else {
            let all: Vec<String> = self.controllers.keys().cloned().collect();
            for connection in all {
                self.consult(&connection, Some(&kind), None, told).await?;
            }
            return Ok(());
        };
        match event.event.as_str() {
            "opening" | "created" => self.adopt(connection),
            "closed" => {
                self.controllers.remove(connection);
            }
            _ => {}
        }
        let seen = event.view.as_deref().map(View::from);
        let seen = seen.or_else(|| event.sample.as_deref().map(view));
        self.consult(connection, Some(&kind), seen, told).await
    }

    /// Shows a controller its connection, as it was seen to be or else as it is now, and does what it wants.
    async fn consult(
        &mut self,
        connection: &str,
        event: Option<&manypath_stack::api::EventKind>,
        seen: Option<View>,
        told: &mut impl FnMut(&Deed) -> io::Result<()>,
    ) -> io::Result<()> {
        if !self.controllers.contains_key(connection) {
            return Ok(());
        }
        let view = match seen {
            Some(seen) => seen,
            None => {
                let show = Request::Show {
                    connection: connection.to_owned(),
                };
                let Reply::Connection { connection } = self.client.ask(show).await? else {
                    self.controllers.remove(connection);
                    return Ok(());
                };
                view(&connection)
            }
        };
        let now = self.now();
        let Some(controller) = self.controllers.get_mut(connection) else {
            return Ok(());
        };
        for order in controller.react(now, event, &view) {
            let mut refused = None;
            if let Some(command) = order.command {
                let reply = self.client.ask(request(connection, &command)).await?;
                self.client.outdate(connection);
                if let Reply::Error { message, .. } = reply {
                    refused = Some(message);
                    if let (Command::Create(wanted), Some(c)) =
                        (command, self.controllers.get_mut(connection))
                    {
                        c.refused(now, &wanted);
                    }
                }
            }
            told(&Deed {
                connection: connection.to_owned(),
                order,
                refused,
            })?;
        }
        Ok(())
    }
}

fn expect_done(reply: Reply) -> io::Result<Reply> {
    match reply {
        Reply::Error { code, message } => Err(ControlError::Refused { code, message }.into()),
        done => Ok(done),
    }
}

/// An address as a command line gives it, with or without a port.
///
/// # Errors
/// It is neither.
pub fn parse_end(text: &str) -> Result<(IpAddr, Option<u16>), String> {
    if let Ok(addr) = text.parse::<std::net::SocketAddr>() {
        return Ok((addr.ip(), Some(addr.port())));
    }
    let addr = text
        .parse()
        .map_err(|_| format!("'{text}' is no address"))?;
    Ok((addr, None))
}
