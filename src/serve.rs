//! `locks serve`: a poller for each server, one HTTP server over what they publish.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::config::Config;
use crate::event::{Filter, render_events};
use crate::metrics::exposition::{Format, render_families};
use crate::metrics::{MetricFamily, Process, collect_families, collect_server_families};
use crate::page::{self, render_page};
use crate::poller::local_now;
use crate::reload::config::{ConfigFile, Reading};
use crate::reload::{Loaded, RegistryFiles};
use crate::server::{self, Content, Policy, Probe, WebConfigFile};
use crate::servers::{Servers, Views};
use crate::snapshot::{Snapshot, render_snapshot};
use crate::state::StateFile;
use crate::systemd;
use crate::view::View;

/// At the end, the file system gets so long to take the last state.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Files that live while the program runs, those that are read again with the signal that asks for it.
pub struct Files {
    /// Names of keys.
    pub registry: (RegistryFiles, Signal),
    /// What a restart remembers.
    pub state: Option<StateFile>,
    /// The configuration.
    pub config: Option<(ConfigFile, Signal)>,
    /// How to serve.
    pub web: Option<WebConfigFile>,
}

/// Polls and serves until `shutdown` is done. The registry's files and the configuration file are
/// watched, and read again when their signal says so; the web configuration is watched; the state file
/// is written.
///
/// # Panics
///
/// When a poller, an inspector, the watch over the files or the state file panics: half an exporter
/// that looks whole would be worse than none.
pub async fn serve(
    config: Config,
    files: Files,
    listeners: Vec<TcpListener>,
    shutdown: impl Future<Output = ()>,
) {
    let Files { registry, state: state_file, config: config_file, web } = files;
    let (registry_files, hangup) = registry;
    let registry = registry_files.subscribe();
    let mut servers = Servers::start(&config, registry.clone(), state_file.clone());
    let views = servers.subscribe();
    let mut tasks = JoinSet::new();
    let (registry_paths, paths) = watch::channel(config.registry_files.clone());
    let (send_change, mut changes) = mpsc::channel(1);
    let reading = config_file.as_ref().map(|(file, _)| file.subscribe());
    if let Some((file, hangup)) = config_file {
        tasks.spawn(file.run(hangup, send_change));
    }
    tasks.spawn(registry_files.run(hangup, paths));
    tasks.spawn(systemd::keep_alive());
    let mut options = server::Options {
        telemetry_path: config.web.telemetry_path,
        show_details: config.web.show_details,
        allowed_hosts: config.web.allowed_hosts,
        ..server::Options::default()
    };
    if let Some(file) = web {
        options.policy = file.subscribe();
        tasks.spawn(file.run());
    }
    announce(&listeners, &options.policy.borrow());
    systemd::notify_ready();
    let site = Arc::new(Site {
        telemetry_path: options.telemetry_path.clone(),
        views: views.clone(),
        registry,
        config: reading,
        was_ready: AtomicBool::new(false),
        snapshots: [Mutex::default(), Mutex::default()],
    });
    let mut serving = pin!(server::serve(listeners, site, options, shutdown));
    let mut keeping = pin!(keep(state_file.as_ref(), &views));
    loop {
        tokio::select! {
            () = &mut serving => break,
            Some(ended) = tasks.join_next() => match ended {
                Ok(never) => match never {},
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
            never = servers.ended() => match never {},
            never = &mut keeping => match never {},
            Some(config) = changes.recv() => {
                servers.apply(&config);
                registry_paths.send_if_modified(|paths| {
                    let before = std::mem::replace(paths, config.registry_files);
                    before != *paths
                });
            }
        }
    }
    if let Some(state) = &state_file
        && timeout(LAST_WRITE, state.save(&views)).await.is_err()
    {
        tracing::warn!("stopping without a last write of the state file, which takes too long");
    }
}

/// Says where is listened, and, where anybody on the network can ask, so.
fn announce(listeners: &[TcpListener], policy: &Policy) {
    let addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok());
    let mut is_open = false;
    for address in addresses {
        tracing::info!(%address, tls = policy.is_encrypted(), "listening");
        is_open |= !address.ip().to_canonical().is_loopback() && !policy.authenticates();
    }
    if is_open {
        tracing::info!(
            "whoever reaches this address can read the names of locks and applications: \
             --web.config.file can ask for a password"
        );
    }
}

async fn keep(state_file: Option<&StateFile>, views: &watch::Receiver<Views>) -> Infallible {
    match state_file {
        Some(state) => state.keep(views).await,
        None => std::future::pending().await,
    }
}

/// What there is to serve.
struct Site {
    telemetry_path: String,
    views: watch::Receiver<Views>,
    registry: watch::Receiver<Loaded>,
    config: Option<watch::Receiver<Reading>>,
    /// A server that is added later makes nobody wait.
    was_ready: AtomicBool,
    /// The last snapshot without details, and with: with very many locks it is large, and all who
    /// ask before the next poll get the same bytes.
    snapshots: [Mutex<LastAnswer>; 2],
}

#[derive(Default)]
struct LastAnswer {
    /// What it shows, and which of it was fresh then.
    shown: Vec<(Arc<View>, bool)>,
    body: Bytes,
}

impl LastAnswer {
    fn shows(&self, views: &[(Arc<View>, bool)]) -> bool {
        self.shown.len() == views.len()
            && self.shown.iter().zip(views).all(|((view, fresh), (now, fresh_now))| {
                Arc::ptr_eq(view, now) && fresh == fresh_now
            })
    }
}

impl Site {
    fn views(&self) -> Vec<Arc<View>> {
        let views = self.views.borrow().clone();
        views.iter().map(|view| view.borrow().clone()).collect()
    }
}

fn render(families: &[MetricFamily], format: Format) -> Bytes {
    let exposition = render_families(families, format);
    if exposition.dropped > 0 {
        tracing::error!(
            samples = exposition.dropped,
            "left samples out of a scrape that could not be told apart from others; this is a bug \
             in locks"
        );
    }
    exposition.text.into()
}

/// A group of targets as Prometheus discovers them over HTTP, of one: this exporter, asked for one
/// server by name.
#[derive(Serialize)]
struct Target<'a> {
    targets: [&'a str; 1],
    labels: Labels<'a>,
}

#[derive(Serialize)]
struct Labels<'a> {
    #[serde(rename = "__scheme__")]
    scheme: &'a str,
    #[serde(rename = "__metrics_path__")]
    metrics_path: &'a str,
    #[serde(rename = "__param_target")]
    target: &'a str,
    instance: &'a str,
}

impl Content for Site {
    fn metrics(&self, format: Format) -> Bytes {
        let views = self.views();
        // A copy, since a reader of the channel must not hold up its writer.
        let loaded = self.registry.borrow().clone();
        let process = Process {
            registry: &loaded.registry,
            registry_read_at: loaded.read_at,
            registry_is_current: loaded.is_current,
            config: self.config.as_ref().map(|reading| *reading.borrow()),
        };
        let families = collect_families(process, views.iter().map(|view| &**view), local_now());
        render(&families, format)
    }

    fn probe(&self, target: &str) -> Option<Probe> {
        let view = self.views().into_iter().find(|view| *view.server == *target)?;
        Some(Box::new(move |format| render(&collect_server_families(&view, local_now()), format)))
    }

    fn targets(&self, address: &str, is_encrypted: bool) -> Bytes {
        let views = self.views();
        let targets = views.iter().map(|view| Target {
            targets: [address],
            labels: Labels {
                scheme: if is_encrypted { "https" } else { "http" },
                metrics_path: "/probe",
                target: &view.server,
                instance: &view.server,
            },
        });
        let targets: Vec<Target<'_>> = targets.collect();
        serde_json::to_vec(&targets).expect("texts can be written as JSON").into()
    }

    fn snapshot(&self, details: bool) -> Bytes {
        let now = local_now();
        let shown: Vec<(Arc<View>, bool)> = self
            .views()
            .into_iter()
            .map(|view| (view.clone(), view.fresh_picture(now).is_some()))
            .collect();
        let last = &self.snapshots[usize::from(details)];
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if !last.shows(&shown) {
            let views = shown.iter().map(|(view, _)| &**view);
            let body = render_snapshot(&Snapshot::of(views, now, details)).into();
            *last = LastAnswer { shown, body };
        }
        last.body.clone()
    }

    fn events(&self, filter: &Filter, details: bool) -> Bytes {
        let views = self.views();
        render_events(views.iter().map(|view| &**view), filter, details).into()
    }

    fn page(&self, query: &page::Query, details: bool) -> Bytes {
        let now = local_now();
        let views = self.views();
        let snapshot = Snapshot::of(views.iter().map(|view| &**view), now, details);
        let site = page::Site { telemetry_path: &self.telemetry_path, details, now };
        render_page(&snapshot, query, site).into()
    }

    fn ready(&self) -> bool {
        let is_ready = self.was_ready.load(Ordering::Relaxed)
            || self.views().iter().all(|view| view.polls.total > 0);
        self.was_ready.store(is_ready, Ordering::Relaxed);
        is_ready
    }
}
