//! What a registry of 100,000 keys costs: reading it, reading it again, the first look-up and the
//! later ones, a poll that sees many of its keys, and memory.
//!
//! `scripts/bench`. Times are of the processor, so that a busy machine changes them less, but for the
//! first look-up, which is too short for that. Each case has a process of its own, for its memory,
//! which is what stays resident: what was needed to read the file, and is free again, included.
//! Targets: 400 bytes a value, and samples that take little longer than those without any files.

#![expect(clippy::print_stdout, reason = "the numbers are for the terminal")]

use std::fmt::Write as _;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pg_locks_exporter::config::{Applications, Limits, Thresholds};
use pg_locks_exporter::fold::Fold;
use pg_locks_exporter::key::Key;
use pg_locks_exporter::mode::Mode;
use pg_locks_exporter::registry::hash::hashtextextended;
use pg_locks_exporter::registry::{
    Circumstances, HashCall, HashFunction, Registry, Resolver, Signs, Source,
};
use pg_locks_exporter::sample::{
    Backend, DatabaseName, DatabaseOid, KeyGroup, Names, Pid, Sample, State, VirtualTransaction,
};
use pg_locks_exporter::timestamp::Timestamp;

const KEYS: u32 = 100_000;
const APP: DatabaseOid = DatabaseOid(16_384);

/// A registry file, and the key of each of its values.
struct Case {
    what: &'static str,
    text: String,
    key: fn(u32) -> Key,
}

fn main() {
    let chosen = std::env::args().nth(1).and_then(|argument| argument.parse::<usize>().ok());
    match chosen.and_then(|number| cases().into_iter().nth(number)) {
        Some(case) => report(&case),
        None => {
            let program = std::env::current_exe().expect("this program has a path");
            for number in 0..cases().len() {
                let case = Command::new(&program).arg(number.to_string()).status();
                assert!(case.is_ok_and(|status| status.success()), "case {number} failed");
            }
        }
    }
}

fn cases() -> [Case; 3] {
    [
        Case {
            what: "100,000 values of one entry",
            text: values(""),
            key: |n| Key::bigint(hashtextextended(format!("customer:{n}").as_bytes(), 0)),
        },
        Case {
            what: "100,000 values of one entry, in the bytes of each database's encoding",
            text: values("é"),
            key: |n| Key::bigint(hashtextextended(format!("écustomer:{n}").as_bytes(), 0)),
        },
        Case {
            what: "100,000 entries",
            text: entries(),
            key: |n| Key::bigint(i64::from(n) + 10_000_000_000),
        },
    ]
}

fn values(before: &str) -> String {
    let mut text = format!(
        "locks:\n- name: customer\n  key: {{ hashtextextended: \"{before}customer:{{id}}\" }}\n  \
         values:\n    id:\n"
    );
    for n in 0..KEYS {
        let _ = writeln!(text, "    - \"{n}\"");
    }
    text
}

fn entries() -> String {
    let mut text = "locks:\n".to_owned();
    for n in 0..KEYS {
        let _ = writeln!(text, "- {{ name: lock-{n}, key: {} }}", u64::from(n) + 10_000_000_000);
    }
    text
}

fn report(case: &Case) {
    println!("{}, {} KB of YAML", case.what, case.text.len() / 1000);
    // What is the same for every registry is no part of this one.
    let empty = Arc::new(Registry::empty());
    let before = memory();
    let (load, registry) = timed(|| parse(&case.text));
    let loaded = memory();
    let told = told();
    let (connect, resolver) = timed(|| Resolver::new(registry.clone(), "db-1".into(), &told));
    let connected = memory();
    let first = first_look_up(&resolver, (case.key)(KEYS / 2));
    println!("  read                        {load:>10.1?}");
    println!("  names for a server          {connect:>10.1?}   in three encodings");
    println!("  first look-up               {first:>10.1?}");
    println!("  look-up of a key of it      {:>10.1?}", look_up(&resolver, case.key));
    let stranger = |n| Key::bigint(-i64::from(n) - 20_000_000_000);
    println!("  look-up of another key      {:>10.1?}", look_up(&resolver, stranger));
    let of_one = |bytes: usize| bytes / usize::try_from(KEYS).expect("it fits");
    println!(
        "  memory                      {:>6} MB   {} bytes a key, and {} a key for the server",
        connected / 1_000_000,
        of_one(loaded.saturating_sub(before)),
        of_one(connected.saturating_sub(loaded))
    );

    // As the reload does: the old one is in use until the new one is there.
    let mut fold = new_fold(&registry);
    drop((resolver, registry));
    let reload = timed(|| fold.observe_registry(parse(&case.text))).0;
    println!("  reload                      {reload:>10.1?}");
    println!("  memory after it             {:>6} MB", memory() / 1_000_000);

    // The server computes one of the hashes otherwise, so that all names are made anew.
    let call =
        HashCall { function: HashFunction::Hashtextextended, text: "customer:1".into(), seed: 0 };
    let renewal = timed(|| fold.observe_server_hashes([(call, 7)].into())).0;
    println!("  names after another hash    {renewal:>10.1?}");
    drop(fold);

    let registry = parse(&case.text);
    for held in [1_000, 10_000] {
        let without = self::fold(&empty, held, case.key);
        let with = self::fold(&registry, held, case.key);
        let ratio = with.as_secs_f64() / without.as_secs_f64();
        println!("  a sample of {held:>6} keys     {with:>10.1?}   {ratio:.2} of {without:.1?}");
    }
}

fn parse(text: &str) -> Arc<Registry> {
    let source = Source { name: "registry.yaml".into(), text: text.to_owned() };
    Arc::new(Registry::parse(&[source]).expect("a registry"))
}

fn databases() -> [(DatabaseOid, DatabaseName); 3] {
    let database =
        |name: &str, encoding: &str| DatabaseName { name: name.into(), encoding: encoding.into() };
    [
        (APP, database("app", "UTF8")),
        (DatabaseOid(16_385), database("old", "LATIN1")),
        (DatabaseOid(16_386), database("older", "WIN1252")),
    ]
}

fn told() -> Circumstances {
    let databases = databases().map(|(_, database)| (database.name, database.encoding));
    Circumstances { databases: databases.into(), ..Circumstances::default() }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn first_look_up(resolver: &Resolver, key: Key) -> Duration {
    let began = Instant::now();
    let found = resolver.resolve(Some("app"), key, Signs::default());
    let elapsed = began.elapsed();
    assert!(found.lock.is_some(), "the key has its name");
    elapsed
}

/// The mean over all keys.
fn look_up(resolver: &Resolver, key: impl Fn(u32) -> Key) -> Duration {
    let keys: Vec<Key> = (0..KEYS).map(key).collect();
    let look_up_all = || {
        for key in keys {
            std::hint::black_box(resolver.resolve(Some("app"), key, Signs::default()));
        }
    };
    timed(look_up_all).0 / KEYS
}

fn new_fold(registry: &Arc<Registry>) -> Fold {
    let limits = Limits {
        keys: 1_000,
        applications: 100,
        databases: 100,
        registered_keys: 10_000,
        values: 1_000_000,
    };
    let mut fold = Fold::new(
        "db-1".into(),
        registry.clone(),
        Arc::new(Applications::new(Vec::new())),
        &limits,
        Thresholds::default(),
    );
    fold.observe_names(Names { databases: databases().into(), ..Names::default() });
    fold
}

/// How long a sample takes on average, the first ones left out: of so many keys that stay, a tenth
/// of which is exchanged each time.
fn fold(registry: &Arc<Registry>, held: u32, key: fn(u32) -> Key) -> Duration {
    const ROUNDS: u32 = 20;
    let mut fold = new_fold(registry);
    let samples: Vec<Sample> = (0..ROUNDS + 3).map(|round| sample(round, held, key)).collect();
    let (first, others) = samples.split_at(3);
    for sample in first {
        fold.observe(sample, Duration::from_secs(20));
    }
    let observe_all = || {
        for sample in others {
            std::hint::black_box(fold.observe(sample, Duration::from_secs(20)));
        }
    };
    timed(observe_all).0 / ROUNDS
}

fn sample(round: u32, held: u32, key: fn(u32) -> Key) -> Sample {
    let at = Timestamp::from_unix_micros(1_700_000_000_000_000 + i64::from(round) * 10_000_000);
    let pid = Pid(100);
    let changed = held / 10;
    let numbers = (changed..held).chain(held + round * changed..held + (round + 1) * changed);
    let keys = KeyGroup {
        database: APP,
        pid: Some(pid),
        transaction: VirtualTransaction::from_server("4/0"),
        mode: Mode::Exclusive,
        granted: true,
        wait_start: None,
        keys: numbers.map(key).collect(),
    };
    let backend = Backend {
        pid,
        database: Some(APP),
        role: None,
        application_name: Some("worker".into()),
        state: State::Idle,
        state_change: Some(at),
        wait_event: None,
        backend_start: Some(Timestamp::from_unix_micros(1_600_000_000_000_000)),
        client_addr: None,
        client_port: None,
        snapshot_age: None,
        backend_type: Some("client backend".into()),
        leader: None,
    };
    Sample {
        at,
        at_local: at,
        round_trip: Duration::ZERO,
        read_at: at,
        own_pid: Pid(1),
        in_recovery: false,
        advisory: vec![keys],
        other_locks: Vec::new(),
        backends: Some(vec![backend]),
        prepared: Some(Vec::new()),
        table_entries: None,
    }
}

/// How long it took the processor.
fn timed<T>(run: impl FnOnce() -> T) -> (Duration, T) {
    let before = processor_time();
    let result = run();
    (processor_time().saturating_sub(before), result)
}

/// What this process, which has one thread, has had of the processor.
fn processor_time() -> Duration {
    let status = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = status.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// What this process has of memory now, in bytes.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = resident.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok());
    kilobytes.map_or(0, |kilobytes: usize| kilobytes * 1024)
}
