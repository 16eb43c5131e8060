//! Views → the values of the snapshot.
//!
//! What identifies persons and hosts is left out unless the reader may see details. Names are shared
//! with the view, and words with each other: there may be very many locks.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use super::target::render_target;
use super::{
    Blocker, Candidate, ChainRoot, Detail, Finding, Gap, Holder, Limits, Lock, LockOrder,
    LockTable, LookedAt, OrderEdge, OrderedKey, OtherLocks, OtherWait, Poll, Prepared, Root,
    Server, Session, Snapshot, Waiter,
};
use crate::order::{Edge, Inversion};
use crate::registry::Resolution;
use crate::sample::State;
use crate::timestamp::Timestamp;
use crate::tracker::{ScopeEvidence, SessionId};
use crate::view::{self, NAMED, Picture, View};
use crate::{blocking, finding};

/// Polls in a row outside a transaction that make "probably session level" worth saying.
const HINT_POLLS: u32 = 10;

/// So many pairs of keys that were taken in both orders are listed, the newest.
const LISTED_ORDERS: usize = 100;

impl Snapshot {
    /// All servers. `now` is our clock, to tell a picture that is too old.
    pub fn of<'a>(
        views: impl IntoIterator<Item = &'a View>,
        now: Timestamp,
        details: bool,
    ) -> Self {
        Self { servers: views.into_iter().map(|view| Server::of(view, now, details)).collect() }
    }
}

impl Server {
    /// One server. `now` is our clock, to tell a picture that is too old.
    pub fn of(view: &View, now: Timestamp, details: bool) -> Self {
        let picture = view.fresh_picture(now);
        let mut artist =
            picture.map(|picture| Artist { at: picture.at, details, words: HashSet::new() });
        Self {
            server: view.server.clone(),
            up: picture.is_some(),
            error: match (picture, &view.failure) {
                (Some(_), _) => None,
                // The words may name hosts, roles and databases.
                (None, Some(failure)) if details => Some(failure.text.to_string()),
                (None, Some(failure)) => Some(failure.reason.as_str().to_owned()),
                (None, None) => Some("no poll has been answered lately".to_owned()),
            },
            version: view.facts.version.clone(),
            role: picture.map(|picture| picture.role().into()),
            system_identifier: view.facts.system_identifier.clone(),
            started_at: view.facts.started_at,
            polled_at: picture.map(|picture| picture.at),
            clock_offset_seconds: picture.map(Picture::clock_offset_seconds),
            poll: Poll {
                // Whoever looks only now and then has none.
                interval_seconds: Some(view.polls.interval)
                    .filter(|interval| !interval.is_zero())
                    .map(|interval| interval.as_secs_f64()),
                duration_seconds: view.polls.duration.map(|duration| duration.as_secs_f64()),
            },
            looked_at: picture.map(|picture| LookedAt {
                databases: picture.databases,
                rows: picture.rows_granted + picture.rows_waiting,
                privileges_sufficient: picture.privileges_sufficient,
            }),
            lock_table: LockTable {
                entries: picture.and(view.table_entries),
                capacity: view.facts.table_capacity,
            },
            tcp_keepalives_idle_seconds: view.facts.keepalive_after.map(|time| time.as_secs()),
            pooled_connection: picture.and(view.pooled_connection),
            registry_conflicts: view
                .registered
                .values()
                .filter(|registered| registered.resolution.is_conflict())
                .count(),
            watching_since: picture.map(|picture| picture.watching_since),
            not_judged: picture
                .map(|picture| finding::Gap::find_all(picture).iter().map(Gap::of).collect()),
            lock_orders_count: picture.map(|picture| picture.inversions.len()),
            lock_orders: picture.zip(artist.as_mut()).map(|(picture, artist)| {
                let newest = picture.inversions.iter().take(LISTED_ORDERS);
                newest.map(|one| artist.draw_order(one)).collect()
            }),
            roots: picture.zip(artist.as_mut()).map(|(picture, artist)| {
                picture.roots.iter().map(|root| artist.draw_chain_root(root)).collect()
            }),
            other_waits: picture.zip(artist.as_mut()).map(|(picture, artist)| {
                picture.other_waits.iter().map(|wait| artist.draw_other_wait(wait)).collect()
            }),
            locks: picture.zip(artist.as_mut()).map(|(picture, artist)| {
                let all = picture.locks.iter().chain(&picture.free);
                all.map(|lock| artist.draw_lock(lock)).collect()
            }),
        }
    }
}

impl Finding {
    /// In words.
    pub(crate) fn of(finding: &finding::Finding, details: bool) -> Self {
        Self {
            finding: finding.kind.as_str().into(),
            severity: finding.severity,
            text: finding.render_text(details),
            remedy: finding.render_remedy(details),
            pids: finding.pids().take(NAMED).collect(),
            sessions_count: finding.session_count(),
        }
    }
}

impl Gap {
    fn of(gap: &finding::Gap) -> Self {
        Self {
            finding: gap.kind.as_str().into(),
            in_part: gap.is_partial(),
            reason: gap.render_reason(),
        }
    }
}

impl<T> Detail<T> {
    fn of(details: bool, known: impl FnOnce() -> Option<T>) -> Self {
        if details { Self::Told(known()) } else { Self::Hidden }
    }
}

/// Draws what one picture shows, for one kind of reader.
struct Artist {
    at: Timestamp,
    details: bool,
    /// What is said of very many: each is one string.
    words: HashSet<Arc<str>>,
}

impl Artist {
    fn draw_lock(&mut self, lock: &view::Lock) -> Lock {
        let resolution = &lock.label.resolution;
        Lock {
            datname: lock.label.datname.clone(),
            key: lock.id.key,
            lock: resolution.lock.clone(),
            display_name: self.draw_display_name(resolution),
            parameters: self.details.then(|| {
                let parameter =
                    |(name, value): &(Arc<str>, String)| (name.to_string(), value.clone().into());
                resolution.parameters.iter().map(parameter).collect()
            }),
            candidates: resolution
                .candidates
                .iter()
                .map(|candidate| Candidate {
                    lock: candidate.name.clone(),
                    display_name: self.details.then(|| candidate.display_name().into()),
                    // Where it stands is the operator's business, and so is the text it hashes.
                    reason: if self.details {
                        Some(candidate.to_string())
                    } else {
                        candidate.doubt.map(|doubt| doubt.to_string())
                    },
                })
                .collect(),
            owner: resolution.owner.clone(),
            runbook: resolution.runbook.clone(),
            description: resolution.description.clone(),
            limits: Limits {
                max_hold_seconds: Some(resolution.max_hold),
                max_wait_seconds: Some(resolution.max_wait),
            },
            holders: lock.holders.iter().map(|holder| self.draw_holder(holder)).collect(),
            waiters: self.draw_waiters(lock),
            findings: lock.findings.iter().map(|one| Finding::of(one, self.details)).collect(),
        }
    }

    fn draw_display_name(&self, resolution: &Resolution) -> Detail<Arc<str>> {
        Detail::of(self.details, || {
            let name = resolution.lock.as_ref()?;
            Some(match resolution.display_name() {
                Cow::Borrowed(_) => name.clone(),
                Cow::Owned(with_parameters) => with_parameters.into(),
            })
        })
    }

    fn draw_session(&mut self, session: &view::Session) -> Session {
        Session {
            backend_start: session.backend_start,
            application_name: session.application_name.clone(),
            usename: Detail::of(self.details, || session.usename.clone()),
            client_addr: Detail::of(self.details, || session.client_addr),
            client_port: Detail::of(self.details, || session.client_port),
            state: self.draw_state(session),
            state_since: session.state_since,
            wait_event: session.wait_event.clone(),
        }
    }

    fn draw_state(&mut self, session: &view::Session) -> Option<Arc<str>> {
        match &session.state {
            State::Other(word) => Some(word.clone()),
            State::Active
            | State::Idle
            | State::IdleInTransaction
            | State::IdleInTransactionAborted
            | State::Unknown => session.known_state().map(|word| self.word(word.into())),
        }
    }

    fn draw_holder(&mut self, holder: &view::Holder) -> Holder {
        let at = self.at;
        let by_type = holder.other_locks();
        Holder {
            pid: holder.id.pid(),
            session: self.draw_session(&holder.session),
            first_application_name: holder.first_application_name.clone(),
            seen_to_begin: holder.seen_to_begin,
            mode: holder.mode.clone(),
            modes: holder.modes().cloned().collect(),
            scope: holder.scope,
            scope_evidence: Some(self.word(render_scope(holder))),
            since: Some(holder.since),
            seen_for_seconds: at.since(holder.since).as_secs_f64(),
            held_at_least_seconds: (holder.proved_since < at)
                .then(|| at.since(holder.proved_since).as_secs_f64()),
            held_at_most_seconds: holder.not_before.map(|start| at.since(start).as_secs_f64()),
            transactions_seen: holder.transactions_seen,
            contended_since: holder.contended_since,
            has_written: holder.has_written,
            other_locks: OtherLocks {
                count: by_type.values().sum(),
                by_type: by_type.into_iter().map(|(it, count)| (it.clone(), count)).collect(),
            },
            prepared: self.draw_prepared(&holder.id, holder.prepared.as_deref()),
            blocks: holder.blocks,
            blocks_through: holder.blocks_through.to_vec(),
            frees_next: holder
                .frees_next
                .as_ref()
                .map(|next| next.iter().take(NAMED).map(SessionId::pid).collect()),
            frees_next_count: holder.frees_next.as_ref().map(|next| next.len()),
        }
    }

    /// `None` for a backend.
    fn draw_prepared(&self, id: &SessionId, known: Option<&view::Prepared>) -> Option<Prepared> {
        match id {
            SessionId::Backend(_) => None,
            SessionId::Prepared(_) | SessionId::Nameless(_) => Some(Prepared {
                gid: self.draw_known_gid(known),
                owner: Detail::of(self.details, || known.and_then(|known| known.owner.clone())),
                prepared_at: known.map(|known| known.transaction.prepared_at),
            }),
        }
    }

    fn draw_known_gid(&self, known: Option<&view::Prepared>) -> Option<Arc<str>> {
        known.filter(|_| self.details).map(|known| known.transaction.gid.clone())
    }

    fn draw_waiters(&mut self, lock: &view::Lock) -> Vec<Waiter> {
        let holders: HashSet<&SessionId> = match &lock.waiters[..] {
            [] => return Vec::new(),
            _ => lock.holders.iter().map(|holder| &holder.id).collect(),
        };
        lock.waiters.iter().map(|waiter| self.draw_waiter(waiter, &holders)).collect()
    }

    fn draw_waiter(&mut self, waiter: &view::Waiter, holders: &HashSet<&SessionId>) -> Waiter {
        Waiter {
            pid: waiter.id.pid(),
            session: self.draw_session(&waiter.session),
            mode: waiter.mode.clone(),
            waiting_since: waiter.since,
            waited_seconds: waiter.since.map(|start| self.at.since(start).as_secs_f64()),
            seen_for_seconds: self.at.since(waiter.seen_since).as_secs_f64(),
            xmin_age: waiter.snapshot_age,
            blocked_by: self.draw_blockers(&waiter.blocked_by),
            blocked_by_count: waiter.blocker_count,
            roots: waiter
                .roots
                .iter()
                .take(NAMED)
                .map(|root| self.draw_root(root, holders.contains(&root.id)))
                .collect(),
            roots_count: waiter.roots.len(),
        }
    }

    fn draw_blockers(&self, blockers: &[blocking::Blocker]) -> Vec<Blocker> {
        blockers
            .iter()
            .map(|blocker| Blocker {
                pid: blocker.id.pid(),
                gid: shown_gid(&blocker.id, self.details).cloned(),
                kind: blocker.kind,
                certain: blocker.is_certain,
            })
            .collect()
    }

    fn draw_root(&mut self, root: &view::Root, holds_key: bool) -> Root {
        Root {
            pid: root.id.pid(),
            gid: self.draw_known_gid(root.prepared.as_deref()),
            application_name: root.session.application_name.clone(),
            state: self.draw_state(&root.session),
            holds_key,
            in_cycle: root.is_in_cycle,
            blocks: root.blocks,
        }
    }

    fn draw_chain_root(&mut self, root: &view::Root) -> ChainRoot {
        ChainRoot {
            pid: root.id.pid(),
            session: self.draw_session(&root.session),
            prepared: self.draw_prepared(&root.id, root.prepared.as_deref()),
            in_cycle: root.is_in_cycle,
            blocks: root.blocks,
        }
    }

    fn draw_other_wait(&mut self, wait: &view::OtherWait) -> OtherWait {
        OtherWait {
            pid: wait.id.pid(),
            session: self.draw_session(&wait.session),
            locktype: wait.tag.locktype.clone(),
            target: render_target(&wait.tag, wait.datname.as_deref()).into(),
            mode: wait.mode.clone(),
            waiting_since: wait.since,
            waited_seconds: wait.since.map(|start| self.at.since(start).as_secs_f64()),
            blocked_by: self.draw_blockers(&wait.blocked_by),
            blocked_by_count: wait.blocker_count,
        }
    }

    fn draw_order(&mut self, inversion: &Inversion) -> LockOrder {
        let key = |side: usize| {
            let resolution = &inversion.labels[side].resolution;
            OrderedKey {
                key: inversion.edges[side].held.key,
                lock: resolution.lock.clone(),
                display_name: self.draw_display_name(resolution),
            }
        };
        LockOrder {
            datname: inversion.labels[0].datname.clone(),
            is_finding: inversion.is_certain,
            text: finding::render_inversion(inversion, 0, self.details),
            keys: [0, 1].map(key).into(),
            orders: inversion.edges.iter().map(|edge| self.draw_edge(edge)).collect(),
        }
    }

    fn draw_edge(&mut self, edge: &Edge) -> OrderEdge {
        OrderEdge {
            held: edge.held.key,
            held_modes: edge.held_modes.modes().cloned().collect(),
            taken: edge.taken.key,
            taken_modes: edge.taken_modes.modes().cloned().collect(),
            grade: edge.grade,
            times: edge.times,
            first_seen: edge.first.at,
            last_seen: edge.last.at,
            pid: edge.who.id.pid(),
            session: self.draw_session(&edge.who.session),
        }
    }

    fn word(&mut self, word: Cow<'_, str>) -> Arc<str> {
        if let Some(known) = self.words.get(&*word) {
            return known.clone();
        }
        let word: Arc<str> = word.into();
        self.words.insert(word.clone());
        word
    }
}

/// The gid of a prepared transaction, to those who may see details.
const fn shown_gid(id: &SessionId, details: bool) -> Option<&Arc<str>> {
    match id {
        SessionId::Prepared(gid) if details => Some(gid),
        SessionId::Prepared(_) | SessionId::Nameless(_) | SessionId::Backend(_) => None,
    }
}

/// What is known of a hold's scope, in words.
fn render_scope(holder: &view::Holder) -> Cow<'static, str> {
    match holder.scope_evidence {
        Some(ScopeEvidence::IdleOutsideTransaction) => {
            "session: the backend was idle outside a transaction".into()
        }
        Some(ScopeEvidence::OutlivedFailedTransaction) => {
            "session: it outlived a failed transaction".into()
        }
        Some(ScopeEvidence::OutlivedTransactionUnderWaiter) => {
            "session: the holder's transaction changed while somebody waited".into()
        }
        Some(ScopeEvidence::Prepared) => "transaction: it is prepared".into(),
        None if holder.session.known_state().is_none()
            && holder.polls_outside_transaction >= HINT_POLLS =>
        {
            format!(
                "probably session level: outside a transaction in {} polls in a row",
                holder.polls_outside_transaction
            )
            .into()
        }
        None => "session or transaction".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::config;
    use crate::fold::Fold;
    use crate::key::Key;
    use crate::mode::Mode;
    use crate::registry::{Registry, Source};
    use crate::sample::{
        Backend, DatabaseName, DatabaseOid, FailureReason, KeyGroup, LockRow, LockTag, Names, Pid,
        PreparedTransaction, RoleOid, Sample, State, TransactionId, VirtualTransaction,
    };
    use crate::snapshot::render_snapshot;
    use crate::view::Failure;

    const APP: DatabaseOid = DatabaseOid(5);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_micros(seconds * 1_000_000)
    }

    fn group(pid: Option<i32>, transaction: &str, granted: bool) -> KeyGroup {
        KeyGroup {
            database: APP,
            pid: pid.map(Pid),
            transaction: VirtualTransaction::from_server(transaction),
            mode: if granted { Mode::Share } else { Mode::Exclusive },
            granted,
            wait_start: (!granted).then(|| at(96)),
            keys: vec![Key::bigint(42)],
        }
    }

    /// An idle holder, a prepared one, and a waiter of which nothing is to be seen.
    fn sample() -> Sample {
        let tag = LockTag::of_transaction(TransactionId(731));
        Sample {
            at: at(100),
            at_local: at(90),
            round_trip: Duration::ZERO,
            read_at: at(100),
            own_pid: Pid(1),
            in_recovery: false,
            advisory: vec![
                group(Some(7), "3/0", true),
                group(None, "4/9", true),
                group(Some(8), "5/1", false),
            ],
            other_locks: vec![LockRow {
                tag,
                pid: None,
                transaction: VirtualTransaction::from_server("4/9"),
                mode: Mode::Exclusive,
                granted: true,
                wait_start: None,
            }],
            backends: Some(vec![Backend {
                pid: Pid(7),
                database: Some(APP),
                role: Some(RoleOid(10)),
                application_name: Some("pod-a".into()),
                state: State::Idle,
                state_change: Some(at(95)),
                wait_event: Some("Client/ClientRead".into()),
                backend_start: Some(at(60)),
                client_addr: Some([10, 0, 0, 7].into()),
                client_port: Some(4711),
                snapshot_age: None,
                backend_type: Some("client backend".into()),
                leader: None,
            }]),
            prepared: Some(vec![PreparedTransaction {
                transaction: TransactionId(731),
                gid: "order-4711".into(),
                prepared_at: at(92),
                owner: RoleOid(10),
                database: APP,
            }]),
            table_entries: None,
        }
    }

    fn view() -> View {
        view_with(Registry::empty()).0
    }

    fn view_with(registry: Registry) -> (View, Fold) {
        let limits = config::Limits {
            keys: 10,
            applications: 10,
            databases: 10,
            registered_keys: 10,
            values: 10,
        };
        let thresholds =
            config::Thresholds { prepared: Duration::from_secs(5), ..Default::default() };
        let mut fold =
            Fold::new("orders-1".into(), Arc::new(registry), Arc::default(), &limits, thresholds);
        let app = DatabaseName { name: "app".into(), encoding: "UTF8".into() };
        fold.observe_names(Names {
            databases: HashMap::from([(APP, app)]),
            roles: HashMap::from([(RoleOid(10), "billing".into())]),
        });
        let picture = fold.observe(&sample(), Duration::from_secs(1));
        (View { server: "orders-1".into(), picture: Some(picture), ..View::default() }, fold)
    }

    fn render(view: &View, now: Timestamp, details: bool) -> Value {
        let json = render_snapshot(&Snapshot::of([view], now, details));
        serde_json::from_slice::<Value>(&json).unwrap()["servers"][0].take()
    }

    #[test]
    fn ages_are_taken_at_the_poll_and_what_is_not_proved_is_null() {
        let server = render(&view(), at(91), false);
        let [prepared, idle] = [0, 1].map(|index| &server["locks"][0]["holders"][index]);
        assert_eq!(prepared["pid"], Value::Null);
        assert_eq!(prepared["held_at_least_seconds"], json!(8.0));
        assert_eq!(prepared["held_at_most_seconds"], Value::Null);
        assert_eq!(prepared["scope"], "transaction");
        assert_eq!(prepared["state"], Value::Null);
        assert_eq!(idle["since"], "1970-01-01T00:01:35.000000Z");
        assert_eq!(idle["held_at_least_seconds"], json!(5.0));
        assert_eq!(idle["held_at_most_seconds"], json!(40.0));
        assert_eq!(idle["scope"], "session");
        let waiter = &server["locks"][0]["waiters"][0];
        assert_eq!(waiter["waited_seconds"], json!(4.0));
        assert_eq!(waiter["application_name"], Value::Null);
        assert_eq!(waiter["state"], Value::Null);
        assert_eq!(server["clock_offset_seconds"], json!(10.0));
    }

    #[test]
    fn who_blocks_whom_is_told_in_both_directions() {
        let server = render(&view(), at(91), true);
        let [prepared, idle] = [0, 1].map(|index| &server["locks"][0]["holders"][index]);
        assert_eq!(prepared["blocks"], json!(1));
        assert_eq!(prepared["blocks_through"], json!(["advisory"]));
        // The other share still keeps the waiter out.
        assert_eq!(
            (&prepared["frees_next"], &prepared["frees_next_count"]),
            (&json!([]), &json!(0))
        );
        let others = json!({ "count": 1, "by_type": { "transactionid": 1 } });
        assert_eq!(prepared["other_locks"], others);
        assert_eq!(idle["other_locks"], json!({ "count": 0, "by_type": {} }));
        let waiter = &server["locks"][0]["waiters"][0];
        let blocked_by = json!([
            { "pid": 7, "kind": "hard", "certain": true },
            { "pid": null, "gid": "order-4711", "kind": "hard", "certain": true },
        ]);
        assert_eq!((&waiter["blocked_by"], &waiter["blocked_by_count"]), (&blocked_by, &json!(2)));
        let idle_root = json!({
            "pid": 7, "application_name": "pod-a", "state": "idle",
            "holds_key": true, "in_cycle": false, "blocks": 1,
        });
        assert_eq!((&waiter["roots"][0], &waiter["roots_count"]), (&idle_root, &json!(2)));
        assert_eq!(waiter["roots"][1]["gid"], "order-4711");
    }

    #[test]
    fn findings_come_with_their_sentence_and_remedy() {
        let server = render(&view(), at(91), true);
        let findings = &server["locks"][0]["findings"];
        let prepared = json!([{
            "finding": "held_by_prepared_transaction",
            "severity": "warning",
            "text": "held by the prepared transaction 'order-4711', prepared 8s ago and neither \
                     committed nor rolled back since; the limit is 5s",
            "remedy": "COMMIT PREPARED 'order-4711' or ROLLBACK PREPARED 'order-4711' in its \
                       database, whichever its transaction manager decided",
            "pids": [],
            "sessions_count": 1,
        }]);
        assert_eq!(findings, &prepared);
    }

    #[test]
    fn where_chains_end_is_told_of_the_whole_server() {
        let (mut view, mut fold) = view_with(Registry::empty());
        let mut sample = sample();
        // 9 waits for the prepared one by another way, and 6 for somebody who is on no key.
        let row = |pid: Option<i32>, id, granted: bool| LockRow {
            tag: LockTag::of_transaction(TransactionId(id)),
            pid: pid.map(Pid),
            granted,
            wait_start: (!granted).then(|| at(97)),
            ..sample.other_locks[0].clone()
        };
        let rows = [row(Some(9), 731, false), row(Some(5), 732, true), row(Some(6), 732, false)];
        sample.at = at(101);
        sample.other_locks.extend(rows);
        view.picture = Some(fold.observe(&sample, Duration::from_secs(1)));
        view.polls.interval = Duration::from_secs(2);
        view.polls.duration = Some(Duration::from_millis(3));

        let server = render(&view, at(91), true);
        assert_eq!(server["poll"], json!({ "interval_seconds": 2.0, "duration_seconds": 0.003 }));
        let [prepared, idle] = [0, 1].map(|index| &server["roots"][index]);
        assert_eq!(server["roots"].as_array().unwrap().len(), 2);
        assert_eq!((&prepared["pid"], &prepared["blocks"]), (&Value::Null, &json!(2)));
        let transaction = json!({
            "gid": "order-4711", "owner": "billing", "prepared_at": "1970-01-01T00:01:32.000000Z",
        });
        assert_eq!(prepared["prepared"], transaction);
        assert_eq!((&idle["pid"], &idle["blocks"]), (&json!(7), &json!(1)));
        assert_eq!((&idle["usename"], &idle["in_cycle"]), (&json!("billing"), &json!(false)));
        assert_eq!(idle["prepared"], Value::Null);
        let waits = server["other_waits"].as_array().unwrap();
        let [wait] = &waits[..] else { panic!("{waits:?}") };
        assert_eq!((&wait["pid"], &wait["target"]), (&json!(9), &json!("transaction 731")));
        assert_eq!(
            (&wait["locktype"], &wait["mode"]),
            (&json!("transactionid"), &json!("exclusive"))
        );
        assert_eq!(wait["waited_seconds"], json!(4.0));
        let blocker = json!({ "pid": null, "gid": "order-4711", "kind": "hard", "certain": true });
        assert_eq!(
            (&wait["blocked_by"], &wait["blocked_by_count"]),
            (&json!([blocker]), &json!(1))
        );

        let server = render(&view, at(91), false);
        assert_eq!(server["roots"][0]["prepared"].get("gid"), None);
        assert_eq!(server["roots"][1].get("usename"), None);
        assert_eq!(server["other_waits"][0]["blocked_by"][0].get("gid"), None);
        let down = View { picture: None, ..view };
        assert_eq!(render(&down, at(91), false)["roots"], Value::Null);
    }

    #[test]
    fn keys_taken_in_both_orders_are_listed_with_both_and_who_did_so() {
        let text =
            "locks: [{ name: row, key: { range: [1, 9] }, databases: [app], parameter: id }]";
        let source = Source { name: "registry.yaml".into(), text: text.into() };
        let (mut view, mut fold) = view_with(Registry::parse(&[source]).unwrap());
        let mut sample = sample();
        let group = |pid, key, granted| KeyGroup {
            pid: Some(Pid(pid)),
            mode: Mode::Exclusive,
            granted,
            keys: vec![Key::bigint(key)],
            ..sample.advisory[0].clone()
        };
        let deadlock =
            vec![group(7, 1, true), group(8, 2, true), group(7, 2, false), group(8, 1, false)];
        sample.at = at(101);
        sample.advisory = deadlock;
        view.picture = Some(fold.observe(&sample, Duration::from_secs(1)));
        let server = render(&view, at(91), true);
        assert_eq!(server["lock_orders_count"], 1);
        let orders = &server["lock_orders"][0];
        assert_eq!((&orders["datname"], &orders["is_finding"]), (&json!("app"), &json!(true)));
        assert_eq!(orders["keys"][1]["display_name"], "row (id 2)");
        let [first, second] = [0, 1].map(|side| &orders["orders"][side]);
        assert_eq!((&first["held"]["text"], &first["taken"]["text"]), (&json!("1"), &json!("2")));
        assert_eq!((&first["pid"], &second["pid"]), (&json!(7), &json!(8)));
        assert_eq!(first["application_name"], "pod-a");
        assert_eq!((&first["grade"], &first["times"]), (&json!("certain"), &json!(1)));
        assert_eq!(first["held_modes"], json!(["exclusive"]));
        assert_eq!(first["last_seen"], "1970-01-01T00:01:41.000000Z");
        assert_eq!(first["usename"], "billing");

        let orders = render(&view, at(91), false)["lock_orders"][0].take();
        assert_eq!(orders["orders"][0].get("usename"), None);
        assert_eq!(orders["keys"][1].get("display_name"), None);
        let text = orders["text"].as_str().unwrap();
        assert!(text.contains("hold row (key 1) and wait for row (key 2)"), "{text}");
    }

    #[test]
    fn a_key_that_nobody_holds_is_listed_while_something_is_to_be_said_of_it() {
        let text = "locks: [{ name: leader, key: 77, databases: [app], must_be_held: true, \
                    vacant_for: 5s }]";
        let source = Source { name: "registry.yaml".into(), text: text.into() };
        let mut view = view_with(Registry::parse(&[source]).unwrap());
        let leader = |view: &View| {
            let server = render(view, at(91), false);
            let locks = server["locks"].as_array().unwrap().clone();
            locks.into_iter().find(|lock| lock["lock"] == "leader")
        };
        assert_eq!(leader(&view.0), None);
        let mut later = sample();
        later.at = at(106);
        let picture = view.1.observe(&later, Duration::from_secs(5));
        view.0.picture = Some(picture);
        assert_eq!(leader(&view.0), None, "on our clock no time has passed");
        later.at_local = at(96);
        view.0.picture = Some(view.1.observe(&later, Duration::from_secs(5)));
        let leader = leader(&view.0).unwrap();
        assert_eq!((&leader["holders"], &leader["waiters"]), (&json!([]), &json!([])));
        assert_eq!(leader["key"]["text"], "77");
        assert_eq!(leader["findings"][0]["finding"], "vacant");
        assert_eq!(leader["findings"][0]["severity"], "critical");
    }

    #[test]
    fn what_could_not_be_judged_is_listed_with_the_reason() {
        let text = "locks: [{ name: report, key: 42, max_wait: 1h }]";
        let source = Source { name: "registry.yaml".into(), text: text.into() };
        let (view, mut fold) = view_with(Registry::parse(&[source]).unwrap());
        let server = render(&view, at(91), false);
        assert_eq!(server["watching_since"], "1970-01-01T00:01:40.000000Z");
        assert_eq!(server["registry_conflicts"], 0);
        // The prepared one, of which it is not known how long before that it took the lock.
        let gaps = json!([
            {
                "finding": "held_too_long",
                "in_part": false,
                "reason": "1 hold (report) may have been held for longer than was seen, and than \
                           max_hold",
            },
            {
                "finding": "waiting_too_long",
                "in_part": true,
                "reason": "waits that ended before the first sample, 0s ago, are not known; 1 hold \
                           (report) may have kept others waiting",
            },
            {
                "finding": "pooled_backend",
                "in_part": true,
                "reason": "names before the first sample are not known; 1 hold (report) may have \
                           begun under another",
            },
            {
                "finding": "order_inversion",
                "in_part": true,
                "reason": "orders in which keys were taken before the first sample, 0s ago, are not \
                           known",
            },
        ]);
        assert_eq!(server["not_judged"], gaps);

        fold.observe_names(Names::default());
        let picture = fold.observe(&sample(), Duration::from_secs(1));
        let server = render(&View { picture: Some(picture), ..view.clone() }, at(91), false);
        let gaps = server["not_judged"].as_array().unwrap();
        let vacant = gaps.iter().find(|gap| gap["finding"] == "vacant").unwrap();
        assert_eq!(vacant["reason"], "the names of databases could not be read");
        let down = View { picture: None, ..view };
        assert_eq!(render(&down, at(91), false)["not_judged"], Value::Null);
    }

    #[test]
    fn a_virtual_transaction_never_passes_for_a_gid() {
        let nameless = SessionId::Nameless(VirtualTransaction::from_server("4/56"));
        assert_eq!(shown_gid(&nameless, true), None);
        let prepared = SessionId::Prepared("4/56".into());
        assert_eq!(shown_gid(&prepared, true).map(|gid| &**gid), Some("4/56"));
        assert_eq!(shown_gid(&prepared, false), None);
    }

    #[test]
    fn persons_and_hosts_are_for_those_who_may_see_details() {
        let secrets = ["billing", "10.0.0.7", "4711", "order-4711"];
        let shown = |details| render(&view(), at(91), details).to_string();
        for secret in secrets {
            assert!(!shown(false).contains(secret), "{secret}");
            assert!(shown(true).contains(secret), "{secret}");
        }
    }

    #[test]
    fn the_words_of_a_failure_are_for_those_who_may_see_details() {
        let text = "no pg_hba.conf entry for host \"10.0.0.7\", user \"billing\"";
        let failure = Failure { reason: FailureReason::Login, text: text.into() };
        let view = View { picture: None, failure: Some(failure), ..view() };
        assert_eq!(render(&view, at(91), false)["error"], "login");
        assert_eq!(render(&view, at(91), true)["error"], text);
        assert_eq!(render(&view, at(91), true)["up"], false);
    }

    #[test]
    fn a_picture_that_is_too_old_is_not_shown() {
        let mut view = view();
        view.polls.interval = Duration::from_secs(2);
        assert_eq!(render(&view, at(96), false)["up"], true);
        let late = render(&view, at(97), false);
        assert_eq!(late["up"], false);
        assert_eq!(late["locks"], Value::Null);
        assert_eq!(late["error"], "no poll has been answered lately");
    }
}
