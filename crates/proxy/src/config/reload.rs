//! A configuration in force, and the next one in its place: all of it or nothing, without dropping a connection.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use manypath_io::Host;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

use super::check::{self, Checked, kinds};
use super::{Config, MetricsAt};
use crate::Error;
use crate::endpoint::Proto;
use crate::limits::{Classes, Limiter};
use crate::observe::metrics::Metrics;
use crate::observe::sink::Sink;
use crate::observe::{self, Observatory};
use crate::serve::{ListenerSpec, Listening, Observer, Policy, Server};
use crate::sockets::Sockets;
use crate::taking::Taking;

/// Reloads that may wait: whoever asks while so many do is answered by none of them.
const WAITING: usize = 8;

/// Asks a [`Service`] to read its file anew.
#[derive(Clone, Debug)]
pub struct Asker(mpsc::Sender<oneshot::Sender<Result<(), String>>>);

/// What a [`Service`] is asked by.
#[derive(Debug)]
pub struct Asked(mpsc::Receiver<oneshot::Sender<Result<(), String>>>);

/// Both ends.
#[must_use]
pub fn channel() -> (Asker, Asked) {
    let (ask, asked) = mpsc::channel(WAITING);
    (Asker(ask), Asked(asked))
}

impl Asker {
    /// Waits until the file is in force.
    ///
    /// # Errors
    /// It is not, and why: then the configuration before it is.
    pub async fn reload(&self) -> Result<(), String> {
        const OVER: &str = "the process is about to end";
        let (reply, replied) = oneshot::channel();
        self.0.send(reply).await.map_err(|_| OVER.to_owned())?;
        replied.await.map_err(|_| OVER.to_owned())?
    }
}

impl Asked {
    /// The next one who asks: what has come of it is told through what is returned. Waits for ever when nobody is left to ask.
    pub async fn next(&mut self) -> oneshot::Sender<Result<(), String>> {
        match self.0.recv().await {
            Some(reply) => reply,
            None => std::future::pending().await,
        }
    }
}

/// Listeners, metrics and access log as a configuration has them.
pub struct Service {
    /// Where it was read; `None` where the command line says it all.
    file: Option<PathBuf>,
    in_force: Checked,
    server: Server,
    sockets: Sockets,
    observatory: Arc<Observatory>,
    metrics: Option<observe::serve::Server>,
    ready: Arc<AtomicBool>,
    stack: Option<Host>,
    limiter: Limiter,
    taking: Taking,
    /// Gives interfaces that come their limits.
    _follows: Option<AbortOnDrop>,
    /// Counts quotas.
    _keeps: AbortOnDrop,
}

/// A task that ends with this.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Gives interfaces that come their limits, as long as the stack is there.
fn follow(limiter: Limiter, stack: Host) -> AbortOnDrop {
    let mut changes = stack.host_changes();
    AbortOnDrop(tokio::spawn(async move {
        while changes.changed().await.is_ok() {
            limiter.follow(&stack);
        }
    }))
}

impl Service {
    /// Begins to listen, to log and to serve metrics, and has connections turned to transparent listeners, which `taking` was
    /// prepared for.
    ///
    /// # Errors
    /// A place cannot be listened on, a certificate not be used, a log not be opened, a connection not be turned.
    pub async fn start(
        file: Option<PathBuf>,
        checked: Checked,
        sockets: Sockets,
        metrics: Arc<Metrics>,
        mut taking: Taking,
    ) -> Result<Self, Error> {
        let observatory = Arc::new(Observatory::new(Arc::clone(&metrics)));
        observatory.log_to(open_log(&checked)?);
        let ready = Arc::new(AtomicBool::new(false));
        let shown = match &checked.config.metrics {
            Some(at) => Some(show(at, &metrics, &ready).await?),
            None => None,
        };
        let (limiter, stack) = (sockets.limiter.clone(), sockets.stack.clone());
        refuse_behind_tun(stack.as_ref(), &checked.config)
            .map_err(|e| Error::new("limit the paths", e))?;
        let classes = limiter.apply(stack.as_ref(), &checked.config.classes);
        if let Some(stack) = &stack {
            let Config {
                paths,
                routes,
                routed,
                ..
            } = &checked.config;
            limiter.apply_paths(stack, paths, routes, *routed);
        }
        limiter.apply_quotas(stack.as_ref(), &checked.config.quota_file);
        let keeps = limiter.clone().keep(stack.clone());
        let keeps = AbortOnDrop(tokio::spawn(keeps));
        let follows = stack.clone().map(|stack| follow(limiter.clone(), stack));
        let policy = Arc::new(policy_of(&checked, classes));
        let observer: Arc<dyn Observer> = Arc::clone(&observatory) as _;
        sockets.use_name_servers(&checked.config.name_servers);
        let mut server = Server::new(sockets.clone(), observer, Arc::clone(&policy));
        server.set_trust(checked.trust.clone());
        server.set_most(checked.config.limits.total);
        server.begin(specs_of(&checked), policy).await?;
        taking.apply(&specs_of(&checked))?;
        ready.store(true, Ordering::Relaxed);
        Ok(Self {
            file,
            in_force: checked,
            server,
            sockets,
            observatory,
            metrics: shown,
            ready,
            stack,
            limiter,
            taking,
            _follows: follows,
            _keeps: keeps,
        })
    }

    /// The listeners that are there.
    #[must_use]
    pub fn listeners(&self) -> Vec<Listening> {
        self.server.listeners()
    }

    /// Where metrics are served, port 0 replaced by the one that was found.
    #[must_use]
    pub fn metrics(&self) -> Option<&MetricsAt> {
        self.metrics.as_ref().map(observe::serve::Server::bound)
    }

    /// What is told of connections.
    #[must_use]
    pub fn observatory(&self) -> &Arc<Observatory> {
        &self.observatory
    }

    /// Reads the file anew and puts it in force. What has changed holds for new connections and requests; listeners that it has
    /// no more take no new ones, and what they carry goes on. The access log is opened anew. Tells the log and the metrics what
    /// came of it.
    ///
    /// # Errors
    /// Everything that is wrong: then all is as it was.
    pub async fn reload(&mut self) -> Result<(), String> {
        let result = self.try_reload().await;
        self.observatory.metrics().reloaded(result.is_ok());
        match &result {
            Ok(()) if self.file.is_none() => info!(
                "there is no configuration file to read anew: the command line stays in force, and the access log was opened anew"
            ),
            Ok(()) => info!("the configuration was read anew and is in force"),
            Err(why) => error!("the configuration before stays in force: {why}"),
        }
        result
    }

    async fn try_reload(&mut self) -> Result<(), String> {
        let Some(file) = self.file.clone() else {
            // Nothing of the command line can have changed, and the log may have been moved away.
            return self.reopen_log().await;
        };
        let new = read_file(&file).await?;
        if kinds(&new.config).contains(&Proto::Mptcp) && self.stack.is_none() {
            return Err("our stack is set up at the start alone, and nothing was mptcp then: restart to have it".to_owned());
        }
        refuse_behind_tun(self.stack.as_ref(), &new.config).map_err(|e| e.to_string())?;
        let log = &new.config.log;
        let same_log = *log == self.in_force.config.log;
        let opened = match same_log {
            true => None,
            false => Some(open_log(&new).map_err(|e| e.to_string())?),
        };
        let at = &new.config.metrics;
        let shown = match at {
            Some(at) if self.in_force.config.metrics.as_ref() != Some(at) => {
                let shown = show(at, self.observatory.metrics(), &self.ready).await;
                Some(shown.map_err(|e| e.to_string())?)
            }
            Some(_) | None => None,
        };
        // Limits that are in force already when something else fails are put back.
        let classes = self.limit(&new);
        let policy = Arc::new(policy_of(&new, classes));
        let applied = self.server.apply(specs_of(&new), policy).await;
        if let Err(error) = applied {
            self.limit(&self.in_force);
            return Err(error.to_string());
        }
        // Nothing is turned to a listener before it is there.
        if let Err(error) = self.taking.apply(&specs_of(&new)) {
            let policy = Arc::new(policy_of(&self.in_force, self.limit(&self.in_force)));
            if let Err(error) = self.server.apply(specs_of(&self.in_force), policy).await {
                error!("the listeners before are not put back, restart: {error}");
            }
            return Err(error.to_string());
        }
        // From here on nothing can fail.
        self.server.set_trust(new.trust.clone());
        self.server.set_most(new.config.limits.total);
        self.sockets.use_name_servers(&new.config.name_servers);
        match opened {
            Some(opened) => self.observatory.log_to(opened),
            None => {
                if let Err(error) = self.reopen_log().await {
                    warn!("{error}");
                }
            }
        }
        if shown.is_some() || at.is_none() {
            self.metrics = shown;
        }
        warn_of_later(&self.in_force, &new);
        for warning in &new.warnings {
            warn!("{warning}");
        }
        self.in_force = new;
        Ok(())
    }

    /// Puts the limits of a configuration in force.
    fn limit(&self, checked: &Checked) -> Classes {
        let stack = self.stack.as_ref();
        if let Some(stack) = stack {
            let Config {
                paths,
                routes,
                routed,
                ..
            } = &checked.config;
            self.limiter.apply_paths(stack, paths, routes, *routed);
        }
        let classes = self.limiter.apply(stack, &checked.config.classes);
        self.limiter.apply_quotas(stack, &checked.config.quota_file);
        classes
    }

    async fn reopen_log(&self) -> Result<(), String> {
        let Some(log) = self.observatory.log() else {
            return Ok(());
        };
        let reopened = tokio::task::spawn_blocking(move || log.reopen()).await;
        let reopened = reopened.unwrap_or_else(|panic| Err(io::Error::other(panic)));
        reopened.map_err(|error| {
            format!("the access log cannot be opened anew and goes on where it is: {error}")
        })
    }

    /// Ends: connections that are open are reset. New ones of clients whose connections were taken go their own way from here on.
    pub async fn stop(self) {
        self.ready.store(false, Ordering::Relaxed);
        drop(self.taking);
        self.server.stop().await;
        self.limiter.close(self.stack.as_ref());
    }
}

/// Behind a TUN device all paths share one device.
fn refuse_behind_tun(stack: Option<&Host>, config: &Config) -> io::Result<()> {
    let behind = stack.is_some_and(Host::is_translated);
    let limited = config.paths.iter().find(|path| behind && path.is_limited());
    match limited {
        Some(path) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "[path.{}]: behind a TUN device all paths share one device, and none can have a limit of its own; use --attach packet",
                path.name
            ),
        )),
        None => Ok(()),
    }
}

/// Files are read where it may block.
async fn read_file(file: &Path) -> Result<Checked, String> {
    let file = file.to_owned();
    let read = tokio::task::spawn_blocking(move || check::read_file(&file)).await;
    let read = read.map_err(|panic| panic.to_string())?;
    read.map_err(|faults| faults.to_string())
}

/// What holds from the next start only.
fn warn_of_later(old: &Checked, new: &Checked) {
    if old.config.via != new.config.via {
        warn!("[via] holds from the next start");
    }
    let (old, new) = (&old.config.limits, &new.config.limits);
    if (old.connect_time, old.keepalive) != (new.connect_time, new.keepalive) {
        warn!("`connect_time` and `tcp_keepalive` of [limits] hold from the next start");
    }
}

/// What the listeners of a configuration are.
#[must_use]
pub fn specs_of(checked: &Checked) -> Vec<ListenerSpec> {
    let listeners = checked.config.listeners.iter();
    listeners.map(|listen| listen.spec.clone()).collect()
}

fn policy_of(checked: &Checked, classes: Classes) -> Policy {
    let listeners = checked.config.listeners.iter();
    let users: HashMap<_, _> = listeners
        .filter_map(|listen| {
            let users = checked.users_of(listen)?;
            Some((Arc::clone(&listen.spec.name), users))
        })
        .collect();
    Policy::new(checked.config.rules.clone(), users).with_classes(classes)
}

fn open_log(checked: &Checked) -> Result<Option<Sink>, Error> {
    let log = &checked.config.log;
    Sink::open(log).map_err(|e| Error::new(format!("open the access log {}", log.access), e))
}

async fn show(
    at: &MetricsAt,
    metrics: &Arc<Metrics>,
    ready: &Arc<AtomicBool>,
) -> Result<observe::serve::Server, Error> {
    let started = observe::serve::Server::start(at, Arc::clone(metrics), Arc::clone(ready)).await;
    started.map_err(|e| Error::new(format!("serve metrics on {at}"), e))
}
