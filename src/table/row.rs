//! What a line of a view is about: where that is in the picture, and who it is whatever its place.
//!
//! The selection follows an identity, since rows come, go and are sorted anew at every poll. A place
//! is good for one picture only. Pure.

use std::sync::Arc;

use crate::finding::Severity;
use crate::key::Key;
use crate::mode::Mode;
use crate::sample::Pid;
use crate::snapshot::{ChainRoot, Holder, Lock, OtherWait, Prepared, Server, Session, Waiter};
use crate::timestamp::Timestamp;

/// Who or what a row is, over pictures.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RowId {
    /// A server as a whole: of which something is not told.
    Server(Arc<str>),
    /// A key.
    Lock(LockId),
    /// Somebody on a key.
    Party(LockId, PartyId),
    /// Somebody in a chain, whatever they wait for or hold.
    Session(Arc<str>, PartyId),
    /// Many keys in one line.
    Fold(FoldId),
}

/// A key on a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockId {
    /// The `server` label.
    pub server: Arc<str>,
    /// The database.
    pub datname: Arc<str>,
    /// The key.
    pub key: Key,
}

/// A backend or a prepared transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PartyId {
    /// A pid is given out again, so its start belongs to it.
    Backend(Pid, Option<Timestamp>),
    /// By its gid, where that is told.
    Prepared(Option<Arc<str>>),
}

/// What many keys have in common that are shown in one line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FoldId {
    /// The `server` label.
    pub server: Arc<str>,
    /// The database.
    pub datname: Arc<str>,
    /// The name that all of them have; `None` for keys without one.
    pub lock: Option<Arc<str>>,
    /// Who holds all of them, where a line stands for one session, and a prepared transaction always:
    /// it has no other name than its own.
    pub party: Option<PartyId>,
    /// What their holders call themselves.
    pub application_name: Option<Arc<str>>,
    /// What they called themselves when the hold was first seen.
    pub first_application_name: Option<Arc<str>>,
    /// What their holders do.
    pub state: Option<Arc<str>>,
    /// How they are held.
    pub mode: Mode,
    /// What is said of each of them, and how urgent it is.
    pub findings: Vec<(Arc<str>, Severity)>,
}

/// Where something is in the present pictures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which of the servers.
    pub server: usize,
    /// What there.
    pub what: What,
}

/// Something of a server, by its number there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The server itself.
    Server,
    /// A key.
    Lock(usize),
    /// A key and one of its holders.
    Holder(usize, usize),
    /// A key and one of its waiters.
    Waiter(usize, usize),
    /// Who waits for a lock of another type.
    OtherWait(usize),
    /// Where a chain ends, of whom no key is shown.
    Root(usize),
    /// Several keys.
    Fold(Vec<usize>),
}

/// Somebody in the picture.
#[derive(Clone, Copy, Debug)]
pub enum Party<'a> {
    /// Holds a key.
    Holder(&'a Lock, &'a Holder),
    /// Waits for a key.
    Waiter(&'a Lock, &'a Waiter),
    /// Waits for a lock of another type.
    OtherWait(&'a OtherWait),
    /// Is at the end of a chain.
    Root(&'a ChainRoot),
}

impl LockId {
    /// Of a key in the picture.
    pub fn of(server: &Server, lock: &Lock) -> Self {
        Self { server: server.server.clone(), datname: lock.datname.clone(), key: lock.key }
    }
}

impl Place {
    /// The server.
    pub fn server<'a, S: AsRef<Server>>(&self, all: &'a [S]) -> Option<&'a Server> {
        all.get(self.server).map(AsRef::as_ref)
    }

    /// The key, where it is one or somebody on one.
    pub fn lock<'a, S: AsRef<Server>>(&self, all: &'a [S]) -> Option<&'a Lock> {
        let index = match &self.what {
            What::Lock(lock) | What::Holder(lock, _) | What::Waiter(lock, _) => *lock,
            What::Fold(locks) => *locks.first()?,
            What::Server | What::OtherWait(_) | What::Root(_) => return None,
        };
        self.server(all)?.locks.as_ref()?.get(index)
    }

    /// Somebody; of a key its first holder.
    pub fn party<'a, S: AsRef<Server>>(&self, all: &'a [S]) -> Option<Party<'a>> {
        let server = self.server(all)?;
        match &self.what {
            What::Holder(_, holder) => {
                let lock = self.lock(all)?;
                Some(Party::Holder(lock, lock.holders.get(*holder)?))
            }
            What::Waiter(_, waiter) => {
                let lock = self.lock(all)?;
                Some(Party::Waiter(lock, lock.waiters.get(*waiter)?))
            }
            What::OtherWait(index) => {
                Some(Party::OtherWait(server.other_waits.as_ref()?.get(*index)?))
            }
            What::Root(index) => Some(Party::Root(server.roots.as_ref()?.get(*index)?)),
            What::Lock(_) | What::Fold(_) => {
                let lock = self.lock(all)?;
                Some(Party::Holder(lock, lock.holders.first()?))
            }
            What::Server => None,
        }
    }
}

impl<'a> Party<'a> {
    /// Its identity.
    pub fn id(&self) -> PartyId {
        match self.pid() {
            Some(pid) => PartyId::Backend(pid, self.session().backend_start),
            None => PartyId::Prepared(self.prepared().and_then(|prepared| prepared.gid.clone())),
        }
    }

    /// `None` for a prepared transaction.
    pub const fn pid(&self) -> Option<Pid> {
        match self {
            Self::Holder(_, holder) => holder.pid,
            Self::Waiter(_, waiter) => waiter.pid,
            Self::OtherWait(wait) => wait.pid,
            Self::Root(root) => root.pid,
        }
    }

    /// Its backend.
    pub const fn session(&self) -> &'a Session {
        match self {
            Self::Holder(_, holder) => &holder.session,
            Self::Waiter(_, waiter) => &waiter.session,
            Self::OtherWait(wait) => &wait.session,
            Self::Root(root) => &root.session,
        }
    }

    /// The transaction, where it is a prepared one.
    pub const fn prepared(&self) -> Option<&'a Prepared> {
        match self {
            Self::Holder(_, holder) => holder.prepared.as_ref(),
            Self::Root(root) => root.prepared.as_ref(),
            Self::Waiter(..) | Self::OtherWait(_) => None,
        }
    }

    /// The mode held or asked for.
    pub const fn mode(&self) -> Option<&'a Mode> {
        match self {
            Self::Holder(_, holder) => Some(&holder.mode),
            Self::Waiter(_, waiter) => Some(&waiter.mode),
            Self::OtherWait(wait) => Some(&wait.mode),
            Self::Root(_) => None,
        }
    }
}
