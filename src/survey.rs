//! A few looks at servers by a command that comes and goes: each look is one snapshot.
//!
//! An edge. It looks through a running exporter, or connects by itself and folds samples as the
//! poller does; whoever asks gets the same kind of snapshot either way. It asks no database for
//! values and tables: that takes longer than a few looks are worth. A server that cannot be
//! looked at is in the snapshot as down, with the reason, and is tried again at the next look.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{MissedTickBehavior, timeout};

use crate::client::{self, ReadError};
use crate::config::{self, Applications, Limits, Thresholds};
use crate::fold::Fold;
use crate::poller::{PoolerWatch, local_now};
use crate::postgres::{Connection, PollError};
use crate::registry::{HashCheck, Registry};
use crate::sample::Sample;
use crate::snapshot::{Server, Snapshot};
use crate::view::{Failure, View};

/// Shorter pauses would measure the looking.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// What is looked at.
pub enum Survey {
    /// A running exporter, and all that it watches.
    Exporter(client::Exporter),
    /// Servers, over connections of our own.
    Servers(Vec<Watch>),
}

/// One server and what was seen of it so far.
pub struct Watch {
    server: config::Server,
    limit: Duration,
    fold: Fold,
    view: View,
    connection: Option<Connection>,
    /// Of this connection.
    pooler: PoolerWatch,
    /// Names were read once: what must be held is looked for in databases that nobody locks in.
    has_names: bool,
    /// The hashes that the server was asked for.
    hashes_asked: Option<Arc<[HashCheck]>>,
}

impl Survey {
    /// Servers to connect to; nothing is done yet. A poll is given up after `limit`.
    pub fn of_servers(
        servers: Vec<config::Server>,
        limit: Duration,
        registry: &Arc<Registry>,
        applications: &Arc<Applications>,
        limits: &Limits,
        thresholds: Thresholds,
    ) -> Self {
        let watch = |server: config::Server| {
            let name: Arc<str> = server.name.as_str().into();
            let (registry, applications) = (registry.clone(), applications.clone());
            let fold = Fold::new(name.clone(), registry, applications, limits, thresholds)
                .with_poolers(server.poolers.clone());
            let view = View { server: name, ..View::default() };
            Watch {
                server,
                limit,
                fold,
                view,
                connection: None,
                pooler: PoolerWatch::new(),
                has_names: false,
                hashes_asked: None,
            }
        };
        Self::Servers(servers.into_iter().map(watch).collect())
    }

    /// Looks so many times, at this pace, and hands out each snapshot. Dropped before its end it
    /// leaves nothing behind.
    pub async fn look(
        &mut self,
        samples: NonZeroU32,
        interval: Duration,
        mut observe: impl FnMut(Snapshot),
    ) -> Result<(), ReadError> {
        let mut ticks = tokio::time::interval(interval.max(SHORTEST_INTERVAL));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 0..samples.get() {
            ticks.tick().await;
            observe(self.fetch_snapshot(2 * interval).await?);
        }
        Ok(())
    }

    /// Looks once. An error is one of the exporter's; servers have theirs in the snapshot. The look
    /// stands for the time since the one before, up to `longest_gap`.
    pub async fn fetch_snapshot(&mut self, longest_gap: Duration) -> Result<Snapshot, ReadError> {
        match self {
            Self::Exporter(exporter) => exporter.fetch_snapshot().await,
            Self::Servers(watches) => {
                let looks = watches.iter_mut().map(|watch| watch.fetch_server(longest_gap));
                Ok(Snapshot { servers: join_all(looks).await })
            }
        }
    }
}

impl Watch {
    async fn fetch_server(&mut self, longest_gap: Duration) -> Server {
        match self.fetch_sample().await {
            Ok(sample) => {
                self.fold.observe_pooled_connection(self.pooler.verdict() == Some(true));
                let picture = self.fold.observe(&sample, longest_gap);
                self.fold.fill(&mut self.view);
                self.view.pooled_connection = self.pooler.verdict();
                self.view.failure = None;
                self.view.picture = Some(picture);
            }
            Err(error) => {
                let text = error.to_string().into();
                self.view.failure = Some(Failure { reason: error.reason(), text });
                self.view.picture = None;
            }
        }
        // However long names took to read, this picture was just drawn.
        let now = self.view.picture.as_ref().map_or_else(local_now, |picture| picture.at_local);
        Server::of(&self.view, now, true)
    }

    async fn fetch_sample(&mut self) -> Result<Sample, PollError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let sample = match connection.fetch_sample(self.limit).await {
            Ok(sample) => sample,
            Err(error) => {
                if connection.is_usable(&error) {
                    self.connection = Some(connection);
                }
                return Err(error);
            }
        };
        self.pooler.observe(&sample, connection.opened_at());
        if !self.has_names || !self.fold.nameless(&sample).is_empty() {
            // Without names the sample is still worth showing; only the connection may be lost.
            match connection.fetch_names().await {
                Ok(names) => {
                    self.fold.observe_names(names);
                    self.has_names = true;
                }
                Err(error) if connection.is_usable(&error) => {}
                Err(_) => return Ok(sample),
            }
        }
        // The server's own hashes are what its sessions lock.
        let checks = self.fold.hash_checks();
        if self.hashes_asked.as_ref() != Some(checks) {
            self.hashes_asked = Some(checks.clone());
            match connection.fetch_hash_mismatches(checks).await {
                Ok(mismatches) => self.fold.observe_server_hashes(mismatches),
                Err(error) if connection.is_usable(&error) => {}
                Err(_) => return Ok(sample),
            }
        }
        self.connection = Some(connection);
        Ok(sample)
    }

    async fn connect(&mut self) -> Result<Connection, PollError> {
        let patience = self.server.dsn.connect_timeout();
        let connecting = timeout(patience, Connection::connect(&self.server.dsn));
        let mut connection =
            connecting.await.map_err(|_| PollError::ConnectTimeout(patience))??;
        self.pooler = PoolerWatch::new();
        self.hashes_asked = None;
        // What the server does not tell of itself stays unknown.
        match connection.fetch_facts().await {
            Ok(()) => {
                self.view.facts = connection.facts().clone();
                self.fold.observe_table_capacity(self.view.facts.table_capacity);
            }
            Err(error) if connection.is_usable(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(connection)
    }
}
