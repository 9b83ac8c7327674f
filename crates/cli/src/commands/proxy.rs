//! `manypath proxy`, `check` and `reload`.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::sync::Arc;

use manypath_control::client::Client;
use manypath_control::server::Server;
use manypath_control::wire::{Reply, Request};
use manypath_proxy::config::check::{Checked, check, kinds, read_file};
use manypath_proxy::config::reload::{Asked, Service, channel, specs_of};
use manypath_proxy::config::shown::{as_json, as_text};
use manypath_proxy::config::{Config, Draft, Faults, Limits, Listen, Log};
use manypath_proxy::limits::wanted;
use manypath_proxy::live::Configured;
use manypath_proxy::observe::limits::OfLimits;
use manypath_proxy::observe::metrics::Metrics;
use manypath_proxy::observe::stack::OfStack;
use manypath_proxy::observe::{serve, sink};
use manypath_proxy::serve::{ListenerSpec, OpeningKind};
use manypath_proxy::taking::Taking;

use crate::commands::{Purpose, ctl, open_sockets, print_json, print_text};
use crate::confine::Confinement;
use crate::exit::{Code, Failure};
use crate::memory::{Keeper, Load};
use crate::proxy_args::{CheckArgs, ProxyArgs, ReloadArgs};
use crate::runtime::{block_on, say, unless_stopped};
use crate::signals::{Hangups, Signal, ending};

/// A file that cannot be used is as wrong as a command line.
fn unusable(faults: &Faults) -> Failure {
    Failure::new(Code::Failure, faults.to_string())
}

/// What the file or the command line says.
fn configuration(args: &ProxyArgs) -> Result<Checked, Failure> {
    if let Some(file) = &args.config {
        let checked = read_file(file).map_err(|faults| unusable(&faults))?;
        if checked.config.via.is_some() && args.stack.via.is_some() {
            return Err(Failure::usage(
                "--via and [via] of the file both name a converter: leave one out",
            ));
        }
        return Ok(checked);
    }
    let limits = Limits {
        connect_time: args.stack.connect_timeout,
        ..Limits::default()
    };
    let http = args.http.iter().map(|on| (on, OpeningKind::Http));
    let socks5 = args.socks5.iter().map(|on| (on, OpeningKind::Socks5));
    let listeners = http.chain(socks5).map(|(on, opening)| {
        let name = format!("{} {}", opening.name(), on.at);
        let mut spec = ListenerSpec::new(name, on.clone(), opening, args.outside);
        spec.bounds = limits.bounds.clone();
        Listen {
            spec,
            users: args.users.clone(),
        }
    });
    let config = Config {
        listeners: listeners.collect(),
        limits: limits.clone(),
        metrics: args.metrics.clone(),
        log: Log {
            access: args.access_log.clone(),
            ..Log::default()
        },
        ..Config::default()
    };
    let places = vec![(0, 0); config.listeners.len()];
    let draft = Draft {
        config,
        listeners: places,
        rules: Vec::new(),
        paths: Vec::new(),
    };
    check(draft).map_err(|faults| {
        let told: Vec<String> = faults.into_iter().map(|fault| fault.message).collect();
        Failure::usage(told.join("\n"))
    })
}

/// Prints what a file puts in force.
pub(crate) fn run_check(args: &CheckArgs) -> Result<(), Failure> {
    let checked = read_file(&args.file).map_err(|faults| unusable(&faults))?;
    if args.json {
        return print_json(&as_json(&checked));
    }
    for warning in &checked.warnings {
        tracing::warn!("{warning}");
    }
    print_text(&as_text(&checked))
}

/// What stays readable and writable for a reload: the folders of everything that the configuration names.
fn folders(file: Option<&PathBuf>, checked: &Checked) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let listeners = &checked.config.listeners;
    let tls = listeners
        .iter()
        .filter_map(|listen| listen.spec.tls.as_ref());
    let files = file
        .into_iter()
        .chain(listeners.iter().filter_map(|listen| listen.users.as_ref()))
        .chain(
            listeners
                .iter()
                .filter_map(|listen| listen.spec.key.as_ref()),
        )
        .chain(tls.flat_map(|tls| [&tls.cert, &tls.key]))
        .chain(checked.config.via.iter().filter_map(|via| via.key.as_ref()))
        .chain(&checked.config.roots.files);
    let folder = |path: &PathBuf| Some(std::path::absolute(path).ok()?.parent()?.to_owned());
    let readable = files.filter_map(folder).collect();
    let writable = sink::folder(&checked.config.log)
        .into_iter()
        .chain(checked.config.metrics.as_ref().and_then(serve::folder))
        .chain(quota_folder(&checked.config));
    (readable, writable.collect())
}

/// A file as others find it.
fn whole_path(file: Option<&PathBuf>) -> Option<PathBuf> {
    std::path::absolute(file?).ok()
}

/// The folder of the file of quotas, where there are any.
fn quota_folder(config: &Config) -> Option<PathBuf> {
    let file = Some(&config.quota_file).filter(|_| config.has_quotas());
    Some(file?.parent()?.to_owned())
}

/// Makes the folder of the file of quotas where there is none, for the group of our services: root is given up later. That it cannot be is told
/// where the file cannot be written.
fn make_quota_folder(config: &Config) {
    if let Some(folder) = quota_folder(config).filter(|folder| !folder.exists()) {
        let made = std::fs::create_dir_all(&folder);
        let mode = std::fs::Permissions::from_mode(0o770);
        let made = made.and_then(|()| std::fs::set_permissions(&folder, mode));
        let _ = made.and_then(|()| chown(&folder, None, Some(manypath_io::GROUP)));
    }
}

/// Serves until a signal ends it.
pub(crate) fn run(args: ProxyArgs) -> Result<(), Failure> {
    let checked = configuration(&args)?;
    for warning in &checked.warnings {
        tracing::warn!("{warning}");
    }
    make_quota_folder(&checked.config);
    let confinement = Confinement::prepare(args.user.as_deref())?;
    let result = block_on(serve_until_signalled(args, checked, confinement));
    match result {
        // How a service manager ends a service that did nothing wrong.
        Err(failure) if failure.is_by(Signal::TERMINATE) => Ok(()),
        other => other,
    }
}

async fn serve_until_signalled(
    args: ProxyArgs,
    checked: Checked,
    confinement: Confinement,
) -> Result<(), Failure> {
    let mut hangups = Hangups::new();
    let (asker, mut asked) = channel();
    let limits = &checked.config.limits;
    let purpose = Purpose::Service {
        keepalive: limits.keepalive,
    };
    let config = &checked.config;
    let named = &args.stack.paths;
    let paths = wanted(named, &config.paths, config.routed);
    let mut sockets = open_sockets(&args.stack, paths, &kinds(config), purpose)?;
    sockets.limiter.insist_on(named);
    if let Some(via) = &checked.config.via {
        sockets.via = Some(via.open().map_err(Failure::usage)?);
    }
    sockets.connect_timeout = limits.connect_time;
    let title = match &args.config {
        Some(file) => format!("proxy by {}", file.display()),
        None => "proxy".to_owned(),
    };
    let control = Server::start(
        title,
        Configured::new(
            sockets.stack.clone(),
            asker,
            sockets.limiter.clone(),
            whole_path(args.config.as_ref()),
        ),
    )
    .inspect_err(|error| {
        tracing::warn!(%error, "`manypath status` and `manypath reload` will not see this process");
    })
    .ok();
    let opened = crate::commands::Opened::new(sockets, control);
    let taking = Taking::prepare(&specs_of(&checked))?;
    let (readable, writable) = folders(args.config.as_ref(), &checked);
    confinement.enter_with(&opened, &readable, writable)?;
    warn_of_unreadable(&args);
    let host = opened.sockets.stack.clone();
    let limits = OfLimits {
        host: host.clone(),
        limiter: opened.sockets.limiter.clone(),
    };
    let limiter = opened.sockets.limiter.clone();
    let of_stack = host.map(|host| Box::new(OfStack { host, limiter }) as _);
    let collectors = of_stack.into_iter().chain([Box::new(limits) as _]);
    let metrics = Arc::new(Metrics::new(collectors.collect()));
    let starting = Service::start(
        args.config,
        checked,
        opened.sockets.clone(),
        metrics,
        taking,
    );
    let mut service = unless_stopped(async { Ok(starting.await?) }).await?;
    tell(&service);
    let keeper = {
        let stack = opened.sockets.stack.clone();
        let observatory = Arc::clone(service.observatory());
        Keeper::start(move || {
            let carried = Load {
                open: observatory.open(),
                ever: observatory.accepted(),
            };
            Load::of_stack(stack.as_ref()).and(carried)
        })
    };
    let ended_by = run_service(&mut service, &mut hangups, &mut asked).await;
    drop(keeper);
    let observatory = Arc::clone(service.observatory());
    let open = observatory.open();
    service.stop().await;
    opened.close().await;
    say(&format!(
        "manypath: {} connections, {open} open at the end",
        observatory.accepted()
    ));
    Err(ended_by.failure())
}

async fn run_service(service: &mut Service, hangups: &mut Hangups, asked: &mut Asked) -> Signal {
    let end = ending();
    tokio::pin!(end);
    loop {
        tokio::select! {
            signal = &mut end => return signal,
            () = hangups.next() => {
                // It tells the log what came of it.
                let _ = service.reload().await;
            }
            reply = asked.next() => {
                let _ = reply.send(service.reload().await);
            }
        }
    }
}

/// Says where it listens: with port 0, on which port.
fn tell(service: &Service) {
    for listening in service.listeners() {
        say(&format!(
            "manypath: {} listens on {}",
            listening.name, listening.address
        ));
    }
    if let Some(at) = service.metrics() {
        say(&format!("manypath: metrics on {at}"));
    }
}

/// A reload reads the files as who the service is then.
fn warn_of_unreadable(args: &ProxyArgs) {
    let Some(file) = &args.config else { return };
    if let Err(faults) = read_file(file) {
        tracing::warn!(
            "a reload would fail, as the service is not root any more: {faults}; let its user or group read these files, or say --user"
        );
    }
}

/// Asks a running proxy to read its file anew.
pub(crate) fn run_reload(args: &ReloadArgs) -> Result<(), Failure> {
    let pid = args.pid;
    block_on(unless_stopped(async move {
        let socket = ctl::socket_of(pid).await?;
        let mut client = Client::connect_at(&socket)
            .await
            .map_err(|e| ctl::lost(&e))?;
        match client.ask(Request::Reload).await {
            Ok(Reply::Error { message, .. }) => Err(Failure::new(Code::Failure, message)),
            Ok(_) => Ok(()),
            Err(error) => Err(ctl::lost(&error)),
        }
    }))
}
