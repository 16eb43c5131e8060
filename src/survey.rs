//! A few looks at servers by a command that comes and goes: each look is one snapshot.
//!
//! An edge. It looks through a running exporter, or has pollers of its own that poll when they are
//! asked to; whoever asks gets the same kind of snapshot either way. It asks no database for
//! values and tables: that takes longer than a few looks are worth. A server that cannot be
//! looked at is in the snapshot as down, with the reason, and is tried again at the next look.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, timeout};

use crate::backoff::Backoff;
use crate::check::privilege::Asked;
use crate::client::{self, ReadError};
use crate::config::{self, Applications, Limits, Thresholds};
use crate::poller::{Pace, Poller, PoolerWatch, local_now};
use crate::postgres::{Connection, PollError};
use crate::privilege::Privileges;
use crate::registry::Registry;
use crate::reload::Loaded;
use crate::snapshot::{Server, Snapshot};
use crate::view::View;

/// Shorter pauses would measure the looking.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// What is looked at.
pub enum Survey {
    /// A running exporter, and all that it watches.
    Exporter(client::Exporter),
    /// Servers, over connections of our own.
    Servers(Looks),
}

/// Servers, each with a poller that polls when it is asked to.
pub struct Looks {
    /// Those that do not run yet.
    pollers: Vec<Poller>,
    running: JoinSet<std::convert::Infallible>,
    pace: watch::Sender<Pace>,
    views: Vec<watch::Receiver<Arc<View>>>,
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
        // Nobody polls for long here: the looks are as many and as far apart as they were asked for.
        let rhythm = config::Poll { interval: SHORTEST_INTERVAL, timeout: limit, max_share: 1.0 };
        let pace =
            watch::Sender::new(Pace { interval: rhythm.interval, is_paused: true, asked: 0 });
        let loaded = watch::Sender::new(Loaded {
            registry: registry.clone(),
            read_at: local_now(),
            is_current: true,
        });
        let poller = |server: config::Server| {
            let (loaded, applications) = (loaded.subscribe(), applications.clone());
            let backoff = Backoff::default();
            let (poller, view) =
                Poller::new(server, rhythm, loaded, applications, limits, thresholds, backoff);
            (poller.with_pace(pace.subscribe()), view)
        };
        let (pollers, views) = servers.into_iter().map(poller).unzip();
        Self::Servers(Looks { pollers, running: JoinSet::new(), pace, views })
    }

    /// Looks so many times, at this pace, and hands out each snapshot. Dropped before its end it
    /// leaves nothing behind.
    ///
    /// # Panics
    ///
    /// When a poller does.
    pub async fn look(
        &mut self,
        samples: NonZeroU32,
        interval: Duration,
        mut observe: impl FnMut(Snapshot),
    ) -> Result<(), ReadError> {
        let interval = interval.max(SHORTEST_INTERVAL);
        if let Self::Servers(looks) = self {
            // A look stands for the time since the one before, up to two of these.
            looks.pace.send_modify(|pace| pace.interval = interval);
        }
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 0..samples.get() {
            ticks.tick().await;
            observe(self.fetch_snapshot().await?);
        }
        Ok(())
    }

    /// Looks once. An error is one of the exporter's; servers have theirs in the snapshot.
    async fn fetch_snapshot(&mut self) -> Result<Snapshot, ReadError> {
        match self {
            Self::Exporter(exporter) => exporter.fetch_snapshot().await,
            Self::Servers(looks) => {
                let mut all = Snapshot::default();
                for view in looks.fetch_views().await {
                    // However long names took to read, this picture was just drawn.
                    let now = view.picture.as_ref().map_or_else(local_now, |it| it.at_local);
                    all.servers.push(Server::of(&view, now, true));
                }
                Ok(all)
            }
        }
    }
}

impl Looks {
    /// Asks for a poll of every server, and waits for all of them.
    async fn fetch_views(&mut self) -> Vec<Arc<View>> {
        for poller in self.pollers.drain(..) {
            self.running.spawn(poller.run());
        }
        let looks: Vec<_> =
            self.views.iter().map(|view| (view.clone(), view.borrow().polls.total)).collect();
        self.pace.send_modify(|pace| pace.asked += 1);
        let looks = join_all(looks.into_iter().map(async |(mut view, before)| {
            match view.wait_for(|view| view.polls.total > before).await {
                Ok(view) => view.clone(),
                // Its poller is gone, of which the others are told below.
                Err(_) => std::future::pending().await,
            }
        }));
        tokio::select! {
            views = looks => views,
            Some(ended) = self.running.join_next() => match ended {
                Ok(never) => match never {},
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
        }
    }
}

/// What the role may do on each of these servers, all asked at once. A poll is given up after `limit`.
pub async fn ask_privileges(servers: Vec<config::Server>, limit: Duration) -> Vec<Asked> {
    join_all(servers.into_iter().map(async |server| {
        let patience = server.dsn.connect_patience();
        let answer = match timeout(patience, Connection::connect(&server.dsn)).await {
            Ok(Ok(connection)) => ask_role(connection, limit).await,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(PollError::ConnectTimeout(patience)),
        };
        let (answer, pooler) = match answer {
            Ok((privileges, pooler)) => (Ok(privileges), pooler),
            Err(error) => (Err(error.to_string()), None),
        };
        let is_inspected = !server.inspect.is_empty();
        Asked { server: server.name, answer, pooler, is_inspected }
    }))
    .await
}

/// What the role may do, and what proves a pooler before it.
async fn ask_role(
    mut connection: Connection,
    limit: Duration,
) -> Result<(Privileges, Option<&'static str>), PollError> {
    let mut pooler = PoolerWatch::new();
    // Two, since a pooler may show by another backend.
    for _ in 0..2 {
        let sample = connection.fetch_sample(limit).await?;
        pooler.observe(&sample, connection.opened_at());
    }
    Ok((connection.fetch_privileges().await?, pooler.proof))
}
