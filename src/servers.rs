//! The servers that are watched, each by a poller and an inspector of its own, and what becomes of
//! them when the configuration changes.
//!
//! A server that stays as it was goes on with its connection and all it knows; one that changed begins
//! anew, with what a restart would remember; of one that is gone nothing is left. It owns tasks and
//! knows no lock; what pollers publish goes to whoever subscribes.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::backoff::Backoff;
use crate::config::{Config, Limits, Rules, Server};
use crate::inspector::Inspector;
use crate::poller::Poller;
use crate::reload::Loaded;
use crate::state::{Section, StateFile};
use crate::view::View;

/// What each server's poller published last, in the order of the configuration.
pub type Views = Arc<[watch::Receiver<Arc<View>>]>;

/// The servers that are watched.
pub struct Servers {
    rules: watch::Sender<Rules>,
    fixed: Fixed,
    registry: watch::Receiver<Loaded>,
    state_file: Option<StateFile>,
    logs_events: bool,
    running: Vec<Running>,
    tasks: JoinSet<Infallible>,
    views: watch::Sender<Views>,
}

/// What stays until a restart: bounds hold for the life of the process.
#[derive(Debug, PartialEq)]
struct Fixed {
    limits: Limits,
    state_file: Option<PathBuf>,
}

impl Fixed {
    fn of(config: &Config) -> Self {
        Self { limits: config.limits, state_file: config.state_file.clone() }
    }
}

/// The keys of the configuration for which `differs` is true.
fn keys<const N: usize>(differs: [(&'static str, bool); N]) -> String {
    let names: Vec<&str> = differs.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
    names.join(", ")
}

struct Running {
    server: Server,
    view: watch::Receiver<Arc<View>>,
    tasks: [AbortHandle; 2],
}

impl Servers {
    /// Begins to watch what the configuration names.
    pub fn start(
        config: &Config,
        registry: watch::Receiver<Loaded>,
        state_file: Option<StateFile>,
    ) -> Self {
        let mut servers = Self {
            rules: watch::Sender::new(config.rules()),
            fixed: Fixed::of(config),
            registry,
            state_file,
            logs_events: config.logs_events,
            running: Vec::new(),
            tasks: JoinSet::new(),
            views: watch::Sender::new(Arc::from([])),
        };
        for server in &config.servers {
            let running = servers.watch(server.clone(), None);
            servers.running.push(running);
        }
        servers.publish();
        servers
    }

    /// The views, now and after each change of the configuration.
    pub fn subscribe(&self) -> watch::Receiver<Views> {
        self.views.subscribe()
    }

    /// Goes on with another configuration. What cannot change while the program runs is told.
    pub fn apply(&mut self, config: &Config) {
        let mut before = std::mem::take(&mut self.running);
        let (mut added, mut changed, mut kept) = (Vec::new(), Vec::new(), 0_usize);
        for server in &config.servers {
            let old = before.iter().position(|running| running.server.name == server.name);
            let running = match old.map(|index| before.swap_remove(index)) {
                Some(running) if running.server == *server => {
                    kept += 1;
                    running
                }
                Some(running) => {
                    changed.push(server.name.as_str());
                    running.end();
                    let section = Section::of(&running.view.borrow());
                    self.watch(server.clone(), section)
                }
                None => {
                    added.push(server.name.as_str());
                    self.watch(server.clone(), None)
                }
            };
            self.running.push(running);
        }
        let removed: Vec<&str> =
            before.iter().map(|running| running.server.name.as_str()).collect();
        before.iter().for_each(Running::end);
        tracing::info!(
            added = added.join(", "),
            changed = changed.join(", "),
            removed = removed.join(", "),
            unchanged = kept,
            keys = self.apply_rules(config.rules()),
            "reloaded the configuration"
        );
        let fixed = Fixed::of(config);
        let late = keys([
            ("limits", fixed.limits != self.fixed.limits),
            ("state_file", fixed.state_file != self.fixed.state_file),
        ]);
        if !late.is_empty() {
            tracing::warn!(
                keys = late,
                "these keys of the configuration changed, which only a restart applies"
            );
        }
        self.publish();
    }

    /// Goes on by other rules. Returns the keys of the configuration that changed.
    fn apply_rules(&self, rules: Rules) -> String {
        let before = self.rules.borrow().clone();
        let changed = keys([
            ("poll", before.poll != rules.poll),
            ("applications", before.applications != rules.applications),
            ("thresholds", before.thresholds != rules.thresholds),
        ]);
        self.rules.send_if_modified(|now| std::mem::replace(now, rules) != *now);
        changed
    }

    /// Ends when a task does, which is by a panic, and passes it on.
    pub async fn ended(&mut self) -> Infallible {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(never)) => match never {},
                // Of a server that is not watched any more.
                Some(Err(error)) if error.is_cancelled() => {}
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => std::future::pending().await,
            }
        }
    }

    fn watch(&mut self, server: Server, section: Option<Section>) -> Running {
        let (inspector, inspected) = Inspector::new(server.clone(), self.registry.clone());
        let Rules { poll, applications, thresholds } = self.rules.borrow().clone();
        let (poller, view) = Poller::new(
            server.clone(),
            poll,
            self.registry.clone(),
            applications,
            &self.fixed.limits,
            thresholds,
            Backoff::default(),
        );
        let poller = poller.with_rules(self.rules.subscribe());
        let remembered = || self.state_file.as_ref()?.section(&server.name);
        let poller = poller.with_inspected(inspected).with_memory(section.or_else(remembered));
        let poller = if self.logs_events { poller.with_events_logged() } else { poller };
        let tasks = [self.tasks.spawn(inspector.run()), self.tasks.spawn(poller.run())];
        Running { server, view, tasks }
    }

    fn publish(&self) {
        self.views.send_replace(self.running.iter().map(|running| running.view.clone()).collect());
    }
}

impl Running {
    /// Ends the tasks, and their connections with them.
    fn end(&self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
