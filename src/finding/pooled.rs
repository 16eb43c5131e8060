//! Whether a holder's connection is shared by several clients, as far as names and addresses tell.
//!
//! From inside the server, a connection that a pooler hands to another client looks like a program
//! that renames itself: nothing but the name changes. So the names of one hold are compared, at
//! polls alone that find its backend idle: that proves session level, and a name that a transaction
//! sets for itself is not seen. A second sign comes from outside: an address that is listed as a
//! pooler's, the host that PgBouncer adds to names, or our own connection. Pure; the rules make a
//! finding of it, and what was seen first survives failed polls and may be carried over a restart.

use std::sync::{Arc, LazyLock};

use regex::Regex;

use super::Severity;
use crate::config::{Applications, Poolers};
use crate::map::HashMap;
use crate::memory::FirstName;
use crate::mode::Mode;
use crate::sample::{ClientAddress, DatabaseOid, Pid, RoleOid};
use crate::timestamp::Timestamp;
use crate::tracker::{KeyId, Scope};
use crate::view::{Holder, Lock, Picture, Session};

/// What programs are called that do not name themselves, or have not yet: the defaults of pgjdbc,
/// r2dbc-postgresql, postgres.js and the Vert.x client, and of the tools that come with the server.
const DEFAULT_NAMES: [&str; 9] = [
    "PostgreSQL JDBC Driver",
    "r2dbc-postgresql",
    "postgres.js",
    "vertx-pg-client",
    "psql",
    "pg_dump",
    "pg_dumpall",
    "pg_restore",
    "pgbench",
];

/// So many other names of a hold are kept, the latest.
const MOST_NAMES: usize = 8;

/// Names of backends and of what they hold.
#[derive(Debug)]
pub(super) struct SharingWatch {
    poolers: Poolers,
    applications: Arc<Applications>,
    /// By which name each backend went when it was last seen idle.
    backends: HashMap<Pid, Idle>,
    /// Holds whose backend has gone by another name meanwhile, or that were known before a restart.
    /// All others have the name of their backend.
    holds: HashMap<Pid, HashMap<KeyId, Named>>,
    /// From before a restart, until the next poll.
    recalled: HashMap<(Pid, KeyId), Vec<FirstName>>,
}

/// A backend as it was last seen idle.
#[derive(Clone, Debug)]
struct Idle {
    backend_start: Option<Timestamp>,
    name: Arc<str>,
    at: Timestamp,
}

/// The names of a hold.
#[derive(Clone, Debug)]
struct Named {
    backend_start: Option<Timestamp>,
    /// The modes that have been held since the first name.
    modes: Vec<Mode>,
    first: Arc<str>,
    /// Names that are not alike the first, in the order in which they came; each is there once.
    others: Vec<Other>,
    /// The name at the last poll that found the backend idle.
    now: Arc<str>,
    /// A name that was seen again after another.
    came_back: Option<Arc<str>>,
    /// The last poll that saw the hold: one that began later is another.
    seen_at: Timestamp,
}

#[derive(Clone, Debug)]
struct Other {
    name: Arc<str>,
    /// The poll that saw it first.
    since: Timestamp,
}

/// Why a hold's connection seems to be shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sharing {
    /// Its name changed.
    pub change: Option<NameChange>,
    /// What else speaks for it.
    pub sign: Option<Sign>,
}

/// How the name of a hold changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NameChange {
    pub first: Arc<str>,
    /// The latest that is unlike the first.
    pub other: Arc<str>,
    /// The first poll that saw it.
    pub since: Timestamp,
    pub came_back: Option<Arc<str>>,
    /// Another backend of the same role, database and address that goes by the first name now.
    pub elsewhere: Option<Pid>,
}

/// What speaks for a pooler beside a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// The operator says so.
    Listed,
    /// The host and port that PgBouncer's `application_name_add_host` adds are another client's.
    HostChanged,
    /// Our own connection comes through a pooler at the same address.
    OurPooler,
}

impl Sharing {
    /// The same, with who else goes by the first name now.
    pub(super) fn with_namesake(mut self, holder: &Holder, namesakes: &Namesakes<'_>) -> Self {
        if let (Some(change), Some(pid)) = (&mut self.change, holder.id.pid()) {
            change.elsewhere = namesakes.elsewhere(pid, &holder.session, &change.first);
        }
        self
    }

    /// A name alone may be the program's own doing, and an address alone shows no second client.
    pub(super) const fn severity(&self) -> Severity {
        match (&self.change, self.sign) {
            (Some(_), Some(_)) => Severity::Critical,
            (Some(_) | None, _) => Severity::Warning,
        }
    }
}

impl SharingWatch {
    pub(super) fn new(applications: Arc<Applications>) -> Self {
        Self {
            poolers: Poolers::default(),
            applications,
            backends: HashMap::default(),
            holds: HashMap::default(),
            recalled: HashMap::default(),
        }
    }

    pub(super) fn with_poolers(mut self, poolers: Poolers) -> Self {
        self.poolers = poolers;
        self
    }

    pub(super) fn observe_applications(&mut self, applications: Arc<Applications>) {
        self.applications = applications;
    }

    pub(super) fn is_pooler(&self, address: ClientAddress) -> bool {
        self.poolers.contains(address)
    }

    /// Folds a picture in.
    pub(super) fn observe(&mut self, picture: &Picture) {
        let renamed = self.observe_backends(picture);
        let mut recalled = std::mem::take(&mut self.recalled);
        if renamed.is_empty() && recalled.is_empty() && self.holds.is_empty() {
            return;
        }
        let mut before = std::mem::take(&mut self.holds);
        for lock in &picture.locks {
            for holder in &lock.holders {
                let Some(pid) = holder.id.pid() else { continue };
                let known = before.get_mut(&pid).and_then(|holds| holds.remove(&lock.id));
                let named = known
                    .and_then(|known| known.of(holder))
                    .or_else(|| {
                        Named::recalled(&recalled.remove(&(pid, lock.id))?, holder, picture.at)
                    })
                    .or_else(|| Named::begin(renamed.get(&pid)?, holder));
                if let Some(mut named) = named {
                    named.observe(holder, picture.at, &self.applications);
                    self.holds.entry(pid).or_default().insert(lock.id, named);
                }
            }
        }
    }

    /// Returns the backends that go by another name than when they were last seen idle, as they
    /// were then.
    fn observe_backends(&mut self, picture: &Picture) -> HashMap<Pid, Idle> {
        let mut renamed = HashMap::default();
        for (pid, session) in &picture.sessions {
            let Some(name) = session.application_name.as_ref().filter(|_| session.is_idle()) else {
                continue;
            };
            let backend_start = session.backend_start;
            let now = Idle { backend_start, name: name.clone(), at: picture.at };
            if let Some(before) = self.backends.insert(*pid, now)
                && before.backend_start == backend_start
                && before.name != *name
            {
                renamed.insert(*pid, before);
            }
        }
        if !picture.sessions.is_empty() {
            self.backends.retain(|pid, _| picture.sessions.contains_key(pid));
        }
        renamed
    }

    /// Judges a hold. `may_hold` says whether the entry of its key expects a name.
    pub(super) fn judge(
        &self,
        lock: &Lock,
        holder: &Holder,
        may_hold: impl Fn(&str) -> bool,
        own_pooler: Option<ClientAddress>,
    ) -> Option<Sharing> {
        if holder.scope != Scope::Session {
            return None;
        }
        let pid = holder.id.pid()?;
        let address = holder.session.client_address();
        let is_listed = address.is_some_and(|address| self.is_pooler(address));
        let change = self.holds.get(&pid).and_then(|holds| holds.get(&lock.id)?.change(may_hold));
        let Some(change) = change else {
            return is_listed.then_some(Sharing { change: None, sign: Some(Sign::Listed) });
        };
        // Everybody on the machine may come over its socket.
        let is_ours = matches!(address, Some(ClientAddress::Ip(_))) && address == own_pooler;
        let has_other_host = has_other_host(&change.first, &change.other);
        let sign = if is_listed {
            Some(Sign::Listed)
        } else if has_other_host {
            Some(Sign::HostChanged)
        } else {
            is_ours.then_some(Sign::OurPooler)
        };
        Some(Sharing { change: Some(change), sign })
    }

    /// Who goes by which name now; nobody while no hold has gone by two.
    pub(super) fn namesakes<'a>(&self, sessions: &'a HashMap<Pid, Arc<Session>>) -> Namesakes<'a> {
        let has_changed = self.holds.values().flat_map(HashMap::values).any(Named::has_changed);
        if has_changed { Namesakes::of(sessions) } else { Namesakes::default() }
    }

    /// The name of a hold's backend when it was first seen idle with the key.
    pub(super) fn idle_name(&self, key: KeyId, holder: &Holder) -> Option<&Arc<str>> {
        let pid = holder.id.pid()?;
        let named = self.holds.get(&pid).and_then(|holds| holds.get(&key));
        let idle = self.backends.get(&pid).filter(|idle| holder.since <= idle.at);
        named.map(|named| &named.first).or(idle.map(|idle| &idle.name))
    }

    pub(super) fn recall(&mut self, names: &[FirstName]) {
        for name in names.iter().filter(|name| name.idle_name.is_some()) {
            if let Some(key) = name.key_id() {
                self.recalled.entry((name.pid, key)).or_default().push(name.clone());
            }
        }
    }
}

impl Named {
    /// A hold that was there when its backend was last seen idle, by the name it had then.
    fn begin(before: &Idle, holder: &Holder) -> Option<Self> {
        (holder.since <= before.at).then(|| Self {
            backend_start: before.backend_start,
            modes: holder.modes().cloned().collect(),
            first: before.name.clone(),
            others: Vec::new(),
            now: before.name.clone(),
            came_back: None,
            seen_at: before.at,
        })
    }

    /// A hold that an earlier process knew.
    fn recalled(names: &[FirstName], holder: &Holder, at: Timestamp) -> Option<Self> {
        let backend_start = holder.session.backend_start;
        let of_hold = |name: &&FirstName| {
            backend_start == Some(name.backend_start)
                && holder.modes().any(|mode| *mode == name.mode)
        };
        let names: Vec<&FirstName> = names.iter().filter(of_hold).collect();
        let first = names.first()?.idle_name.clone()?;
        Some(Self {
            backend_start,
            modes: names.into_iter().map(|name| name.mode.clone()).collect(),
            now: first.clone(),
            first,
            others: Vec::new(),
            came_back: None,
            seen_at: at,
        })
    }

    /// The same, if it is this hold still. A hold only ever turns out to be older.
    fn of(mut self, holder: &Holder) -> Option<Self> {
        let start = holder.session.backend_start;
        let is_same_backend =
            self.backend_start.is_none() || start.is_none() || self.backend_start == start;
        self.modes.retain(|mode| holder.modes().any(|held| held == mode));
        let is_same = is_same_backend && holder.since <= self.seen_at && !self.modes.is_empty();
        is_same.then_some(self)
    }

    fn observe(&mut self, holder: &Holder, at: Timestamp, applications: &Applications) {
        self.seen_at = at;
        let session = &holder.session;
        let Some(name) = session.application_name.as_ref().filter(|_| session.is_idle()) else {
            return;
        };
        if *name == self.now {
            return;
        }
        self.now = name.clone();
        let known = self.others.iter().position(|other| other.name == *name);
        if known.is_some() || self.first == *name {
            self.came_back = Some(name.clone());
        } else if !are_of_one_client(&self.first, name, applications) {
            if self.others.len() == MOST_NAMES {
                self.others.remove(0);
            }
            self.others.push(Other { name: name.clone(), since: at });
        }
    }

    fn has_changed(&self) -> bool {
        !self.others.is_empty()
    }

    /// The latest name that counts, if there is one.
    fn change(&self, may_hold: impl Fn(&str) -> bool) -> Option<NameChange> {
        let counts = |other: &&Other| !(may_hold(&self.first) && may_hold(&other.name));
        let other = self.others.iter().rev().find(counts)?;
        Some(NameChange {
            first: self.first.clone(),
            other: other.name.clone(),
            since: other.since,
            came_back: self.came_back.clone(),
            elsewhere: None,
        })
    }
}

/// Whether a program that was called the one may well be called the other now.
fn are_of_one_client(first: &str, other: &str, applications: &Applications) -> bool {
    if has_other_host(first, other) {
        return false;
    }
    first.is_empty()
        || DEFAULT_NAMES.contains(&first)
        || (applications.renames_itself(first) && applications.renames_itself(other))
        || are_alike(&applications.rename(first), &applications.rename(other))
}

/// Whether two names differ in numbers alone: those of jobs, processes and pods.
fn are_alike(one: &str, other: &str) -> bool {
    // A number in front of a letter may look like hexadecimal, so each is tried by itself.
    static DECIMAL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("[0-9]+").ok());
    static HEXADECIMAL: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let uuid = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
        Regex::new(&format!("{uuid}|[0-9a-fA-F]{{8,}}|[0-9]+")).ok()
    });
    one == other
        || [&DECIMAL, &HEXADECIMAL]
            .into_iter()
            .filter_map(|numbers| numbers.as_ref())
            .any(|numbers| numbers.replace_all(one, "#") == numbers.replace_all(other, "#"))
}

/// Whether both names end in the host and port of a client, as PgBouncer's `application_name_add_host`
/// adds them, and these are two.
fn has_other_host(first: &str, other: &str) -> bool {
    match (client_host(first), client_host(other)) {
        (Some(first), Some(other)) => first != other,
        (Some(_) | None, _) => false,
    }
}

/// `10.0.0.5:41234` of `web - 10.0.0.5:41234`; PgBouncer writes `unix(4711):6432` for its own socket.
fn client_host(name: &str) -> Option<&str> {
    let (_, client) = name.rsplit_once(" - ")?;
    let (host, port) = client.rsplit_once(':')?;
    let is_address = || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    let is_host = host.starts_with("unix(") || is_address();
    (is_host && port.parse::<u16>().is_ok()).then_some(client)
}

/// Backends by name and origin, of each the two with the lowest pids: they are counted once a poll,
/// since one session may hold very many keys. What is unknown of two is not the same.
#[derive(Default)]
pub(super) struct Namesakes<'a>(HashMap<(&'a str, Origin), Vec<Pid>>);

type Origin = (RoleOid, DatabaseOid, ClientAddress);

impl<'a> Namesakes<'a> {
    fn of(sessions: &'a HashMap<Pid, Arc<Session>>) -> Self {
        let mut sessions: Vec<_> = sessions.iter().collect();
        sessions.sort_unstable_by_key(|(pid, _)| **pid);
        let mut by_name: HashMap<_, Vec<Pid>> = HashMap::default();
        for (pid, session) in sessions {
            let name = session.application_name.as_deref();
            if let Some(key) = name.zip(origin(session)) {
                let pids = by_name.entry(key).or_default();
                // One of the two is another, whoever asks.
                if pids.len() < 2 {
                    pids.push(*pid);
                }
            }
        }
        Self(by_name)
    }

    /// Another backend of the same role, database and address that goes by a name.
    fn elsewhere(&self, pid: Pid, session: &Session, name: &str) -> Option<Pid> {
        let namesakes = self.0.get(&(name, origin(session)?))?;
        namesakes.iter().copied().find(|other| *other != pid)
    }
}

fn origin(session: &Session) -> Option<Origin> {
    Some((session.role?, session.database?, session.client_address()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Application;

    fn one_client(first: &str, other: &str) -> bool {
        let rule = |pattern, name| Application::new(pattern, name).unwrap();
        let rules =
            vec![rule("^(svc-[a-z]+)-.*$", "$1"), rule("^job: ", "$0").renaming_itself(true)];
        are_of_one_client(first, other, &Applications::new(rules))
    }

    #[test]
    fn names_that_differ_in_numbers_alone_are_of_one_client() {
        for (first, other) in [
            ("worker: ReportJob#41", "worker: ReportJob#42"),
            ("worker 9", "worker 10"),
            ("feed999", "feed1000"),
            ("web-7d9f8b6c54", "web-66bcd5a8f7"),
            (
                "run 0b9e1a52-7c1e-4b8e-9a51-3f1a5a2f7a01",
                "run ffffffff-1111-2222-3333-444444444444",
            ),
            ("svc-pay-abc", "svc-pay-xyz"),
            ("job: mail", "job: report"),
            ("", "web"),
            ("PostgreSQL JDBC Driver", "billing"),
            ("psql", "nightly"),
        ] {
            assert!(one_client(first, other), "{first} and {other}");
        }
        for (first, other) in [
            ("pod-a", "pod-b"),
            ("authentik-migrate", "web"),
            ("web", ""),
            ("web", "psql"),
            ("svc-pay-abc", "svc-mail-abc"),
            ("job: mail", "web"),
            ("web-face", "web-dead"),
        ] {
            assert!(!one_client(first, other), "{first} and {other}");
        }
    }

    #[test]
    fn another_client_port_that_the_pooler_added_is_another_client() {
        for (first, other) in [
            ("web - 10.0.0.5:41234", "web - 10.0.0.5:41235"),
            ("web - 10.0.0.5:41234", "web - [2001:db8::1]:41234"),
            ("psql - unix(17):6432", "psql - unix(18):6432"),
        ] {
            assert!(has_other_host(first, other), "{first} and {other}");
            assert!(!one_client(first, other), "{first} and {other}");
        }
        for (first, other) in [
            ("web - 10.0.0.5:41234", "web - 10.0.0.5:41234"),
            ("web - 10.0.0.5:41234", "web"),
            ("step - a:1", "step - a:2"),
            ("step - 1:2:3", "step - 1:2:4"),
        ] {
            assert!(!has_other_host(first, other), "{first} and {other}");
        }
    }
}
