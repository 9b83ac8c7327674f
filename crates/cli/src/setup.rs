//! Our stack as the command line describes it, and what can be told about it.

use std::io;
use std::time::Duration;

use manypath_host::NoFirewall;
use manypath_io::path::Wanted;
use manypath_io::{Attach, Host, LoopbackPath};
use manypath_stack::api::LARGEST_BUFFER;
use manypath_stack::{ConnOptions, PathManager, StackConfig};

use crate::args::{AttachKind, StackArgs};
use crate::exit::{Code, Failure};
use crate::limit_args::LimitArgs;

/// With less, not even one connection gets on.
const LEAST_MEMORY: u64 = 1 << 20;

/// The options of connections, for a policy that applies where the command line names none.
fn options(args: &StackArgs, path_manager: PathManager) -> Result<ConnOptions, Failure> {
    let buffer = u32::try_from(args.buffer)
        .ok()
        .filter(|&n| (4096..=LARGEST_BUFFER).contains(&n))
        .ok_or_else(|| Failure::usage("--buffer must be between 4Ki and 1Gi"))?;
    Ok(ConnOptions {
        path_manager: args.path_manager.unwrap_or(path_manager),
        scheduler: args.scheduler,
        mechanisms: args.mechanisms,
        congestion: args.congestion,
        receive: args.receive,
        checksum: args.checksum.is_on(),
        fast_open: args.fast_open,
        send_buffer: buffer,
        recv_buffer: buffer,
        ..ConnOptions::default()
    })
}

fn stack_config(limits: &LimitArgs) -> Result<StackConfig, Failure> {
    if limits.memory < LEAST_MEMORY {
        return Err(Failure::usage("--memory must be at least 1Mi"));
    }
    Ok(StackConfig {
        max_connections: limits.most_connections as usize,
        max_per_source: limits.most_per_address as usize,
        max_memory: usize::try_from(limits.memory).unwrap_or(usize::MAX),
        patience: manypath_tcp::time::Duration::from_nanos(
            u64::try_from(limits.patience.as_nanos()).unwrap_or(u64::MAX),
        ),
        ..StackConfig::default()
    })
}

/// Starts the stack; if it is patient, also without any path.
pub(crate) fn host(args: &StackArgs, wanted: Wanted, patient: bool) -> Result<Host, Failure> {
    Host::builder()
        .wanted(wanted)
        .attach(match args.attach {
            AttachKind::Auto => Attach::Auto,
            AttachKind::Packet => Attach::Packet,
            AttachKind::Tun => Attach::Tun,
        })
        .without_paths(patient)
        .local_ports(args.local_ports)
        .offload(args.offload.is_on())
        .stack_config(stack_config(&args.limits)?)
        .backlog(args.limits.backlog as usize)
        .conn_options(options(args, PathManager::FullMesh)?)
        .accept_options(options(args, PathManager::Passive)?)
        // The commands say for themselves how long the end may take, and a second signal has to end it.
        .linger(Duration::ZERO)
        .build()
        .map_err(|error| failure(&error))
}

fn failure(error: &io::Error) -> Failure {
    let message = format!("cannot set up the paths: {error}");
    let inner = error.get_ref();
    if inner.is_some_and(|inner| inner.is::<LoopbackPath>()) {
        return Failure::usage(message).hint(
            "name an interface that leads to the peers, for example --path eth0, or leave --path out: then every interface with a default route is used",
        );
    }
    if inner.is_some_and(|inner| inner.is::<NoFirewall>()) {
        return Failure::new(Code::Failure, message).hint(
            "load it with `modprobe nf_tables`, or use a kernel that has it; an address of your own on a path (`--path eth0=ADDR`) does without",
        );
    }
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NetworkDown => Failure::new(Code::Network, message)
            .hint("`ip link` shows the interfaces and which of them are up"),
        io::ErrorKind::AddrNotAvailable => Failure::new(Code::Network, message)
            .hint("name a path and its address, for example --path eth0=192.0.2.7; `ip address` shows what there is"),
        kind => Failure::from_io(message, kind),
    }
}

/// Says which paths are not there yet: it may be a wrong name.
pub(crate) fn warn_of_missing(host: &Host) {
    if host.missing().is_empty() && !host.has_paths() {
        tracing::warn!(
            "no interface has a default route: each is used when it gets one; without one, name it: --path eth0"
        );
    }
    for missing in host.missing() {
        tracing::warn!("{missing}; the path is used when it comes");
    }
}

/// Says in advance why a TUN device may carry nothing.
pub(crate) fn warn_of_firewall(host: &Host) {
    let devices = host.devices();
    let Some((tun, _)) = devices.iter().find(|(device, _)| device.is_tun) else {
        return;
    };
    for chain in manypath_host::forwarding_is_dropped() {
        tracing::warn!(
            "the firewall chain '{chain}' of this host drops what is forwarded unless a rule accepts it, and so what {0} carries; \
             these rules would: `nft insert rule {chain} iifname {0} accept` and `nft insert rule {chain} oifname {0} accept`",
            tun.name
        );
    }
}
