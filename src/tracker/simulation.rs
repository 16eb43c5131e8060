//! The tracker against the truth: sessions of a made-up server lock and unlock at random moments,
//! polls look on as the real ones do, and nothing may be claimed that was not so.
//!
//! The server here has what the rules are about: session and transaction level, the moment of a
//! commit in which a transaction's locks are still there though it has no number any more, states
//! that change between the reading of locks and of activity, the queue with its jump for whoever
//! holds the key already, failed transactions with and without a savepoint, procedures that commit
//! inside one statement, and pids that are used again.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::*;
use crate::map::HashMap;
use crate::sample::Backend;

/// One random choice: who acts, and how.
type Choice = (u8, u8, u8);

const SESSIONS: usize = 3;
const KEYS: i64 = 2;

/// What one run of the server allows.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// One session may lock one key now at session and now at transaction level.
    mixes_levels: bool,
    /// One session may hold one key in both modes.
    mixes_modes: bool,
    /// The exporter's role may not see what others do.
    hides_activity: bool,
    /// Clients leave, and their pid is another's at once.
    reuses_pids: bool,
    /// Some polls come back without activity.
    answers_late: bool,
}

/// A granted row: since when it has been there, and to whom it belongs.
#[derive(Clone, Copy, Debug)]
struct Held {
    since: i64,
    /// Since when the session has held the key without a gap, in whatever mode.
    key_since: i64,
    by_session: bool,
    by_transaction: bool,
    /// It was the session's at some time, whatever it is now.
    was_session: bool,
}

#[derive(Clone, Debug)]
struct Waiting {
    who: usize,
    key: i64,
    mode: Mode,
    by_session: bool,
    since: i64,
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Resting,
    Running,
    Waiting,
    /// The transaction has no number any more; its locks are still there.
    Ending(State),
    /// The locks are gone; the state is not reported yet.
    Ended(State),
}

#[derive(Clone, Debug)]
struct Client {
    start: i64,
    local_id: u32,
    last_local_id: u32,
    state: State,
    state_change: i64,
    in_block: bool,
    phase: Phase,
}

type Row = (usize, i64, Mode);

#[derive(Debug)]
struct Server {
    now: i64,
    clients: Vec<Client>,
    held: BTreeMap<Row, Held>,
    queue: Vec<Waiting>,
    /// Waits that ended with the lock.
    granted_waits: Vec<(usize, i64)>,
}

impl Server {
    fn new() -> Self {
        let client = Client {
            start: 0,
            local_id: 0,
            last_local_id: 0,
            state: State::Idle,
            state_change: 0,
            in_block: false,
            phase: Phase::Resting,
        };
        Self {
            now: 0,
            clients: vec![client; SESSIONS],
            held: BTreeMap::new(),
            queue: Vec::new(),
            granted_waits: Vec::new(),
        }
    }

    fn act(&mut self, who: usize, how: u8, what: u8, rules: Rules) {
        self.now += 1;
        let now = self.now;
        let client = &mut self.clients[who];
        match client.phase.clone() {
            Phase::Resting if rules.reuses_pids && how.is_multiple_of(16) && client.is_idle() => {
                // Gone, and the pid is used again at once.
                client.start = now;
                client.state_change = now;
                self.held.retain(|(holder, ..), _| *holder != who);
                self.wake();
            }
            Phase::Resting => {
                if client.is_idle() {
                    client.in_block = how.is_multiple_of(2);
                    client.begin();
                }
                client.phase = Phase::Running;
                if client.state != State::IdleInTransactionAborted {
                    client.state = State::Active;
                    client.state_change = now;
                } else {
                    // Only the end of the transaction is left.
                    client.state = State::Active;
                    client.state_change = now;
                    client.end(State::Idle);
                }
            }
            Phase::Running => self.run(who, how, what, rules),
            Phase::Waiting => {
                if how.is_multiple_of(8) {
                    self.queue.retain(|wait| wait.who != who);
                    let rest = self.clients[who].state_after_failure();
                    self.clients[who].end(rest);
                    self.wake();
                }
            }
            Phase::Ending(rest) => {
                client.phase = Phase::Ended(rest);
                self.held.retain(|(holder, ..), held| {
                    held.by_transaction &= *holder != who;
                    held.by_session || held.by_transaction
                });
                self.wake();
            }
            Phase::Ended(State::Idle) if how.is_multiple_of(4) => {
                // A procedure goes on in its next transaction: no state changes.
                client.in_block = false;
                client.begin();
                client.phase = Phase::Running;
            }
            Phase::Ended(rest) => client.rest(rest, now),
        }
    }

    fn run(&mut self, who: usize, how: u8, what: u8, rules: Rules) {
        let key = i64::from(what) % KEYS;
        let is_exclusive = if rules.mixes_modes { what & 2 == 0 } else { who == 0 || key == 0 };
        let mode = if is_exclusive { Mode::Exclusive } else { Mode::Share };
        let by_session = if rules.mixes_levels { what & 4 == 0 } else { who.is_multiple_of(2) };
        let now = self.now;
        let client = &mut self.clients[who];
        match how % 8 {
            0..=2 => self.lock(who, key, mode, by_session),
            3 | 4 => {
                let row = (who, key, mode);
                if let Some(held) = self.held.get_mut(&row) {
                    held.by_session = false;
                    if !held.by_transaction {
                        self.held.remove(&row);
                        self.wake();
                    }
                }
            }
            5 if client.in_block => client.rest(State::IdleInTransaction, now),
            6 if client.in_block && what & 8 == 0 => {
                // The statement fails behind a savepoint that every lock stands before.
                client.rest(State::IdleInTransactionAborted, now);
            }
            6 => {
                let rest = client.state_after_failure();
                client.end(rest);
            }
            _ => client.end(State::Idle),
        }
    }

    /// `LockAcquireExtended` and `JoinWaitQueue`, as far as they matter here.
    fn lock(&mut self, who: usize, key: i64, mode: Mode, by_session: bool) {
        if self.held.contains_key(&(who, key, mode.clone())) {
            return self.grant(who, key, mode, by_session);
        }
        let held: Vec<Mode> = self.modes(who, key).collect();
        let is_kept_out = self.is_kept_out(who, key, &mode);
        let in_queue: Vec<usize> =
            (0..self.queue.len()).filter(|index| self.queue[*index].key == key).collect();
        let must_queue =
            is_kept_out || in_queue.iter().any(|index| conflict(&self.queue[*index].mode, &mode));
        if !must_queue {
            return self.grant(who, key, mode, by_session);
        }
        let mut place = self.queue.len();
        let mut ahead: Vec<Mode> = Vec::new();
        for index in in_queue {
            let other = &self.queue[index];
            if held.iter().any(|held| conflict(held, &other.mode)) {
                if self.modes(other.who, key).any(|theirs| conflict(&theirs, &mode)) {
                    return; // An early deadlock; the statement would fail.
                }
                if !is_kept_out && !ahead.iter().any(|ahead| conflict(ahead, &mode)) {
                    return self.grant(who, key, mode, by_session);
                }
                place = index;
                break;
            }
            ahead.push(other.mode.clone());
        }
        let since = self.now;
        self.queue.insert(place, Waiting { who, key, mode, by_session, since });
        self.clients[who].phase = Phase::Waiting;
    }

    fn grant(&mut self, who: usize, key: i64, mode: Mode, by_session: bool) {
        let rows = self.held.iter().filter(|(row, _)| (row.0, row.1) == (who, key));
        let key_since = rows.map(|(_, held)| held.key_since).min().unwrap_or(self.now);
        let new = Held {
            since: self.now,
            key_since,
            by_session: false,
            by_transaction: false,
            was_session: false,
        };
        let held = self.held.entry((who, key, mode)).or_insert(new);
        held.by_session |= by_session;
        held.was_session |= by_session;
        held.by_transaction |= !by_session;
    }

    fn modes(&self, who: usize, key: i64) -> impl Iterator<Item = Mode> + '_ {
        let rows = self.held.keys().filter(move |row| (row.0, row.1) == (who, key));
        rows.map(|(_, _, mode)| mode.clone())
    }

    fn is_kept_out(&self, who: usize, key: i64, mode: &Mode) -> bool {
        self.held
            .keys()
            .any(|(other, held, theirs)| *other != who && *held == key && conflict(theirs, mode))
    }

    /// `ProcLockWakeup`
    fn wake(&mut self) {
        let mut still: Vec<Waiting> = Vec::new();
        for wait in std::mem::take(&mut self.queue) {
            let is_behind = still
                .iter()
                .any(|ahead| ahead.key == wait.key && conflict(&ahead.mode, &wait.mode));
            if is_behind || self.is_kept_out(wait.who, wait.key, &wait.mode) {
                still.push(wait);
                continue;
            }
            self.granted_waits.push((wait.who, wait.since));
            self.clients[wait.who].phase = Phase::Running;
            self.grant(wait.who, wait.key, wait.mode, wait.by_session);
        }
        self.queue = still;
    }

    fn transaction(&self, who: usize) -> VirtualTransaction {
        VirtualTransaction::from_server(&format!("{who}/{}", self.clients[who].local_id))
    }

    fn read_locks(&self) -> Vec<KeyGroup> {
        let group = |who: usize, key: i64, mode: &Mode, granted, wait_start| KeyGroup {
            database: DatabaseOid(5),
            pid: Some(pid(who)),
            transaction: self.transaction(who),
            mode: mode.clone(),
            granted,
            wait_start,
            keys: vec![Key::bigint(key)],
        };
        let held = self.held.keys().map(|(who, key, mode)| group(*who, *key, mode, true, None));
        let awaited = self.queue.iter().map(|wait| {
            // It is written a moment after the request stands in the queue.
            let start = (wait.since < self.now).then(|| moment(wait.since));
            group(wait.who, wait.key, &wait.mode, false, start)
        });
        held.chain(awaited).collect()
    }

    fn read_activity(&self, rules: Rules) -> Vec<Backend> {
        let shown = |who: usize| {
            let client = &self.clients[who];
            let visible = !rules.hides_activity;
            Backend {
                pid: pid(who),
                database: None,
                role: None,
                application_name: Some("made-up".into()),
                state: if visible { client.state.clone() } else { State::Unknown },
                state_change: visible.then(|| moment(client.state_change)),
                wait_event: None,
                backend_start: visible.then(|| moment(client.start)),
                client_addr: None,
                client_port: None,
                snapshot_age: None,
                backend_type: visible.then(|| "client backend".into()),
                leader: None,
            }
        };
        (0..SESSIONS).map(shown).collect()
    }
}

impl Client {
    fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    fn begin(&mut self) {
        self.last_local_id += 1;
        self.local_id = self.last_local_id;
    }

    fn end(&mut self, rest: State) {
        self.local_id = 0;
        self.phase = Phase::Ending(rest);
    }

    fn rest(&mut self, state: State, now: i64) {
        self.phase = Phase::Resting;
        self.state = state;
        self.state_change = now;
    }

    fn state_after_failure(&self) -> State {
        if self.in_block { State::IdleInTransactionAborted } else { State::Idle }
    }
}

fn conflict(a: &Mode, b: &Mode) -> bool {
    *a == Mode::Exclusive || *b == Mode::Exclusive
}

fn pid(who: usize) -> Pid {
    Pid(100 + i32::try_from(who).unwrap())
}

fn moment(tick: i64) -> Timestamp {
    Timestamp::from_unix_micros(tick)
}

/// A poll under way: when it began, and what it read of the lock table, with the truth beside it.
struct Reading {
    at: i64,
    locks: Option<(i64, Vec<KeyGroup>, BTreeMap<Row, Held>)>,
}

/// What was true when a presence began.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    held_since: i64,
    backend: i64,
}

#[derive(Default)]
struct Observer {
    tracker: Tracker,
    reading: Option<Reading>,
    /// When the poll before read the lock table.
    last_read: i64,
    presences: BTreeMap<Row, Beginning>,
    scopes: BTreeMap<Row, Scope>,
}

impl Observer {
    /// One step of a poll: its beginning, the lock table, then activity and the conclusions.
    fn poll(&mut self, server: &mut Server, what: u8, rules: Rules) -> TestCaseResult {
        server.now += 1;
        let Some(reading) = &mut self.reading else {
            self.reading = Some(Reading { at: server.now, locks: None });
            return Ok(());
        };
        let Some((read_at, advisory, truth)) = reading.locks.take() else {
            reading.locks = Some((server.now, server.read_locks(), server.held.clone()));
            return Ok(());
        };
        let at = reading.at;
        self.reading = None;
        let answers_late = rules.answers_late && what.is_multiple_of(16);
        let sample = Sample {
            at: moment(at),
            at_local: moment(at),
            round_trip: Duration::ZERO,
            read_at: moment(read_at),
            own_pid: Pid(1),
            in_recovery: false,
            advisory,
            other_locks: Vec::new(),
            backends: (!answers_late).then(|| server.read_activity(rules)),
            prepared: Some(Vec::new()),
            table_entries: None,
        };
        let waits_before = self.tracker.waits().clone();
        let changes = self.tracker.observe(&sample, |_| None);
        self.check_rows(&sample)?;
        self.check_holds(server, read_at, &truth, rules)?;
        self.last_read = read_at;
        // Who takes a second mode between two polls, lets go of the first and takes that again has
        // let others in under a waiter that stayed; no poll shows it.
        if rules.mixes_modes {
            return Ok(());
        }
        check_waits(server, &self.tracker, &waits_before, &changes)
    }

    /// Each row is one hold or one wait, and there is no other.
    fn check_rows(&self, sample: &Sample) -> TestCaseResult {
        prop_assert_eq!(self.tracker.holds().len(), sample.advisory_rows(true));
        prop_assert_eq!(self.tracker.waits().len(), sample.advisory_rows(false));
        Ok(())
    }

    fn check_holds(
        &mut self,
        server: &Server,
        read_at: i64,
        truth: &BTreeMap<Row, Held>,
        rules: Rules,
    ) -> TestCaseResult {
        // A pid that was used again is another presence, where that can be seen.
        let backend = |who: usize| if rules.hides_activity { 0 } else { server.clients[who].start };
        self.presences.retain(|row, _| truth.contains_key(row));
        self.scopes.retain(|row, _| truth.contains_key(row));
        for (row, held) in truth {
            let (who, key, mode) = row;
            let id = HoldId {
                holder: SessionId::Backend(pid(*who)),
                key: KeyId { database: DatabaseOid(5), key: Key::bigint(*key) },
                mode: mode.clone(),
            };
            let hold = &self.tracker.holds()[&id];
            let new = Beginning { held_since: held.since, backend: backend(*who) };
            let presence = self.presences.entry(row.clone()).or_insert(new);
            // Activity that was not read shows no new backend; the next poll does.
            if held.since >= new.backend && presence.backend < new.backend {
                *presence = new;
                self.scopes.remove(row);
            }
            let presence = *presence;
            let context = || format!("{row:?} {held:?} {presence:?} {hold:?}");

            prop_assert!(
                hold.since.unix_micros() <= read_at,
                "since after the poll: {}",
                context()
            );
            prop_assert!(hold.since <= hold.proved_since, "proved before since: {}", context());
            // Under a waiter a session may change its mode and back between two polls, by the jump
            // of whoever holds the key already: it is the key that has been held throughout.
            prop_assert!(
                held.key_since <= hold.proved_since.unix_micros(),
                "not held that long: {}",
                context()
            );
            prop_assert!(
                !hold.is_unbroken || held.key_since <= self.last_read,
                "let go of since the poll before: {}",
                context()
            );
            prop_assert!(
                presence.held_since <= hold.since.unix_micros(),
                "seen before it was there: {}",
                context()
            );
            if let Some(bound) = hold.earliest_start() {
                prop_assert!(bound.unix_micros() < held.since.max(1), "held before: {}", context());
                prop_assert!(bound <= hold.since, "bounds cross: {}", context());
            }
            let before = self.scopes.insert(row.clone(), hold.scope());
            let is_new = before != Some(hold.scope());
            // What outlived a transaction was the session's then. A session that takes it again in
            // the next one and unlocks it once makes it that transaction's, and no row shows it.
            let is_true = match hold.scope {
                Some(ScopeEvidence::OutlivedTransactionUnderWaiter) => held.was_session,
                _ => held.by_session,
            };
            if hold.scope() == Scope::Session && (is_new || !rules.mixes_levels) {
                prop_assert!(is_true, "not the session's: {}", context());
            }
            prop_assert_ne!(hold.scope(), Scope::Transaction);
            if is_new && before.is_some() {
                prop_assert_ne!(hold.scope(), Scope::Unknown, "proof was lost: {}", context());
            }
        }
        Ok(())
    }
}

/// No more waits are said to have ended without the lock than did.
fn check_waits(
    server: &Server,
    tracker: &Tracker,
    before: &HashMap<WaitId, Wait>,
    changes: &[Change],
) -> TestCaseResult {
    for key in (0..KEYS).map(|key| KeyId { database: DatabaseOid(5), key: Key::bigint(key) }) {
        let is_gone = |change: &&Change| {
            matches!(change, Change::WaitEnded { id, outcome: WaitOutcome::Gone, .. }
                if id.key == key)
        };
        let said = changes.iter().filter(is_gone).count();
        let ended = before.iter().filter(|(id, wait)| {
            id.key == key
                && tracker.waits().get(id).is_none_or(|now| now.first_seen != wait.first_seen)
        });
        let went_without = ended.filter(|(id, wait)| {
            // A start that no poll saw may be any wait's of this session.
            let is_it = |(who, since): &(usize, i64)| {
                Some(pid(*who)) == id.waiter.pid()
                    && wait.start.is_none_or(|start| moment(*since) == start)
            };
            !server.granted_waits.iter().any(is_it) || wait.start.is_none()
        });
        prop_assert!(said <= went_without.count(), "{said} gone of {before:?}: {changes:?}");
    }
    Ok(())
}

fn run(choices: &[Choice], rules: Rules) -> TestCaseResult {
    let mut server = Server::new();
    let mut observer = Observer::default();
    for (who, how, what) in choices {
        let who = usize::from(*who) % (SESSIONS + 1);
        if who == SESSIONS {
            observer.poll(&mut server, *what, rules)?;
        } else {
            // No pid is used again between two statements of one poll.
            let reuses_pids = rules.reuses_pids && observer.reading.is_none();
            server.act(who, *how, *what, Rules { reuses_pids, ..rules });
        }
    }
    Ok(())
}

fn choices() -> impl Strategy<Value = Vec<Choice>> {
    prop::collection::vec(any::<Choice>(), 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn nothing_is_claimed_that_was_not_so(choices in choices()) {
        let rules = Rules {
            mixes_levels: false,
            mixes_modes: false,
            hides_activity: false,
            reuses_pids: true,
            answers_late: false,
        };
        run(&choices, rules)?;
    }

    #[test]
    fn nothing_is_claimed_that_was_not_so_where_levels_and_modes_are_mixed(choices in choices()) {
        let rules = Rules {
            mixes_levels: true,
            mixes_modes: true,
            hides_activity: false,
            reuses_pids: false,
            answers_late: true,
        };
        run(&choices, rules)?;
    }

    #[test]
    fn nothing_is_claimed_that_was_not_so_where_activity_is_hidden(choices in choices()) {
        let rules = Rules {
            mixes_levels: true,
            mixes_modes: false,
            hides_activity: true,
            reuses_pids: true,
            answers_late: true,
        };
        run(&choices, rules)?;
    }
}
