//! Which rows are shown: words that all have to be found, as typed after `/`.
//!
//! A bare word is looked for in names, keys, applications, databases, servers, states and findings;
//! a number is a whole pid or a part of a key. `app:`, `pid:`, `lock:`, `key:`, `db:`, `server:`,
//! `state:`, `finding:` and `user:` look in one place, `!` before a word turns it round. Nothing that
//! is typed is a mistake. Pure.

use super::column::{Subject, UNREGISTERED, title};
use super::row::Party;
use crate::snapshot::{Finding, Server, Session};

/// What has to be found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    text: String,
    words: Vec<Word>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    place: Place,
    text: String,
    is_excluded: bool,
}

/// Where a word is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Anywhere,
    Application,
    Pid,
    Lock,
    Key,
    Database,
    Server,
    State,
    Finding,
    User,
}

const PLACES: [(&str, Place); 11] = [
    ("app", Place::Application),
    ("application", Place::Application),
    ("pid", Place::Pid),
    ("lock", Place::Lock),
    ("key", Place::Key),
    ("db", Place::Database),
    ("database", Place::Database),
    ("server", Place::Server),
    ("state", Place::State),
    ("finding", Place::Finding),
    ("user", Place::User),
];

impl Filter {
    /// From a text as it is typed.
    pub fn parse(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            words: text.split_whitespace().filter_map(Word::parse).collect(),
        }
    }

    /// As it was typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether everything is shown.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether a row is shown. A row about a key is also found by everybody on it.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.words.iter().all(|word| word.finds_key(subject) != word.is_excluded)
    }

    /// Whether somebody in a chain is shown, of whom no key is known.
    pub fn matches_party(&self, server: &Server, party: Party<'_>) -> bool {
        self.words.iter().all(|word| {
            let found = word.finds_server(server) || word.finds_party(party);
            found != word.is_excluded
        })
    }
}

impl Word {
    fn parse(text: &str) -> Option<Self> {
        let (is_excluded, text) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let placed = text.split_once(':').and_then(|(place, rest)| {
            let place = place.to_lowercase();
            PLACES.iter().find(|(name, _)| *name == place).map(|(_, place)| (*place, rest))
        });
        let (place, text) = placed.unwrap_or((Place::Anywhere, text));
        // Half typed, it hides nothing.
        (!text.is_empty()).then(|| Self { place, text: text.to_lowercase(), is_excluded })
    }

    fn finds_key(&self, subject: &Subject<'_>) -> bool {
        let Subject { server, lock, party, .. } = *subject;
        self.finds_server(server)
            || (self.looks_in(Place::Lock) && self.is_in(&title(lock)))
            || (self.looks_in(Place::Lock) && lock.lock.is_none() && self.is_in(UNREGISTERED))
            || (self.looks_in(Place::Key) && self.is_in(&lock.key.to_string()))
            || (self.looks_in(Place::Database) && self.is_in(&lock.datname))
            || (self.looks_in(Place::Finding) && subject.findings().any(|one| self.finds(one)))
            || match party {
                Some(party) => self.finds_party(party),
                None => {
                    let mut holders = lock.holders.iter();
                    let mut waiters = lock.waiters.iter();
                    holders.any(|holder| self.finds_party(Party::Holder(lock, holder)))
                        || waiters.any(|waiter| self.finds_party(Party::Waiter(lock, waiter)))
                }
            }
    }

    fn finds_server(&self, server: &Server) -> bool {
        self.looks_in(Place::Server) && self.is_in(&server.server)
    }

    fn finds(&self, finding: &Finding) -> bool {
        self.is_in(&finding.finding) || self.is_in(finding.severity.as_str())
    }

    fn finds_party(&self, party: Party<'_>) -> bool {
        let Session { application_name, usename, state, .. } = party.session();
        let first = match party {
            Party::Holder(_, holder) => holder.first_application_name.as_deref(),
            Party::Waiter(..) | Party::OtherWait(_) | Party::Root(_) => None,
        };
        let gid = party.prepared().and_then(|prepared| prepared.gid.as_deref());
        // As it is shown in the place of a state.
        let prepared = party.prepared().map(|_| "prepared");
        let has = |place, text: Option<&str>| {
            self.looks_in(place) && text.is_some_and(|text| self.is_in(text))
        };
        has(Place::Application, application_name.as_deref())
            || has(Place::Application, first)
            || has(Place::Application, gid)
            || has(Place::User, usename.known().map(|name| &**name))
            || has(Place::State, state.as_deref().or(prepared))
            || (self.looks_in(Place::Pid)
                && party.pid().is_some_and(|pid| pid.0.to_string() == self.text))
    }

    fn looks_in(&self, place: Place) -> bool {
        self.place == place || self.place == Place::Anywhere
    }

    fn is_in(&self, text: &str) -> bool {
        // Nearly all names are ASCII, and there may be very many.
        if text.is_ascii() && self.text.is_ascii() {
            let (text, word) = (text.as_bytes(), self.text.as_bytes());
            return text.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word));
        }
        text.to_lowercase().contains(&self.text)
    }
}

#[cfg(test)]
mod tests;
