//! The columns of the Locks and Sessions views: their names, what stands in them, how they sort.
//!
//! Pure, and the same for the screen and for pipes. A cell is text and a tone; how wide it is shown
//! and in which colour is not known here. Ages are bounds: `≥ 12s` was seen held at every poll for
//! 12 seconds and may have been held for longer; `12s` has a beginning that is known; `?` is not
//! known.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;

use super::row::{Party, Place, What};
use crate::duration::render_duration;
use crate::finding::Severity;
use crate::key::Key;
use crate::snapshot::{Detail, Finding, Holder, Lock, Server, Session, Waited};

/// What stands for the name of a key that has none.
pub const UNREGISTERED: &str = "unregistered";
/// What a transaction does that waits for its second phase.
const PREPARED: &str = "prepared";
/// What stands for a state that is hidden from us.
const UNKNOWN: &str = "unknown";

/// The three views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ViewKind {
    /// A row for each key.
    #[default]
    Locks,
    /// A row for each holder and waiter of a key.
    Sessions,
    /// Who waits for whom.
    Tree,
}

impl ViewKind {
    /// In the order of their keys.
    pub const ALL: [Self; 3] = [Self::Locks, Self::Sessions, Self::Tree];

    /// What it is called.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Locks => "Locks",
            Self::Sessions => "Sessions",
            Self::Tree => "Tree",
        }
    }

    /// That it has no rows, in words.
    pub const fn nothing(self) -> &'static str {
        match self {
            Self::Locks => "no advisory lock is held or awaited",
            Self::Sessions => "no session holds or awaits an advisory lock",
            Self::Tree => "nobody waits; who holds what is in the other views (1, 2)",
        }
    }

    /// The one after, or before.
    pub const fn neighbour(self, direction: Direction) -> Self {
        match (self, direction) {
            (Self::Tree, Direction::Next) | (Self::Sessions, Direction::Previous) => Self::Locks,
            (Self::Locks, Direction::Next) | (Self::Tree, Direction::Previous) => Self::Sessions,
            (Self::Sessions, Direction::Next) | (Self::Locks, Direction::Previous) => Self::Tree,
        }
    }

    /// What it can show, in this order; none for the tree, whose lines are sentences.
    pub const fn columns(self) -> &'static [Column] {
        match self {
            Self::Locks => &[
                Column::Server,
                Column::Lock,
                Column::Key,
                Column::Database,
                Column::Holders,
                Column::Application,
                Column::Mode,
                Column::State,
                Column::Held,
                Column::Waiters,
                Column::Wait,
                Column::Blocks,
                Column::Findings,
                Column::Owner,
            ],
            Self::Sessions => &[
                Column::Server,
                Column::Role,
                Column::Pid,
                Column::Application,
                Column::User,
                Column::Client,
                Column::Lock,
                Column::Key,
                Column::Database,
                Column::Mode,
                Column::Scope,
                Column::State,
                Column::Held,
                Column::Wait,
                Column::Blocks,
                Column::Root,
                Column::Findings,
            ],
            Self::Tree => &[],
        }
    }
}

/// Along a row of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the one after.
    Next,
    /// To the one before.
    Previous,
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Column {
    /// The `server` label.
    Server,
    /// Holder or waiter.
    Role,
    /// The process id.
    Pid,
    /// The lock's name.
    Lock,
    /// The key.
    Key,
    /// Its database.
    Database,
    /// How many hold it.
    Holders,
    /// What its holders, or the session, call themselves.
    Application,
    /// The session's role on the server.
    User,
    /// Where its client connects from.
    Client,
    /// Held or asked for.
    Mode,
    /// Of the session or of its transaction.
    Scope,
    /// What the session does.
    State,
    /// For how long it is held.
    Held,
    /// How many wait for it.
    Waiters,
    /// For how long it is awaited.
    Wait,
    /// Sessions behind it, by locks of any type.
    Blocks,
    /// Where its chain ends.
    Root,
    /// What is to be said of it.
    Findings,
    /// Whose lock it is, from the registry.
    Owner,
}

/// What stands where a row and a column meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Its text.
    pub text: String,
    /// How urgent it is.
    pub tone: Tone,
}

/// How urgent something is. Never the only sign of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// As everything.
    #[default]
    Plain,
    /// Beside the point.
    Dim,
    /// For working hours.
    Warning,
    /// For now.
    Critical,
}

/// How rows are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// By what.
    pub column: Column,
    /// The largest first.
    pub is_descending: bool,
}

/// What a row is about, looked up in the picture.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Where it is.
    pub server: &'a Server,
    /// The key.
    pub lock: &'a Lock,
    /// Somebody on it, where the row is about somebody.
    pub party: Option<Party<'a>>,
    /// All keys of the row, by their numbers, where they are several.
    pub fold: Option<&'a [usize]>,
}

/// Why a text names no column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {view} view has no column {name:?}; it has {known}")]
pub struct ParseColumnError {
    view: &'static str,
    name: String,
    known: String,
}

impl<'a> Subject<'a> {
    /// Of a place; `None` for a place without a key.
    pub fn of<S: AsRef<Server>>(place: &'a Place, all: &'a [S]) -> Option<Self> {
        let server = place.server(all)?;
        let lock = place.lock(all)?;
        let party = match place.what {
            What::Holder(..) | What::Waiter(..) => place.party(all),
            What::Server | What::Lock(_) | What::OtherWait(_) | What::Root(_) | What::Fold(_) => {
                None
            }
        };
        let fold = match &place.what {
            What::Fold(locks) => Some(&locks[..]),
            What::Server
            | What::Lock(_)
            | What::Holder(..)
            | What::Waiter(..)
            | What::OtherWait(_)
            | What::Root(_) => None,
        };
        Some(Self { server, lock, party, fold })
    }

    /// The holders that the row speaks of: of a fold the only one of each key.
    fn holders(&self) -> impl Iterator<Item = &'a Holder> {
        let all = self.server.locks.as_deref().unwrap_or_default();
        let folded = self.fold.unwrap_or_default().iter().filter_map(|index| all.get(*index));
        let own = self.fold.is_none().then_some(self.lock);
        let party = match self.party {
            Some(Party::Holder(_, holder)) => Some(holder),
            Some(Party::Waiter(..) | Party::OtherWait(_) | Party::Root(_)) | None => None,
        };
        let everybody = self.party.is_none();
        folded.chain(own).filter(move |_| everybody).flat_map(|lock| &lock.holders).chain(party)
    }

    fn longest_hold(&self) -> Option<&'a Holder> {
        self.holders().max_by(|a, b| a.seen_for_seconds.total_cmp(&b.seen_for_seconds))
    }

    fn longest_wait(&self) -> Option<Option<Waited>> {
        match self.party {
            Some(Party::Waiter(_, waiter)) => Some(waiter.waited()),
            Some(Party::OtherWait(wait)) => Some(wait.waited()),
            Some(Party::Holder(..) | Party::Root(_)) => None,
            None => {
                let longest = Waited::longest(&self.lock.waiters);
                (!self.lock.waiters.is_empty()).then_some(longest)
            }
        }
    }

    /// What is to be said of it: of a session only what names it.
    pub fn findings(&self) -> impl Iterator<Item = &'a Finding> {
        let pid = self.party.and_then(|party| party.pid());
        let is_somebody = self.party.is_some();
        self.lock.findings.iter().filter(move |finding| {
            !is_somebody
                || pid.is_some_and(|pid| finding.pids.contains(&pid))
                || (pid.is_none() && finding.pids.is_empty())
        })
    }

    fn severity(&self) -> Option<Severity> {
        self.findings().map(|finding| finding.severity).max()
    }

    /// Who the row is about, or the first holder of its key.
    fn somebody(&self) -> Option<Party<'a>> {
        let first = || self.lock.holders.first().map(|holder| Party::Holder(self.lock, holder));
        self.party.or_else(first)
    }

    fn is_prepared(&self) -> bool {
        self.somebody().is_some_and(|party| party.prepared().is_some())
    }

    fn session(&self) -> Option<&'a Session> {
        Some(self.somebody()?.session())
    }

    /// The role of a session; of a prepared transaction its owner.
    fn user(&self) -> Option<&'a Detail<Arc<str>>> {
        let party = self.somebody()?;
        Some(party.prepared().map_or(&party.session().usename, |prepared| &prepared.owner))
    }

    /// What somebody does, in a word.
    fn state(&self) -> Option<&'a str> {
        let party = self.somebody()?;
        let state = || party.session().state.as_deref().unwrap_or(UNKNOWN);
        Some(if self.is_prepared() { PREPARED } else { state() })
    }

    fn blocks(&self) -> usize {
        self.holders().map(|holder| holder.blocks).max().unwrap_or(0)
    }
}

impl Column {
    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Role => "role",
            Self::Pid => "pid",
            Self::Lock => "lock",
            Self::Key => "key",
            Self::Database => "database",
            Self::Holders => "holders",
            Self::Application => "application",
            Self::User => "user",
            Self::Client => "client",
            Self::Mode => "mode",
            Self::Scope => "scope",
            Self::State => "state",
            Self::Held => "held",
            Self::Waiters => "waiters",
            Self::Wait => "wait",
            Self::Blocks => "blocks",
            Self::Root => "root",
            Self::Findings => "findings",
            Self::Owner => "owner",
        }
    }

    /// What stands above it.
    pub fn title(self) -> String {
        self.name().to_uppercase()
    }

    /// Numbers stand under each other.
    pub const fn is_number(self) -> bool {
        matches!(
            self,
            Self::Pid | Self::Holders | Self::Held | Self::Waiters | Self::Wait | Self::Blocks
        )
    }

    /// From a name as it is typed, or from a title as it is read.
    pub fn parse(kind: ViewKind, name: &str) -> Result<Self, ParseColumnError> {
        let known = kind.columns();
        let is_meant = |column: &Self| column.name().eq_ignore_ascii_case(name.trim());
        known.iter().copied().find(is_meant).ok_or_else(|| ParseColumnError {
            view: kind.title(),
            name: name.to_owned(),
            known: match known {
                [] => "none: its lines are sentences".to_owned(),
                known => known.iter().map(|one| one.name()).collect::<Vec<_>>().join(", "),
            },
        })
    }

    /// What stands in it.
    pub fn cell(self, subject: &Subject<'_>) -> Cell {
        let Subject { server, lock, party, fold } = *subject;
        let plain = |text: Cow<'_, str>| Cell { text: text.into_owned(), tone: Tone::Plain };
        match self {
            Self::Server => plain(server.server.as_ref().into()),
            Self::Role => plain(role(party).into()),
            Self::Pid => plain(render_pid(party).into()),
            Self::Lock => render_name(lock, fold.is_some()),
            Self::Key => plain(match fold {
                Some(keys) => format!("{} keys", keys.len()).into(),
                None => lock.key.to_string().into(),
            }),
            Self::Database => plain(lock.datname.as_ref().into()),
            Self::Holders => plain(count(match fold {
                Some(_) => distinct_sessions(subject),
                None => lock.holders.len(),
            })),
            Self::Application => render_applications(subject),
            Self::User => match subject.user() {
                Some(user) => told(user.is_hidden(), user.known().map(ToString::to_string)),
                None => Cell::default(),
            },
            Self::Client => match subject.session() {
                Some(session) => told(session.client_addr.is_hidden(), render_client(session)),
                None => Cell::default(),
            },
            Self::Mode => match party {
                Some(party) => plain(party.mode().map_or("", |mode| mode.as_str()).into()),
                None => plain(lock.holders.first().map_or("", |one| one.mode.as_str()).into()),
            },
            Self::Scope => match party {
                Some(Party::Holder(_, holder)) => plain(holder.scope.as_str().into()),
                Some(Party::Waiter(..) | Party::OtherWait(_) | Party::Root(_)) | None => {
                    Cell::default()
                }
            },
            Self::State => render_state(subject),
            Self::Held => {
                let longest = subject.longest_hold();
                plain(longest.map(render_held).unwrap_or_default().into())
            }
            Self::Waiters => plain(count(lock.waiters.len())),
            Self::Wait => {
                plain(subject.longest_wait().map(render_waited).unwrap_or_default().into())
            }
            Self::Blocks => plain(count(subject.blocks())),
            Self::Root => plain(render_root(party).into()),
            Self::Findings => render_findings(subject),
            Self::Owner => plain(lock.owner.as_deref().unwrap_or_default().into()),
        }
    }

    fn sort_value<'a>(self, subject: &Subject<'a>) -> SortValue<'a> {
        let number = |number: usize| {
            #[expect(clippy::cast_precision_loss, reason = "sessions are counted, not stars")]
            SortValue::Numbers([number as f64, 0.0, 0.0, 0.0])
        };
        let seconds = |seconds: Option<f64>| {
            SortValue::Numbers([seconds.unwrap_or(f64::NEG_INFINITY), 0.0, 0.0, 0.0])
        };
        let Subject { server, lock, party, fold } = *subject;
        let held = || subject.longest_hold().map(|holder| holder.seen_for_seconds);
        match self {
            Self::Server => SortValue::Text(&server.server),
            Self::Role => SortValue::Text(role(party)),
            Self::Pid => {
                let pid = party.and_then(|party| party.pid());
                seconds(pid.map(|pid| f64::from(pid.0)))
            }
            Self::Lock => {
                let name = lock.display_name.known().or(lock.lock.as_ref());
                SortValue::Text(name.map_or("", |name| name))
            }
            Self::Key => SortValue::Key(lock.key),
            Self::Database => SortValue::Text(&lock.datname),
            Self::Holders => number(match fold {
                Some(_) => distinct_sessions(subject),
                None => lock.holders.len(),
            }),
            Self::Application if subject.is_prepared() => SortValue::Text(PREPARED),
            Self::Application => SortValue::Text(
                subject.session().and_then(|one| one.application_name.as_deref()).unwrap_or(""),
            ),
            Self::User => {
                let user = subject.user().and_then(|user| user.known());
                SortValue::Text(user.map_or("", |name| name))
            }
            Self::Client => SortValue::Address(
                subject.session().and_then(|one| one.client_addr.known().copied()),
            ),
            Self::Mode => {
                let mode = match party {
                    Some(party) => party.mode(),
                    None => lock.holders.first().map(|holder| &holder.mode),
                };
                number(mode.map_or(0, |mode| mode.strength().into()))
            }
            Self::Scope => SortValue::Text(match party {
                Some(Party::Holder(_, holder)) => holder.scope.as_str(),
                Some(Party::Waiter(..) | Party::OtherWait(_) | Party::Root(_)) | None => "",
            }),
            Self::State => SortValue::Text(subject.state().unwrap_or("")),
            Self::Held => seconds(held()),
            Self::Waiters => number(lock.waiters.len()),
            Self::Wait => seconds(subject.longest_wait().flatten().map(|wait| wait.seconds)),
            Self::Blocks => number(subject.blocks()),
            // Who waits because of the same session stands together.
            Self::Root => {
                let root = match party {
                    Some(Party::Waiter(_, waiter)) => waiter.roots.first(),
                    Some(Party::Holder(..) | Party::OtherWait(_) | Party::Root(_)) | None => None,
                };
                seconds(root.map(|root| root.pid.map_or(0.0, |pid| f64::from(pid.0))))
            }
            Self::Owner => SortValue::Text(lock.owner.as_deref().unwrap_or("")),
            // The worst: what is said of it, then who waits because of it, then for how long.
            Self::Findings => {
                let severity = match subject.severity() {
                    Some(Severity::Critical) => 2.0,
                    Some(Severity::Warning) => 1.0,
                    None => 0.0,
                };
                let behind = match party {
                    Some(_) => subject.blocks(),
                    None => lock.waiters.len().max(subject.blocks()),
                };
                let wait = subject.longest_wait().flatten().map_or(0.0, |wait| wait.seconds);
                #[expect(clippy::cast_precision_loss, reason = "sessions are counted, not stars")]
                SortValue::Numbers([severity, behind as f64, wait, held().unwrap_or(0.0)])
            }
        }
    }
}

/// What rows are compared by; without an allocation, since there may be very many.
#[derive(Clone, Copy, Debug)]
pub enum SortValue<'a> {
    /// By its characters.
    Text(&'a str),
    /// The first that differ.
    Numbers([f64; 4]),
    /// As keys are ordered everywhere.
    Key(Key),
    /// Where somebody connects from.
    Address(Option<std::net::IpAddr>),
}

impl SortValue<'_> {
    /// Of two values of one column.
    pub fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => a.cmp(b),
            (Self::Address(a), Self::Address(b)) => a.cmp(b),
            (Self::Numbers(a), Self::Numbers(b)) => {
                let mut pairs = a.iter().zip(b).map(|(a, b)| a.total_cmp(b));
                pairs.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
            }
            (Self::Text(_) | Self::Key(_) | Self::Address(_) | Self::Numbers(_), _) => {
                Ordering::Equal
            }
        }
    }
}

impl Default for Sort {
    /// The worst first.
    fn default() -> Self {
        Self::by(Column::Findings)
    }
}

impl Sort {
    /// By a column, the other way round than one would begin to read it.
    #[must_use]
    pub const fn inverted(self) -> Self {
        Self { is_descending: !self.is_descending, ..self }
    }

    /// By a column, as one begins to read it: texts from A, numbers from the largest.
    pub const fn by(column: Column) -> Self {
        let is_descending = column.is_number() && !matches!(column, Column::Pid);
        Self { column, is_descending: is_descending || matches!(column, Column::Findings) }
    }

    /// By the next column of the view, or the one before.
    #[must_use]
    pub fn neighbour(self, kind: ViewKind, direction: Direction) -> Self {
        let columns = kind.columns();
        let place = columns.iter().position(|column| *column == self.column).unwrap_or(0);
        let place = match direction {
            Direction::Next => place + 1,
            Direction::Previous => place + columns.len().saturating_sub(1),
        };
        columns.get(place % columns.len().max(1)).map_or(self, |column| Self::by(*column))
    }

    /// As it is typed: `held`, or `-held` for the other way round.
    pub fn parse(kind: ViewKind, text: &str) -> Result<Self, ParseColumnError> {
        match text.trim().strip_prefix('-') {
            Some(name) => Ok(Self::by(Column::parse(kind, name)?).inverted()),
            None => Ok(Self::by(Column::parse(kind, text)?)),
        }
    }

    /// The value of a row.
    pub fn value<'a>(self, subject: &Subject<'a>) -> SortValue<'a> {
        self.column.sort_value(subject)
    }

    /// Of two values of its column.
    pub fn compare(self, a: &SortValue<'_>, b: &SortValue<'_>) -> Ordering {
        if self.is_descending { b.compare(a) } else { a.compare(b) }
    }
}

/// The name of a lock, or its key where it has none.
pub fn title(lock: &Lock) -> Cow<'_, str> {
    match lock.display_name.known().or(lock.lock.as_ref()) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("key {}", lock.key)),
    }
}

/// What somebody calls themselves, as a word: an empty name is no name, and a hidden one none that is
/// known.
pub fn application(name: Option<&str>) -> &str {
    match name {
        Some("") => "(none)",
        Some(name) => name,
        None => "(unknown)",
    }
}

/// An age in two units at most; below ten seconds with a tenth. Cut, never rounded up: an age must
/// not claim more than was seen.
pub fn render_age(seconds: f64) -> String {
    const UNITS: [f64; 3] = [86_400.0, 3600.0, 60.0];
    let seconds = seconds.max(0.0);
    if seconds < 10.0 {
        return format!("{:.1}s", (seconds * 10.0).floor() / 10.0);
    }
    // Days with hours, hours with minutes, minutes with seconds.
    let least = match UNITS.iter().position(|unit| seconds >= *unit) {
        Some(0) => 3600.0,
        Some(1) => 60.0,
        Some(_) | None => 1.0,
    };
    let whole = Duration::try_from_secs_f64((seconds / least).floor() * least);
    render_duration(whole.unwrap_or(Duration::MAX))
}

/// For how long a key was held: a bound, unless its beginning is known to a tenth of it, or to little
/// more than the second between two polls.
pub fn render_held(holder: &Holder) -> String {
    let seen = holder.seen_for_seconds;
    let has_beginning =
        holder.held_at_most_seconds.is_some_and(|most| most - seen <= (seen / 10.0).max(1.5));
    if has_beginning { render_age(seen) } else { format!("≥ {}", render_age(seen)) }
}

/// For how long somebody waits, as far as it is known.
pub fn render_waited(waited: Option<Waited>) -> String {
    match waited {
        Some(Waited { seconds, is_bound: false }) => render_age(seconds),
        Some(Waited { seconds, is_bound: true }) => format!("≥ {}", render_age(seconds)),
        None => "?".to_owned(),
    }
}

/// Address and port of a client.
pub fn render_client(session: &Session) -> Option<String> {
    let port = session.client_port.known().copied();
    match (session.client_addr.known(), port) {
        (Some(std::net::IpAddr::V6(address)), Some(port)) => Some(format!("[{address}]:{port}")),
        (Some(address), Some(port)) => Some(format!("{address}:{port}")),
        (Some(address), None) => Some(address.to_string()),
        (None, Some(-1)) => Some("local".to_owned()),
        (None, _) => None,
    }
}

fn render_name(lock: &Lock, is_fold: bool) -> Cell {
    let name =
        if is_fold { lock.lock.as_ref() } else { lock.display_name.known().or(lock.lock.as_ref()) };
    match name {
        Some(name) => Cell { text: name.to_string(), tone: Tone::Plain },
        None => Cell { text: UNREGISTERED.to_owned(), tone: Tone::Dim },
    }
}

fn role(party: Option<Party<'_>>) -> &'static str {
    match party {
        Some(Party::Holder(..)) | None => "holder",
        Some(Party::Waiter(..) | Party::OtherWait(_)) => "waiter",
        Some(Party::Root(_)) => "root",
    }
}

fn render_pid(party: Option<Party<'_>>) -> String {
    let Some(party) = party else { return String::new() };
    match party.pid() {
        Some(pid) => pid.0.to_string(),
        None if party.prepared().is_some() => PREPARED.to_owned(),
        None => "?".to_owned(),
    }
}

fn render_applications(subject: &Subject<'_>) -> Cell {
    let mut text = match subject.somebody() {
        Some(Party::Holder(_, holder)) => render_application(holder),
        Some(party) => application(party.session().application_name.as_deref()).to_owned(),
        None => String::new(),
    };
    if subject.party.is_none() && subject.fold.is_none() && subject.lock.holders.len() > 1 {
        text.push_str(&format!(" +{}", subject.lock.holders.len() - 1));
    }
    Cell { text, tone: Tone::Plain }
}

/// The name of a holder, with the one before if it had another when it was first seen.
pub fn render_application(holder: &Holder) -> String {
    if let Some(prepared) = &holder.prepared {
        return match &prepared.gid {
            Some(gid) => format!("prepared {gid}"),
            None => "a prepared transaction".to_owned(),
        };
    }
    let present = holder.session.application_name.as_deref();
    match (holder.first_application_name.as_deref(), present) {
        (Some(first), Some(name)) if first != name => {
            format!("{} (was {})", application(present), application(Some(first)))
        }
        (_, _) => application(present).to_owned(),
    }
}

fn render_state(subject: &Subject<'_>) -> Cell {
    let Some(state) = subject.state() else { return Cell::default() };
    let tone = match state {
        "idle in transaction" | "idle in transaction (aborted)" | PREPARED => Tone::Warning,
        UNKNOWN => Tone::Dim,
        _ => Tone::Plain,
    };
    Cell { text: state.to_owned(), tone }
}

/// What only some readers are told: one that is not told is not the same as one that is unknown.
fn told(is_hidden: bool, text: Option<String>) -> Cell {
    match text {
        Some(text) => Cell { text, tone: Tone::Plain },
        None if is_hidden => Cell { text: "(not shown)".to_owned(), tone: Tone::Dim },
        None => Cell { text: "?".to_owned(), tone: Tone::Dim },
    }
}

fn render_root(party: Option<Party<'_>>) -> String {
    let Some(Party::Waiter(_, waiter)) = party else { return String::new() };
    let Some(root) = waiter.roots.first() else { return String::new() };
    let who = match root.pid {
        Some(pid) => format!("{} {}", pid.0, application(root.application_name.as_deref())),
        None => format!("prepared {}", root.gid.as_deref().unwrap_or("transaction")),
    };
    let others = waiter.roots_count.saturating_sub(1);
    if others > 0 { format!("{who} +{others}") } else { who }
}

/// The worst first, each once, with a sign before what is critical.
fn render_findings(subject: &Subject<'_>) -> Cell {
    let mut cell = Cell::default();
    for severity in [Severity::Critical, Severity::Warning] {
        let mut told: Vec<(&str, usize)> = Vec::new();
        for finding in subject.findings().filter(|one| one.severity == severity) {
            match told.iter_mut().find(|(name, _)| *name == &*finding.finding) {
                Some((_, times)) => *times += 1,
                None => told.push((&finding.finding, 1)),
            }
        }
        for (name, times) in told {
            if !cell.text.is_empty() {
                cell.text.push_str(", ");
            } else {
                cell.tone = match severity {
                    Severity::Critical => Tone::Critical,
                    Severity::Warning => Tone::Warning,
                };
            }
            if severity == Severity::Critical {
                cell.text.push('!');
            }
            cell.text.push_str(name);
            if times > 1 {
                cell.text.push_str(&format!(" x{times}"));
            }
        }
    }
    cell
}

fn distinct_sessions(subject: &Subject<'_>) -> usize {
    let sessions: std::collections::HashSet<_> = subject
        .holders()
        .map(|holder| (holder.pid, holder.prepared.as_ref().and_then(|one| one.gid.as_ref())))
        .collect();
    sessions.len()
}

fn count(count: usize) -> Cow<'static, str> {
    if count == 0 { Cow::Borrowed("") } else { Cow::Owned(count.to_string()) }
}

#[cfg(test)]
mod tests;
