//! Polls by hand through a fold, and what is told of them.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::*;
use crate::config::{Limits, Thresholds};
use crate::fold::Fold;
use crate::registry::{Registry, Source};
use crate::sample::{
    Backend, DatabaseName, DatabaseOid, KeyGroup, LockRow, LockTag, Names, Pid,
    PreparedTransaction, RoleOid, Sample, State, TransactionId, VirtualTransaction,
};
use crate::view::View;

const APP: DatabaseOid = DatabaseOid(5);
const LIMITS: Limits =
    Limits { keys: 10, applications: 10, databases: 10, registered_keys: 10, values: 10 };
const REGISTRY: &str = "
locks:
  - { name: nightly, key: 42 }
  - { name: tenant, key: { pair: [7, '*'] }, parameter: tenant }
";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_micros(seconds * 1_000_000)
}

fn parse_registry(text: &str) -> Arc<Registry> {
    let source = Source { name: "registry.yaml".into(), text: text.into() };
    Arc::new(Registry::parse(&[source]).unwrap())
}

/// A fold that has seen nobody hold anything at second 0. Our clock is 1000 s behind the server's.
struct Story {
    fold: Fold,
}

impl Story {
    fn begin() -> Self {
        let mut story = Self::unseen(REGISTRY);
        story.poll(0, vec![]);
        story
    }

    /// The same before its first poll.
    fn unseen(registry: &str) -> Self {
        let mut fold = Fold::new(
            "orders-1".into(),
            parse_registry(registry),
            Arc::default(),
            &LIMITS,
            Thresholds::default(),
        );
        let app = DatabaseName { name: "app".into(), encoding: "UTF8".into() };
        fold.observe_names(Names {
            databases: HashMap::from([(APP, app)]),
            roles: HashMap::from([(RoleOid(10), "billing".into())]),
        });
        Self { fold }
    }

    fn poll(&mut self, seconds: i64, advisory: Vec<KeyGroup>) {
        self.observe(&sample(seconds, advisory));
    }

    fn observe(&mut self, sample: &Sample) {
        self.fold.observe(sample, Duration::from_secs(2));
    }

    fn view(&self) -> View {
        let mut view = View { server: "orders-1".into(), ..View::default() };
        self.fold.fill(&mut view);
        view
    }

    fn events(&self, details: bool) -> Vec<Value> {
        events(&[self.view()], &Filter::default(), details)
    }

    /// Each event's name with its pid, the newest first.
    fn told(&self) -> Vec<String> {
        let told = |event: &Value| format!("{} {}", event["event"].as_str().unwrap(), event["pid"]);
        self.events(false).iter().map(told).collect()
    }
}

fn events(views: &[View], filter: &Filter, details: bool) -> Vec<Value> {
    let json = render_events(views, filter, details);
    let mut answer: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(answer["schema"], 1);
    answer["events"].as_array_mut().unwrap().drain(..).collect()
}

fn sample(seconds: i64, advisory: Vec<KeyGroup>) -> Sample {
    let backend = |pid: i32| Backend {
        pid: Pid(pid),
        database: Some(APP),
        role: Some(RoleOid(10)),
        application_name: Some(format!("pod-{pid}").into()),
        state: State::Active,
        state_change: None,
        wait_event: None,
        backend_start: Some(at(-60)),
        client_addr: Some([10, 0, 0, 7].into()),
        client_port: Some(4711),
        snapshot_age: None,
        backend_type: Some("client backend".into()),
        leader: None,
    };
    Sample {
        at: at(seconds),
        at_local: at(seconds - 1000),
        round_trip: Duration::ZERO,
        read_at: at(seconds),
        own_pid: Pid(1),
        in_recovery: false,
        advisory,
        other_locks: Vec::new(),
        backends: Some([7, 8, 9].map(backend).to_vec()),
        prepared: Some(Vec::new()),
        table_entries: None,
    }
}

fn holds(pid: i32, key: Key) -> KeyGroup {
    KeyGroup {
        database: APP,
        pid: Some(Pid(pid)),
        transaction: VirtualTransaction::from_server(&format!("{pid}/1")),
        mode: Mode::Exclusive,
        granted: true,
        wait_start: None,
        keys: vec![key],
    }
}

fn waits(pid: i32, key: Key, since: i64) -> KeyGroup {
    KeyGroup { granted: false, wait_start: Some(at(since)), ..holds(pid, key) }
}

const NIGHTLY: Key = Key::bigint(42);

#[test]
fn a_hold_is_told_with_the_bounds_of_its_beginning_and_of_its_length() {
    let mut story = Story::begin();
    story.poll(1, vec![holds(7, NIGHTLY)]);
    story.poll(4, vec![holds(7, NIGHTLY)]);
    story.poll(6, vec![]);
    let events = story.events(true);
    let [ended, began] = &events[..] else { panic!("{events:?}") };
    let expected = json!({
        "at": "1970-01-01T00:00:01.000000Z",
        "event": "hold_began",
        "not_before": "1970-01-01T00:00:00.000000Z",
        "not_after": "1970-01-01T00:00:01.000000Z",
        "server": "orders-1",
        "datname": "app",
        "key": { "text": "42", "kind": "bigint", "classid": 0, "objid": 42, "objsubid": 1 },
        "lock": "nightly",
        "display_name": "nightly",
        "mode": "exclusive",
        "pid": 7,
        "prepared": false,
        "backend_start": "1969-12-31T23:59:00.000000Z",
        "application_name": "pod-7",
        "usename": "billing",
        "client_addr": "10.0.0.7",
    });
    assert_eq!(began, &expected);
    assert_eq!(ended["event"], "hold_ended");
    assert_eq!(ended["not_before"], "1970-01-01T00:00:04.000000Z");
    assert_eq!(ended["not_after"], "1970-01-01T00:00:06.000000Z");
    // Taken between 0 and 1, let go of between 4 and 6.
    let lengths = ["duration_seconds", "seen_for_seconds", "at_most_seconds"];
    assert_eq!(lengths.map(|field| ended[field].as_f64()), [Some(4.5), Some(3.0), Some(6.0)]);
    // An active session may have let go of it between the polls, and taken it again.
    assert_eq!(ended["at_least_seconds"], Value::Null);
}

#[test]
fn a_handover_is_told_in_the_order_in_which_it_must_have_been() {
    let mut story = Story::begin();
    story.poll(1, vec![holds(7, NIGHTLY)]);
    story.poll(2, vec![holds(7, NIGHTLY), waits(8, NIGHTLY, 1)]);
    story.poll(3, vec![holds(8, NIGHTLY), waits(9, NIGHTLY, 2)]);
    let told = story.told();
    let expected = [
        "wait_began 9",
        "holder_changed 8",
        "hold_began 8",
        "wait_ended 8",
        "hold_ended 7",
        "wait_began 8",
        "hold_began 7",
    ];
    assert_eq!(told, expected);
    let events = story.events(false);
    assert_eq!(events[1]["from"]["pid"], 7);
    assert_eq!(events[1]["from"]["application_name"], "pod-7");
    let wait = &events[3];
    assert_eq!(wait["outcome"], "granted");
    let lengths = ["at_least_seconds", "at_most_seconds"].map(|field| wait[field].as_f64());
    assert_eq!(lengths, [Some(1.0), Some(2.0)]);
    assert_eq!(events[0]["not_before"], events[0]["not_after"]);
}

#[test]
fn what_the_first_poll_finds_is_told_when_it_ends_and_has_no_upper_bound() {
    let mut story = Story::begin();
    let registry = Arc::new(Registry::empty());
    story.fold =
        Fold::new("orders-1".into(), registry, Arc::default(), &LIMITS, Thresholds::default());
    let hidden = |seconds, advisory| Sample { backends: None, ..sample(seconds, advisory) };
    story.observe(&hidden(1, vec![holds(7, NIGHTLY)]));
    assert!(story.events(false).is_empty());
    story.observe(&hidden(2, vec![holds(7, NIGHTLY)]));
    assert!(story.events(false).is_empty());
    story.observe(&hidden(3, vec![]));
    let events = story.events(false);
    let [ended] = &events[..] else { panic!("{events:?}") };
    assert_eq!(ended["seen_for_seconds"], 1.0);
    let unknown = ["duration_seconds", "at_most_seconds", "application_name", "backend_start"];
    assert!(unknown.iter().all(|field| ended[*field].is_null()), "{ended}");
}

#[test]
fn a_failed_poll_widens_the_bounds_and_loses_nothing() {
    let mut story = Story::begin();
    story.poll(1, vec![holds(7, NIGHTLY)]);
    // Polls between 1 and 60 failed: the fold hears nothing of them.
    story.poll(60, vec![]);
    let ended = &story.events(false)[0];
    assert_eq!(ended["not_before"], "1970-01-01T00:00:01.000000Z");
    assert_eq!(ended["not_after"], "1970-01-01T00:01:00.000000Z");
    assert_eq!(ended["application_name"], "pod-7");
}

#[test]
fn a_clock_that_was_set_back_takes_the_bounds_and_not_the_event() {
    let mut story = Story::begin();
    story.poll(100, vec![holds(7, NIGHTLY), waits(8, NIGHTLY, 99)]);
    story.poll(101, vec![holds(7, NIGHTLY), waits(8, NIGHTLY, 99)]);
    story.poll(50, vec![]);
    let events = story.events(false);
    for (event, name) in events.iter().zip(["wait_ended", "hold_ended"]) {
        assert_eq!(event["event"], name);
        assert_eq!((&event["not_before"], &event["at_most_seconds"]), (&Value::Null, &Value::Null));
    }
    assert_eq!(events[1]["seen_for_seconds"], 1.0);
}

#[test]
fn persons_hosts_and_values_are_for_those_who_may_see_details() {
    let mut story = Story::begin();
    let prepared = Sample {
        other_locks: vec![LockRow {
            tag: LockTag::of_transaction(TransactionId(731)),
            pid: None,
            transaction: VirtualTransaction::from_server("4/9"),
            mode: Mode::Exclusive,
            granted: true,
            wait_start: None,
        }],
        prepared: Some(vec![PreparedTransaction {
            transaction: TransactionId(731),
            gid: "order-4711".into(),
            prepared_at: at(0),
            owner: RoleOid(10),
            database: APP,
        }]),
        ..sample(
            1,
            vec![
                holds(7, Key::pair(7, 99)),
                KeyGroup {
                    pid: None,
                    transaction: VirtualTransaction::from_server("4/9"),
                    ..holds(0, NIGHTLY)
                },
            ],
        )
    };
    story.observe(&prepared);
    let shown = |details| Value::from(story.events(details)).to_string();
    for secret in ["billing", "10.0.0.7", "order-4711", "tenant 99"] {
        assert!(!shown(false).contains(secret), "{secret}");
        assert!(shown(true).contains(secret), "{secret}");
    }
    let events = story.events(false);
    let of_prepared = events.iter().find(|event| event["lock"] == "nightly").unwrap();
    assert_eq!((&of_prepared["pid"], &of_prepared["prepared"]), (&Value::Null, &json!(true)));
}

#[test]
fn only_what_is_asked_for_is_shown_the_newest_first_over_all_servers() {
    let mut story = Story::begin();
    story.poll(1, vec![holds(7, NIGHTLY)]);
    story.poll(2, vec![holds(7, NIGHTLY), holds(8, Key::bigint(1))]);
    let mut other = Story::begin();
    // Its clock is an hour ahead, ours is not.
    let sample = sample(3601, vec![holds(9, NIGHTLY)]);
    other.observe(&Sample { at_local: at(3 - 1000), ..sample });
    let other = View { server: "orders-2".into(), ..other.view() };
    let views = [other, story.view()];
    let asked = |query| {
        let filter = Filter::parse(Some(query)).unwrap();
        let pid = |event: &Value| event["pid"].as_i64().unwrap();
        events(&views, &filter, false).iter().map(pid).collect::<Vec<_>>()
    };
    assert_eq!(asked(""), [9, 8, 7]);
    assert_eq!(asked("limit=2"), [9, 8]);
    assert_eq!(asked("server=orders-1"), [8, 7]);
    assert_eq!(asked("lock=nightly"), [9, 7]);
    assert_eq!(asked("key=1"), [8]);
    assert_eq!(asked("lock=unregistered"), [0_i64; 0]);
}

#[test]
fn the_few_events_of_a_quiet_lock_outlast_those_of_busy_ones() {
    let mut story = Story::begin();
    story.poll(1, vec![holds(7, NIGHTLY)]);
    story.poll(2, vec![]);
    let burst = i64::try_from(CAPACITY).unwrap() / 20;
    let rounds = 50;
    for round in 0..rounds {
        let keys = (0..burst).map(|key| Key::bigint(1000 + burst * round + key)).collect();
        story.poll(3 + round, vec![KeyGroup { keys, ..holds(8, NIGHTLY) }]);
    }
    let history = story.view().events;
    let kept = history.newest_first().count();
    assert!((AFTER_TRIM..CAPACITY).contains(&kept), "{kept}");
    let nightly = history.newest_first().filter(|event| event.lock() == Some("nightly"));
    let kinds: Vec<_> = nightly.map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["hold_ended", "hold_began"]);
    // All that began, and all that ended but the last burst.
    let seen = 2 + burst * (2 * rounds - 1);
    assert_eq!(i128::from(history.forgotten()), i128::from(seen) - i128::try_from(kept).unwrap());
    assert_eq!(history.newest_first().next().unwrap().at, at(2 + rounds));
}

/// The lines for the log after a poll, in short.
fn lines(story: &mut Story) -> Vec<String> {
    let pid = |party: &Party| party.id.pid().unwrap();
    let who = |event: &Event| match event.finding() {
        Some(finding) => finding.kind.as_str().to_owned(),
        None => pid(event.party.as_ref().unwrap()).to_string(),
    };
    let line = |notice| match notice {
        Notice::Lasts(hold) => {
            format!("{} lasts {} s", pid(&hold.party), hold.seen_for.as_secs())
        }
        Notice::Happened(event) => format!("{} {}", who(&event), event.kind.as_str()),
        Notice::LeftOut(lines) => format!("left out {lines}"),
    };
    story.fold.take_notices().into_iter().map(line).collect()
}

#[test]
fn a_hold_of_a_named_lock_that_lasts_is_told_once_when_it_has_and_when_it_ends() {
    let mut story = Story::begin();
    let both = || vec![holds(7, NIGHTLY), holds(8, Key::bigint(1))];
    let polls = [
        (1, both(), vec![]),
        (10, both(), vec![]),
        (11, both(), vec!["7 lasts 10 s".to_owned()]),
        (12, both(), vec![]),
        (600, both(), vec![]),
        (601, vec![], vec!["7 hold_ended".to_owned()]),
        (602, vec![holds(9, NIGHTLY)], vec![]),
        (603, vec![], vec![]),
    ];
    for (seconds, advisory, expected) in polls {
        story.poll(seconds, advisory);
        assert_eq!(lines(&mut story), expected, "at {seconds}");
    }
}

#[test]
fn a_hold_that_was_there_for_long_at_the_first_poll_is_told_at_once() {
    let mut story = Story::begin();
    let source = Source { name: "registry.yaml".into(), text: REGISTRY.into() };
    let registry = Arc::new(Registry::parse(&[source]).unwrap());
    story.fold =
        Fold::new("orders-1".into(), registry, Arc::default(), &LIMITS, Thresholds::default());
    let mut first = sample(100, vec![holds(7, NIGHTLY)]);
    for backend in first.backends.iter_mut().flatten() {
        backend.state = State::Idle;
        backend.state_change = Some(at(40));
    }
    story.observe(&first);
    assert_eq!(lines(&mut story), ["7 lasts 60 s"]);
}

/// The findings that began and ended, the newest first.
fn told_findings(story: &Story) -> Vec<String> {
    let told = |event: &Value| {
        let finding = event["finding"].as_str()?;
        Some(format!("{} {finding} {}", event["event"].as_str()?, event["key"]["text"]))
    };
    story.events(false).iter().filter_map(told).collect()
}

#[test]
fn a_finding_is_told_when_it_begins_and_when_it_ends() {
    let mut story = Story::begin();
    for seconds in [1, 902, 950] {
        story.poll(seconds, vec![holds(7, NIGHTLY)]);
    }
    story.poll(952, vec![]);
    let events = story.events(false);
    let [ended, _, began, _] = &events[..] else { panic!("{events:?}") };
    let expected = json!({
        "at": "1970-01-01T00:15:02.000000Z",
        "event": "finding_began",
        "not_before": "1970-01-01T00:00:01.000000Z",
        "not_after": "1970-01-01T00:15:02.000000Z",
        "server": "orders-1",
        "datname": "app",
        "key": { "text": "42", "kind": "bigint", "classid": 0, "objid": 42, "objsubid": 1 },
        "lock": "nightly",
        "finding": "held_too_long",
        "severity": "warning",
        "text": "seen held by session 7 (pod-7) since 1970-01-01T00:00:01Z, for 15m1s; max_hold is 15m",
        "remedy": "SELECT pg_terminate_backend(7); the program may go on working without the lock",
        "pids": [7],
        "sessions_count": 1,
        "at_first_poll": false,
    });
    assert_eq!(began, &expected);
    assert_eq!((&ended["event"], &ended["finding"]), (&json!("finding_ended"), &began["finding"]));
    assert_eq!(ended["not_before"], "1970-01-01T00:15:50.000000Z");
    assert!(ended["text"].as_str().unwrap().contains("for 15m49s"), "as it was last: {ended}");
    // Found from 902 to 950, so not for longer than from 1 to 952.
    let lengths = ["seen_for_seconds", "at_most_seconds"].map(|field| ended[field].as_f64());
    assert_eq!(lengths, [Some(48.0), Some(951.0)]);
}

#[test]
fn a_finding_that_goes_on_is_not_told_anew_whatever_changes_about_it() {
    let mut story = Story::begin();
    let shares = |pid| KeyGroup { mode: Mode::Share, ..holds(pid, NIGHTLY) };
    story.poll(1, vec![shares(7), shares(8)]);
    story.poll(902, vec![shares(7), shares(8)]);
    let began = ["finding_began held_too_long \"42\""];
    assert_eq!(told_findings(&story), began);
    // Another session is the worst, a registry is read, polls fail: the fold hears nothing of those.
    story.poll(903, vec![shares(8)]);
    story.fold.observe_registry(parse_registry("locks: [{ name: renamed, key: 42 }]"));
    story.poll(2000, vec![shares(8)]);
    assert_eq!(told_findings(&story), began);
    // A registry that allows it ends it: nothing is to be said any more.
    let longer = "locks: [{ name: renamed, key: 42, max_hold: 1d }]";
    story.fold.observe_registry(parse_registry(longer));
    story.poll(2001, vec![shares(8)]);
    assert_eq!(told_findings(&story)[0], "finding_ended held_too_long \"42\"");
}

const LEADER: &str = "
locks: [{ name: leader, key: 42, databases: [app], must_be_held: true, vacant_for: 4s }]
";

#[test]
fn a_finding_about_a_key_that_nobody_holds_is_told_too() {
    let mut story = Story::unseen(LEADER);
    for seconds in [0, 2, 4, 6] {
        story.poll(seconds, vec![]);
    }
    assert_eq!(told_findings(&story), ["finding_began vacant \"42\""]);
    // Awaited it is another row of the picture, and the same finding.
    story.poll(7, vec![waits(8, NIGHTLY, 6)]);
    assert_eq!(told_findings(&story).len(), 1);
    story.poll(8, vec![holds(8, NIGHTLY)]);
    assert_eq!(told_findings(&story)[0], "finding_ended vacant \"42\"");
}

#[test]
fn what_the_first_poll_finds_is_told_as_found_then_with_no_bound_before() {
    let mut story = Story::unseen(REGISTRY);
    let mut first = sample(1000, vec![holds(7, NIGHTLY)]);
    for backend in first.backends.iter_mut().flatten() {
        (backend.state, backend.state_change) = (State::Idle, Some(at(1)));
    }
    story.observe(&first);
    let began = &story.events(false)[0];
    assert_eq!((&began["event"], &began["at_first_poll"]), (&json!("finding_began"), &json!(true)));
    assert_eq!(began["not_before"], Value::Null);
    story.poll(1001, vec![]);
    let ended = &story.events(false)[0];
    assert_eq!(
        (&ended["event"], &ended["at_most_seconds"]),
        (&json!("finding_ended"), &Value::Null)
    );
}

#[test]
fn of_a_finding_about_very_many_sessions_a_few_are_kept_and_all_are_counted() {
    let mut story = Story::begin();
    let waiters = || (100..1100).map(|pid| waits(pid, NIGHTLY, 1)).chain([holds(7, NIGHTLY)]);
    story.poll(2, waiters().collect());
    story.poll(100, waiters().collect());
    let events = story.events(false);
    let began = events.iter().find(|event| event["finding"] == "waiting_too_long").unwrap();
    assert_eq!(began["sessions_count"], 1000);
    assert!(began["text"].as_str().unwrap().ends_with("and 999 other sessions likewise"));
    let history = story.view().events;
    let kept = history.newest_first().find_map(|event| event.finding()).unwrap();
    assert_eq!(kept.sessions.len(), crate::view::NAMED);
}

#[test]
fn findings_are_told_to_everybody_in_a_bounded_number_of_lines_of_their_own() {
    let mut story = Story::begin();
    let burst = KeyGroup { keys: (1000..2000).map(Key::bigint).collect(), ..holds(8, NIGHTLY) };
    story.poll(1, vec![burst.clone()]);
    assert_eq!(lines(&mut story), [""; 0]);
    story.poll(3700, vec![burst, holds(7, NIGHTLY)]);
    let told = lines(&mut story);
    assert_eq!((told.len(), &*told[0]), (101, "held_too_long finding_began"));
    assert_eq!(told[100], "left out 900");
    // Holds that last have lines left.
    story.poll(3710, vec![holds(7, NIGHTLY)]);
    assert!(lines(&mut story).contains(&"7 lasts 10 s".to_owned()));
}

#[test]
fn everything_is_told_to_those_who_asked() {
    let mut story = Story::begin();
    story.fold.tell_all_events();
    story.poll(1, vec![holds(7, Key::bigint(1)), waits(8, Key::bigint(1), 1)]);
    assert_eq!(lines(&mut story), ["7 hold_began", "8 wait_began"]);
    story.poll(2, vec![holds(8, Key::bigint(1))]);
    let expected = ["7 hold_ended", "8 wait_ended", "8 hold_began", "8 holder_changed"];
    assert_eq!(lines(&mut story), expected);
}

#[test]
fn a_burst_writes_a_bounded_number_of_lines_and_says_how_many_were_left_out() {
    let mut story = Story::begin();
    story.fold.tell_all_events();
    // One finding about the burst has its own budget.
    let lines = |story: &mut Story| -> Vec<String> {
        lines(story).into_iter().filter(|line| !line.starts_with("too_many_keys")).collect()
    };
    let burst = KeyGroup { keys: (1000..21_000).map(Key::bigint).collect(), ..holds(8, NIGHTLY) };
    story.poll(1, vec![burst.clone()]);
    let first = lines(&mut story);
    assert_eq!(first.len(), 101);
    assert_eq!(first.last().unwrap(), "left out 19900");
    // What lasts is told whatever else there is; what else there is, at a pace.
    story.poll(2, vec![holds(7, NIGHTLY)]);
    assert_eq!(lines(&mut story).len(), 10);
    story.poll(11, vec![holds(7, NIGHTLY)]);
    assert_eq!(lines(&mut story), ["left out 19991"]);
    story.poll(12, vec![holds(7, NIGHTLY), burst]);
    let third = lines(&mut story);
    assert_eq!(third[0], "7 lasts 10 s");
    assert_eq!(third.len(), 101);
    story.poll(13, vec![]);
    assert_eq!(lines(&mut story)[0], "7 hold_ended");
}

#[test]
fn of_more_locks_than_there_are_places_the_newest_events_stay() {
    let mut story = Story::begin();
    story.poll(1, vec![holds(7, NIGHTLY)]);
    let newest = story.view().events.newest_first().next().unwrap().clone();
    let mut history = History::default();
    let pushed = 3 * CAPACITY;
    for number in 0..pushed {
        let text = |text: &str| Arc::<str>::from(text);
        let lock = format!("lock {number}").into();
        let series = Some(LockSeries { datname: text("app"), lock, key: text("42") });
        history.push(Arc::new(Event { series, ..Event::clone(&newest) }));
    }
    let kept: Vec<_> = history.newest_first().filter_map(|event| event.lock()).collect();
    assert!((AFTER_TRIM..CAPACITY).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept[0], format!("lock {}", pushed - 1));
    assert_eq!(history.forgotten(), u64::try_from(pushed - kept.len()).unwrap());
}

#[test]
fn what_is_too_much_is_taken_from_those_that_have_most() {
    for (sizes, capacity, expected) in [
        (vec![1, 2, 3], 6, 6),
        (vec![1, 2, 30], 10, 7),
        (vec![30, 2, 30], 10, 4),
        (vec![5, 5, 5], 2, 1),
    ] {
        let kept: usize = sizes.iter().map(|size| (*size).min(expected)).sum();
        assert!(kept <= capacity || expected == 1);
        assert_eq!(level(sizes.clone(), capacity), expected, "{sizes:?}");
    }
}
