//! `manypath forward`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use manypath_proxy::forward::{self, Forward, Totals};

use crate::args::ForwardArgs;
use crate::commands::open;
use crate::exit::Failure;
use crate::memory::{Keeper, Load};
use crate::runtime::{Signal, block_on, end_signal, prepare_process, say};
use crate::units;

/// Relays until a signal comes.
pub(crate) fn run(args: ForwardArgs) -> Result<(), Failure> {
    prepare_process();
    block_on(async move {
        let title = format!("forward {} to {}", args.listen, args.to);
        let opened = open(&args.stack, &[args.listen.proto, args.to.proto], title)?;
        let listener = opened.sockets.listen(&args.listen).await?;
        let ends = end_signal();
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
            to: args.to,
            max_connections: args.max_connections as usize,
        };
        let mut ended_by = Signal::Terminate;
        let stop = async { ended_by = ends.await };
        forward::run(
            forward,
            listener,
            opened.sockets.clone(),
            Arc::clone(&totals),
            stop,
        )
        .await;
        drop(keeper);
        opened.close().await;
        let get = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
        say(&format!(
            "manypath: {} connections ({} to the end, {} broken, {} could not be carried), {} forth, {} back",
            get(&totals.accepted),
            get(&totals.finished),
            get(&totals.broken),
            get(&totals.unreachable),
            units::bytes(get(&totals.bytes_forth)),
            units::bytes(get(&totals.bytes_back)),
        ));
        match ended_by {
            // How a service manager ends a service that did nothing wrong.
            Signal::Terminate => Ok(()),
            Signal::Interrupt => Err(ended_by.failure()),
        }
    })
}
