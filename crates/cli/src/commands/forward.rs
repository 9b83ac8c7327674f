//! `manypath forward`.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use manypath_proxy::endpoint::{Endpoint, Proto};
use manypath_proxy::forward::{self, Forward, Totals};

use crate::args::ForwardArgs;
use crate::commands::{Purpose, open};
use crate::confine::Confinement;
use crate::exit::Failure;
use crate::memory::{Keeper, Load};
use crate::runtime::{block_on, say, unless_stopped};
use crate::signals::{Signal, ending};
use crate::units;

/// Refuses what no connection could ever be made to.
fn reachable(to: &Endpoint) -> Result<(), Failure> {
    if to.at.port() == 0 {
        let message = format!("--to {to}: nobody can be reached at port 0");
        return Err(Failure::usage(message));
    }
    let addr = to.at.host().parse::<IpAddr>();
    if to.proto == Proto::Mptcp && addr.is_ok_and(|addr| addr.to_canonical().is_loopback()) {
        let message = format!(
            "--to {to}: the paths lead away from this host, and a loopback address is on it"
        );
        return Err(Failure::usage(message).hint("use tcp: for a server on this host"));
    }
    Ok(())
}

/// Relays until a signal comes.
pub(crate) fn run(args: ForwardArgs) -> Result<(), Failure> {
    reachable(&args.to)?;
    let confinement = Confinement::prepare(args.user.as_deref())?;
    let result = block_on(async move {
        let title = format!("forward {} to {}", args.listen, args.to);
        let purpose = Purpose::Service {
            keepalive: args.keepalive.0,
        };
        let protos = [args.listen.proto, args.to.proto];
        let opened = open(&args.stack, &protos, title, purpose)?;
        confinement.enter(&opened)?;
        let listening = async {
            let listener = opened
                .sockets
                .listen_in_time(&args.listen, Some(&args.to))
                .await;
            Ok(listener?)
        };
        let listener = unless_stopped(listening).await?;
        if let Ok(addr) = listener.local_addr() {
            say(&format!(
                "manypath: {}:{addr} goes to {}; Ctrl-C ends it",
                args.listen.proto, args.to
            ));
        }
        let totals = Arc::new(Totals::default());
        let keeper = {
            let (stack, totals) = (opened.sockets.stack.clone(), Arc::clone(&totals));
            Keeper::start(move || Load::of_stack(stack.as_ref()).and(Load::of_forwarder(&totals)))
        };
        let forward = Forward {
            max_connections: args.max_connections as usize,
            max_per_client: args.per_client() as usize,
            idle_timeout: args.idle_timeout.0,
            half_closed_timeout: args.half_closed_timeout.0,
            to: args.to,
        };
        let mut ended_by = Signal::TERMINATE;
        let stop = async { ended_by = ending().await };
        forward::run(
            forward,
            listener,
            opened.sockets.clone(),
            Arc::clone(&totals),
            stop,
        )
        .await;
        drop(keeper);
        let open = totals.open();
        opened.close().await;
        let get = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
        say(&format!(
            "manypath: {} connections ({} to the end, {} broken, {} could not be carried, {} refused, {open} open at the end), {} forth, {} back",
            get(&totals.accepted),
            get(&totals.finished),
            get(&totals.broken),
            get(&totals.unreachable),
            get(&totals.refused),
            units::bytes(get(&totals.bytes_forth)),
            units::bytes(get(&totals.bytes_back)),
        ));
        Err(ended_by.failure())
    });
    match result {
        // How a service manager ends a service that did nothing wrong.
        Err(failure) if failure.is_by(Signal::TERMINATE) => Ok(()),
        other => other,
    }
}
