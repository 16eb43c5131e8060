//! Where the pictures come from: pollers of our own, with what an exporter remembers of the same
//! servers, or an exporter alone.
//!
//! An edge. All of it lives on a thread of its own, so that no picture, however large, holds up a
//! key; what comes out is [`Watched`], the latest of each server. A server that is lost keeps its
//! last picture, marked. What of an exporter's picture may be taken over into ours is `merge`'s
//! business, and what is done about a picture is the loop's in [`top`](super).

use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::backoff::Backoff;
use crate::client::{self, ReadError};
use crate::config::{self, Applications, Limits, Thresholds};
use crate::event::{Filter, render_events};
use crate::poller::{Pace, Poller, Turns, local_now, now};
use crate::registry::Registry;
use crate::reload::Loaded;
use crate::snapshot::{ParseSnapshotError, Server, Snapshot};
use crate::table::row::LockId;
use crate::timestamp::Timestamp;
use crate::top::history::{History, of_database, parse_history};
use crate::top::merge::{self, Mismatch};
use crate::view::View;

/// An exporter that is asked for what it remembers is on this machine as a rule.
const MEMORY_PATIENCE: Duration = Duration::from_secs(1);

/// One that did not answer is asked again after this time.
const MEMORY_RETRY: Duration = Duration::from_secs(10);

/// Reading what an exporter remembers may take this part of the time.
const MEMORY_SHARE: u32 = 10;

/// So many events of a key are worth a look.
const HISTORY: usize = 200;

/// A server as it is known now.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The last picture that was up. Before the first it is not up, with the reason if there is one.
    pub server: Arc<Server>,
    /// Where it comes from.
    pub origin: Origin,
    /// When the picture was taken, on our clock; of an exporter's picture when it was first read.
    pub received_at: Timestamp,
    /// The picture is not of the present any more.
    pub lost: Option<Lost>,
    /// Between two pictures, as it is kept: longer than asked for where a poll takes the server long.
    pub interval: Duration,
}

impl AsRef<Server> for Watched {
    fn as_ref(&self) -> &Server {
        &self.server
    }
}

/// Since when there is no new picture, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// When that was noticed, on our clock.
    pub since: Timestamp,
    /// Why, in words.
    pub reason: Arc<str>,
}

/// Where a picture comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Our own connection alone, and why.
    Own(Alone),
    /// Our own connection, with the memory of an exporter that watches the same server.
    Remembered {
        /// Its address, without credentials.
        exporter: Arc<str>,
        /// The server's name there.
        name: Arc<str>,
        /// The first sample of that exporter, on the server's clock.
        since: Option<Timestamp>,
    },
    /// An exporter alone.
    Exporter {
        /// Its address, without credentials.
        exporter: Arc<str>,
    },
}

/// Why nothing that an exporter remembers is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alone {
    /// No exporter is to be asked.
    NotWanted,
    /// The exporter at this address has not answered yet.
    NotYet(Arc<str>),
    /// No program listens at this address.
    Nobody(Arc<str>),
    /// The exporter at this address asks for a password.
    Password(Arc<str>),
    /// The program at this address is no exporter.
    Foreign(Arc<str>),
    /// The exporter at this address gave no answer that can be used.
    Failed {
        /// Its address.
        exporter: Arc<str>,
        /// Why.
        reason: Arc<str>,
    },
    /// The exporter at this address does not watch this server, or does not see it at the moment.
    Mismatch {
        /// Its address.
        exporter: Arc<str>,
        /// Why.
        reason: Mismatch,
    },
}

impl Watched {
    /// Whether there was a picture at all.
    pub fn is_seen(&self) -> bool {
        self.server.up
    }

    /// The server as it is now, for scripts: one that is lost is down, and nothing old is told of it.
    pub fn present(&self) -> Arc<Server> {
        match &self.lost {
            Some(lost) => Arc::new(unseen(&self.server.server, Some(&lost.reason))),
            None => self.server.clone(),
        }
    }

    /// Whether all that was asked at the start has been answered, or will not be.
    pub fn is_settled(&self) -> bool {
        let is_answered = self.is_seen() || self.server.error.is_some();
        let is_alone = !self.is_seen() || !matches!(self.origin, Origin::Own(Alone::NotYet(_)));
        is_answered && is_alone
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(alone) => write!(f, "own connection ({alone})"),
            Self::Remembered { exporter, .. } => {
                write!(f, "own connection, with the memory of the exporter at {exporter}")
            }
            Self::Exporter { exporter } => write!(f, "exporter at {exporter}"),
        }
    }
}

impl fmt::Display for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWanted => f.write_str("no exporter is asked"),
            Self::NotYet(exporter) => write!(f, "no answer yet from {exporter}"),
            Self::Nobody(exporter) => write!(f, "no exporter at {exporter}"),
            Self::Password(exporter) => {
                write!(f, "the exporter at {exporter} asks for a password")
            }
            Self::Foreign(exporter) => write!(f, "another program than an exporter at {exporter}"),
            Self::Failed { exporter, reason } => {
                write!(f, "no use of the exporter at {exporter}: {reason}")
            }
            Self::Mismatch { exporter, reason } => {
                write!(f, "no use of the exporter at {exporter}: {reason}")
            }
        }
    }
}

/// What is watched.
pub enum Subject {
    /// Servers, over connections of our own.
    Servers(Targets),
    /// All that a running exporter watches.
    Exporter(client::Exporter),
}

/// Servers, and what is needed to understand them.
pub struct Targets {
    /// Which.
    pub servers: Vec<config::Server>,
    /// The rhythm of polls; its interval is the one to begin with.
    pub poll: config::Poll,
    /// Names of keys.
    pub registry: Arc<Registry>,
    /// How application names become labels.
    pub applications: Arc<Applications>,
    /// How many different values labels may take.
    pub limits: Limits,
    /// What is a finding.
    pub thresholds: Thresholds,
    /// Who may remember more, if anybody is to be asked.
    pub exporter: Option<client::Exporter>,
}

/// What makes the pictures, on its own thread.
pub struct Source {
    pictures: watch::Receiver<Vec<Watched>>,
    pace: watch::Sender<Pace>,
    questions: mpsc::UnboundedSender<Question>,
    thread: Option<JoinHandle<()>>,
}

/// The events of a key, and where they shall go.
struct Question {
    lock: LockId,
    answer: oneshot::Sender<History>,
}

impl Source {
    /// Starts the thread. Nothing is known yet, and every server to connect to is there as not seen.
    pub fn start(subject: Subject, interval: Duration) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let names: Vec<Arc<str>> = match &subject {
            Subject::Servers(targets) => {
                targets.servers.iter().map(|server| server.name.as_str().into()).collect()
            }
            Subject::Exporter(exporter) => vec![exporter.to_string().into()],
        };
        let origin = match &subject {
            Subject::Servers(targets) => Origin::Own(Alone::before(targets.exporter.as_ref())),
            Subject::Exporter(exporter) => {
                Origin::Exporter { exporter: exporter.to_string().into() }
            }
        };
        let unseen = |name: Arc<str>| Watched {
            server: Arc::new(unseen(&name, None)),
            origin: origin.clone(),
            received_at: local_now(),
            lost: None,
            interval,
        };
        let shown = Arc::new(watch::Sender::new(names.into_iter().map(unseen).collect()));
        let pace = watch::Sender::new(Pace { interval, is_paused: false, asked: 0 });
        let (questions, asked) = mpsc::unbounded_channel();
        let stage = Stage { shown: shown.clone(), pace: pace.subscribe() };
        let mut pictures: watch::Receiver<_> = shown.subscribe();
        pictures.mark_changed();
        let thread = thread::Builder::new().name("pictures".to_owned()).spawn(move || {
            runtime.block_on(stage.run(subject, asked));
            // Nobody waits for a name that is being resolved.
            runtime.shutdown_background();
        })?;
        Ok(Self { pictures, pace, questions, thread: Some(thread) })
    }

    /// The next pictures that are news; the first time those there are.
    ///
    /// # Panics
    ///
    /// When the thread did, with its message: without pictures there is nothing to show.
    pub async fn changed(&mut self) -> Vec<Watched> {
        if self.pictures.changed().await.is_err() {
            let ended = self.thread.take().map(JoinHandle::join);
            match ended {
                Some(Err(panic)) => resume_unwind(panic),
                Some(Ok(())) | None => pending().await,
            }
        }
        self.pictures.borrow_and_update().clone()
    }

    /// The latest pictures.
    pub fn latest(&self) -> Vec<Watched> {
        self.pictures.borrow().clone()
    }

    /// How often to poll from now on, and whether at all.
    pub fn set_pace(&self, interval: Duration, is_paused: bool) {
        self.pace.send_if_modified(|pace| {
            let before = std::mem::replace(pace, Pace { interval, is_paused, ..*pace });
            before != *pace
        });
    }

    /// Between two pictures, from now on.
    pub fn set_interval(&self, interval: Duration) {
        // Copied first: setting it waits until nobody reads it.
        let Pace { is_paused, .. } = *self.pace.borrow();
        self.set_pace(interval, is_paused);
    }

    /// Nothing is polled any more until it goes on.
    pub fn pause(&self, is_paused: bool) {
        let Pace { interval, .. } = *self.pace.borrow();
        self.set_pace(interval, is_paused);
    }

    /// Polls all servers now, also while paused, and those that are down.
    pub fn refresh(&self) {
        self.pace.send_modify(|pace| pace.asked += 1);
    }

    /// What happened to a key lately, as far as whoever shows it remembers.
    pub fn fetch_history(&self, lock: LockId) -> impl Future<Output = History> + use<> {
        const ENDED: &str = "nobody watches any more";
        let (answer, answered) = oneshot::channel();
        let asked = self.questions.send(Question { lock, answer });
        async move {
            asked.map_err(|_| ENDED)?;
            answered.await.map_err(|_| ENDED)?
        }
    }
}

impl Alone {
    fn before(exporter: Option<&client::Exporter>) -> Self {
        exporter.map_or(Self::NotWanted, |exporter| Self::NotYet(exporter.to_string().into()))
    }

    fn of(exporter: Arc<str>, error: &ReadError) -> Self {
        const UNAUTHORIZED: u16 = 401;
        match error {
            ReadError::Connect { .. } => Self::Nobody(exporter),
            ReadError::Status(status, _) if status.as_u16() == UNAUTHORIZED => {
                Self::Password(exporter)
            }
            ReadError::Http(_) | ReadError::Status(..) => Self::Foreign(exporter),
            ReadError::Snapshot(ParseSnapshotError::Foreign) => Self::Foreign(exporter),
            ReadError::Snapshot(_)
            | ReadError::Trust(_)
            | ReadError::Tls(_)
            | ReadError::Timeout(_)
            | ReadError::Gzip(_)
            | ReadError::TooLarge => Self::Failed { exporter, reason: render_chain(error).into() },
        }
    }
}

/// What is shown, and at which pace.
#[derive(Clone)]
struct Stage {
    shown: Arc<watch::Sender<Vec<Watched>>>,
    pace: watch::Receiver<Pace>,
}

/// What an exporter said last of what it remembers.
#[derive(Clone)]
enum Memory {
    /// Nothing, and why.
    None(Alone),
    /// All that it watches.
    Of(Arc<str>, Arc<Snapshot>),
}

impl Stage {
    /// Goes on until nobody asks any more: the view has ended.
    async fn run(self, subject: Subject, mut asked: mpsc::UnboundedReceiver<Question>) {
        let mut tasks = JoinSet::new();
        let mut views = Vec::new();
        let exporter = match subject {
            Subject::Servers(targets) => {
                let exporter = targets.exporter.clone();
                views = self.watch_servers(targets, &mut tasks);
                exporter
            }
            Subject::Exporter(exporter) => {
                tasks.spawn(self.clone().follow_exporter(exporter.clone()));
                Some(exporter)
            }
        };
        let desk = Desk { shown: self.shown, views, exporter };
        let mut errands = JoinSet::new();
        loop {
            tokio::select! {
                Some(ended) = tasks.join_next() => match ended {
                    Ok(never) => match never {},
                    Err(error) => resume_unwind(error.into_panic()),
                },
                Some(ended) = errands.join_next() => if let Err(error) = ended {
                    resume_unwind(error.into_panic());
                },
                question = asked.recv() => match question {
                    Some(question) => desk.answer(question, &mut errands),
                    None => return,
                },
            }
        }
    }

    /// One poller and one follower for each server, so that none waits for another.
    fn watch_servers(
        &self,
        targets: Targets,
        tasks: &mut JoinSet<Infallible>,
    ) -> Vec<watch::Receiver<Arc<View>>> {
        let memory = watch::Sender::new(Memory::None(Alone::before(targets.exporter.as_ref())));
        let recalled = memory.subscribe();
        if let Some(exporter) = targets.exporter {
            tasks.spawn(recall(exporter, self.pace.clone(), memory));
        }
        let interval = self.pace.borrow().interval;
        let loaded = watch::Sender::new(Loaded {
            registry: targets.registry,
            read_at: local_now(),
            is_current: true,
        });
        let mut views = Vec::new();
        for (place, server) in targets.servers.into_iter().enumerate() {
            let (poller, view) = Poller::new(
                server,
                config::Poll { interval, ..targets.poll },
                loaded.subscribe(),
                targets.applications.clone(),
                &targets.limits,
                targets.thresholds,
                Backoff::default(),
            );
            tasks.spawn(poller.with_pace(self.pace.clone()).run());
            tasks.spawn(self.clone().follow(place, view.clone(), recalled.clone()));
            views.push(view);
        }
        views
    }

    /// Shows what a poller publishes, with what is remembered.
    async fn follow(
        self,
        place: usize,
        mut views: watch::Receiver<Arc<View>>,
        mut memory: watch::Receiver<Memory>,
    ) -> Infallible {
        let mut own: Option<Arc<Server>> = None;
        loop {
            let mut taken_at = None;
            tokio::select! {
                changed = views.changed() => {
                    if changed.is_err() {
                        // Its poller panicked, of which whoever runs it tells.
                        return pending().await;
                    }
                    let view = views.borrow_and_update().clone();
                    self.show(place, |watched| watched.interval = view.polls.interval);
                    if let Some(picture) = &view.picture {
                        own = Some(Arc::new(draw(&view)));
                        taken_at = Some(picture.at_local);
                    } else if let Some(failure) = &view.failure {
                        own = None;
                        self.show(place, |watched| watched.lose(&failure.text));
                    }
                }
                Ok(()) = memory.changed() => {}
            }
            let memory = memory.borrow_and_update().clone();
            // What is lost stays as it was.
            if let Some(own) = &own {
                let (server, origin) = compose(own, &memory);
                // Together: nobody sees the last picture of a lost server pass for a new one.
                self.show(place, |watched| {
                    (watched.server, watched.origin) = (server, origin);
                    if let Some(taken_at) = taken_at {
                        (watched.received_at, watched.lost) = (taken_at, None);
                    }
                });
            }
        }
    }

    fn show(&self, place: usize, change: impl FnOnce(&mut Watched)) {
        self.shown.send_modify(|shown| {
            if let Some(watched) = shown.get_mut(place) {
                change(watched);
            }
        });
    }

    /// Shows what an exporter shows.
    async fn follow_exporter(self, exporter: client::Exporter) -> Infallible {
        let address: Arc<str> = exporter.to_string().into();
        let mut turns = Turns::new(self.pace.clone());
        loop {
            turns.observe_asked();
            let started = now();
            let interval = self.pace.borrow().interval;
            match exporter.fetch_snapshot().await {
                Ok(snapshot) => self.shown.send_modify(|shown| {
                    *shown = take_over(shown, snapshot, &address, interval);
                }),
                Err(error) => self.shown.send_modify(|shown| {
                    let reason = render_chain(&error).into();
                    shown.iter_mut().for_each(|watched| watched.lose(&reason));
                }),
            }
            let turn = |pace: Pace, is_asked| {
                let pause = if is_asked { Duration::ZERO } else { pace.interval };
                (is_asked || !pace.is_paused).then(|| started + pause)
            };
            turns.wait(turn).await;
        }
    }
}

impl Watched {
    /// There is no new picture. The last one stays; before the first there is only the reason.
    fn lose(&mut self, reason: &Arc<str>) {
        if !self.is_seen() {
            self.server = Arc::new(unseen(&self.server.server, Some(reason)));
            return;
        }
        let since = self.lost.as_ref().map_or_else(local_now, |lost| lost.since);
        self.lost = Some(Lost { since, reason: reason.clone() });
    }
}

/// An exporter's pictures after those before them. A server that it has lost keeps the last one.
fn take_over(
    before: &[Watched],
    snapshot: Snapshot,
    exporter: &Arc<str>,
    interval: Duration,
) -> Vec<Watched> {
    let origin = Origin::Exporter { exporter: exporter.clone() };
    let watched = |server: Server| {
        let before = before.iter().find(|watched| watched.server.server == server.server);
        if let Some(before) = before.filter(|before| before.is_seen() && !server.up) {
            let mut lost = before.clone();
            let reason = server.error.as_deref().unwrap_or("it is down");
            lost.lose(&reason.into());
            return lost;
        }
        // One that was seen before is as old as when it was first seen: the exporter's clock and
        // ours need not agree.
        let same = before.filter(|before| before.server.polled_at == server.polled_at);
        Watched {
            received_at: same.map_or_else(local_now, |before| before.received_at),
            interval: server
                .poll
                .interval_seconds
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .map_or(interval, |theirs| theirs.max(interval)),
            server: Arc::new(server),
            origin: origin.clone(),
            lost: None,
        }
    };
    snapshot.servers.into_iter().map(watched).collect()
}

/// Asks an exporter for what it remembers, for as long as anybody looks. It holds up nobody: what it
/// says is taken when it comes.
async fn recall(
    exporter: client::Exporter,
    pace: watch::Receiver<Pace>,
    memory: watch::Sender<Memory>,
) -> Infallible {
    let address: Arc<str> = exporter.to_string().into();
    let mut turns = Turns::new(pace);
    loop {
        turns.observe_asked();
        let started = now();
        let said = match timeout(MEMORY_PATIENCE, exporter.fetch_snapshot()).await {
            Ok(Ok(snapshot)) => Memory::Of(address.clone(), Arc::new(snapshot)),
            Ok(Err(error)) => Memory::None(Alone::of(address.clone(), &error)),
            Err(_) => Memory::None(Alone::Failed {
                exporter: address.clone(),
                reason: format!("no answer within {MEMORY_PATIENCE:?}").into(),
            }),
        };
        let least = match said {
            Memory::Of(..) => MEMORY_SHARE * started.elapsed(),
            Memory::None(_) => MEMORY_RETRY,
        };
        memory.send_replace(said);
        let turn = |pace: Pace, is_asked| {
            let pause = if is_asked { Duration::ZERO } else { pace.interval.max(least) };
            (is_asked || !pace.is_paused).then(|| started + pause)
        };
        turns.wait(turn).await;
    }
}

/// Our own picture with what is remembered, if anything is.
fn compose(own: &Arc<Server>, memory: &Memory) -> (Arc<Server>, Origin) {
    let (exporter, snapshot) = match memory {
        Memory::None(alone) => return (own.clone(), Origin::Own(alone.clone())),
        Memory::Of(exporter, snapshot) => (exporter.clone(), snapshot),
    };
    match merge::find_same(own, &snapshot.servers) {
        Ok(remembered) => {
            let origin = Origin::Remembered {
                exporter,
                name: remembered.server.clone(),
                since: remembered.watching_since,
            };
            (Arc::new(merge::merge(Server::clone(own), remembered)), origin)
        }
        Err(reason) => (own.clone(), Origin::Own(Alone::Mismatch { exporter, reason })),
    }
}

/// A view as everybody else reads it.
fn draw(view: &View) -> Server {
    // However long names took to read, this picture was just drawn.
    let now = view.picture.as_ref().map_or_else(local_now, |picture| picture.at_local);
    Server::of(view, now, true)
}

/// A server of which there was no picture yet.
fn unseen(name: &Arc<str>, reason: Option<&Arc<str>>) -> Server {
    let view = View { server: name.clone(), ..View::default() };
    Server { error: reason.map(ToString::to_string), ..draw(&view) }
}

/// An error with its causes.
fn render_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Who answers what happened to a key.
struct Desk {
    shown: Arc<watch::Sender<Vec<Watched>>>,
    views: Vec<watch::Receiver<Arc<View>>>,
    exporter: Option<client::Exporter>,
}

impl Desk {
    /// Whoever remembers longest is asked: the exporter whose memory is shown, else our own history.
    fn answer(&self, question: Question, errands: &mut JoinSet<()>) {
        let Question { lock, answer } = question;
        let origin = {
            let shown = self.shown.borrow();
            let watched = shown.iter().find(|it| it.server.server == lock.server);
            watched.map(|watched| watched.origin.clone())
        };
        let name = match origin {
            Some(Origin::Remembered { name, .. }) => Some(name),
            Some(Origin::Exporter { .. }) => Some(lock.server.clone()),
            Some(Origin::Own(_)) | None => None,
        };
        let own = self.own_history(&lock);
        let exporter = self.exporter.clone();
        // Whoever asked may have gone on when the answer comes.
        errands.spawn(async move {
            let remembered = match (name, exporter) {
                (Some(name), Some(exporter)) => Some(ask(&exporter, &name, &lock).await),
                (Some(_) | None, _) => None,
            };
            let _ = answer.send(match (remembered, own) {
                (Some(Ok(events)), _) => Ok(events),
                (_, Some(own)) => own,
                (Some(Err(reason)), None) => Err(reason),
                (None, None) => Err("the server is not watched".to_owned()),
            });
        });
    }

    /// What our own poller saw, through the same JSON as an exporter's. `None` without one.
    fn own_history(&self, lock: &LockId) -> Option<History> {
        let views = self.views.iter().map(|view| view.borrow().clone());
        let view = views.into_iter().find(|view| view.server == lock.server)?;
        let filter = Filter { key: Some(lock.key), limit: HISTORY, ..Filter::default() };
        let json = render_events([&*view], &filter, true);
        Some(parse_history(&json, &lock.datname))
    }
}

async fn ask(exporter: &client::Exporter, name: &str, lock: &LockId) -> History {
    let events = exporter.fetch_events(name, lock.key, HISTORY).await;
    let events = events.map_err(|error| render_chain(&error))?;
    Ok(of_database(events, &lock.datname))
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::snapshot::parse_snapshot;

    #[tokio::test]
    async fn a_panic_on_the_thread_is_the_panic_of_whoever_waits_for_pictures() {
        let (shown, mut pictures) = watch::channel(Vec::new());
        pictures.mark_changed();
        let thread = thread::spawn(move || {
            let _shown = shown;
            panic!("no picture can be made");
        });
        let mut source = Source {
            pictures,
            pace: watch::Sender::new(Pace {
                interval: Duration::from_secs(1),
                is_paused: false,
                asked: 0,
            }),
            questions: mpsc::unbounded_channel().0,
            thread: Some(thread),
        };
        let ended = async {
            loop {
                source.changed().await;
            }
        };
        let panic: Box<dyn std::any::Any + Send> =
            AssertUnwindSafe(ended.map(|never: Infallible| never))
                .catch_unwind()
                .await
                .unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"no picture can be made"));
    }

    fn snapshot(up: bool, second: u8) -> Snapshot {
        let (polled_at, locks) = match up {
            true => (format!("\"2026-11-30T12:00:{second:02}Z\""), "[]"),
            false => ("null".to_owned(), "null"),
        };
        let json = format!(
            "{{\"schema\":1,\"servers\":[{{\"server\":\"a\",\"up\":{up},\"error\":\"timeout\",\
             \"polled_at\":{polled_at},\"locks\":{locks}}}]}}"
        );
        parse_snapshot(json.as_bytes()).unwrap()
    }

    #[test]
    fn a_server_that_an_exporter_lost_keeps_its_last_picture_and_since_when() {
        let take = |before: &[Watched], snapshot| {
            take_over(before, snapshot, &"http://e".into(), Duration::from_secs(1))
        };
        let down = take(&[], snapshot(false, 0));
        assert!(!down[0].is_seen() && down[0].lost.is_none());
        assert_eq!(down[0].server.error.as_deref(), Some("timeout"));
        let seen = take(&down, snapshot(true, 1));
        let lost = take(&seen, snapshot(false, 0));
        let said = lost[0].lost.clone().unwrap();
        assert!(lost[0].is_seen() && &*said.reason == "timeout");
        assert_eq!(lost[0].received_at, seen[0].received_at);
        let still = take(&lost, snapshot(false, 0));
        assert_eq!(still[0].lost.as_ref(), Some(&said));
        assert!(take(&still, snapshot(true, 2))[0].lost.is_none());
    }

    #[test]
    fn a_picture_that_an_exporter_shows_again_grows_older() {
        let take = |before: &[Watched], second| {
            take_over(before, snapshot(true, second), &"http://e".into(), Duration::from_secs(1))
        };
        let first = take(&[], 1);
        assert_eq!(take(&first, 1)[0].received_at, first[0].received_at);
        assert!(take(&first, 2)[0].received_at > first[0].received_at);
    }
}
