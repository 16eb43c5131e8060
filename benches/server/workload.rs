//! What a workload notices of being watched: many short transactions that each take an advisory lock,
//! with and without, in turn. The control is nothing beside nothing; its scatter is larger than what
//! is looked for, so nothing is judged by these. What can be judged is the processor time of a poll.

use std::process::{Command, Stdio};
use std::time::Duration;

use rand::seq::{IndexedRandom as _, SliceRandom as _};

use crate::measure::{median, milliseconds, processor_time, processor_time_of_all, verdict};
use crate::support::files::Files;
use crate::support::{Exporter, Postgres, Session};

const TRANSACTION: &str = "\\set id random(1, 100000)
BEGIN;
SELECT pg_advisory_xact_lock(hashtext('event-' || :id));
INSERT INTO events VALUES (:id) ON CONFLICT DO NOTHING;
COMMIT;
";

const JOIN: &str = "SELECT l.*, a.* FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid \
    WHERE l.locktype = 'advisory'";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Watcher {
    Nobody,
    NobodyAgain,
    EachSecond,
    TenTimesASecond,
    JoinEachSecond,
}

const WATCHERS: [Watcher; 5] = [
    Watcher::Nobody,
    Watcher::NobodyAgain,
    Watcher::EachSecond,
    Watcher::TenTimesASecond,
    Watcher::JoinEachSecond,
];

/// What one block of load came to.
struct Block {
    per_second: f64,
    slowest: f64,
    /// Of exporter or client, and of its server process, for a poll, in milliseconds.
    poll: Option<(f64, f64)>,
}

/// `LOCKS_BENCH_PAIRS` and `LOCKS_BENCH_SECONDS` make it shorter; such figures are worth less.
pub async fn run() {
    let number = |name: &str, otherwise: u32| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let (pairs, seconds) = (number("LOCKS_BENCH_PAIRS", 20), number("LOCKS_BENCH_SECONDS", 30));
    let postgres = Postgres::builder().start().await;
    let setup = postgres.session("setup").await;
    setup.run("CREATE TABLE events (id int PRIMARY KEY); INSERT INTO events SELECT generate_series(1, 100000)").await;
    let files = Files::new();
    let script = files.write("transaction.sql", TRANSACTION);
    println!(
        "\nworkload, PostgreSQL {}, {pairs} blocks of {seconds} s each, in random order within a round",
        postgres.major_version()
    );
    let mut blocks: Vec<Vec<(Watcher, Block)>> = Vec::new();
    for _ in 0..pairs {
        let mut round = WATCHERS.to_vec();
        round.shuffle(&mut rand::rng());
        let mut measured = Vec::new();
        for watcher in round {
            measured.push((watcher, block(&postgres, watcher, &script, seconds).await));
        }
        blocks.push(measured);
    }
    report(&blocks);
}

fn report(blocks: &[Vec<(Watcher, Block)>]) {
    println!(
        "{:<18} {:>26} {:>26} {:>12} {:>12}  target",
        "watcher", "TPS to nobody (90 %)", "p99 to nobody (90 %)", "ours ms", "server ms"
    );
    let of = |round: &'_ [(Watcher, Block)], watcher: Watcher| -> usize {
        round.iter().position(|(one, _)| *one == watcher).expect("each was measured")
    };
    for watcher in &WATCHERS[1..] {
        let ratios = |value: fn(&Block) -> f64| -> Vec<f64> {
            let ratio = |round: &Vec<(Watcher, Block)>| {
                let (own, other) = (of(round, *watcher), of(round, Watcher::Nobody));
                value(&round[own].1) / value(&round[other].1)
            };
            blocks.iter().map(ratio).collect()
        };
        let polls: Vec<(f64, f64)> =
            blocks.iter().filter_map(|round| round[of(round, *watcher)].1.poll).collect();
        let ours = median(&polls.iter().map(|poll| poll.0).collect::<Vec<_>>());
        let server = median(&polls.iter().map(|poll| poll.1).collect::<Vec<_>>());
        // A poll a second: milliseconds are tenths of a percent of a core.
        let share = (ours + server) / 10.0;
        let judged = format!("0.5 % of a core: {share:.2} %, {}", verdict(share, 0.5));
        let judged = if *watcher == Watcher::EachSecond { judged } else { String::new() };
        let shown = |value: f64| if value.is_nan() { String::new() } else { format!("{value:.2}") };
        println!(
            "{:<18} {:>26} {:>26} {:>12} {:>12}  {judged}",
            format!("{watcher:?}"),
            interval(&ratios(|block| block.per_second)),
            interval(&ratios(|block| block.slowest)),
            shown(ours),
            shown(server),
        );
    }
}

/// The median, and where nine of ten medians of samples drawn from the same lie.
fn interval(ratios: &[f64]) -> String {
    let mut generator = rand::rng();
    let mut medians: Vec<f64> = (0..2000)
        .map(|_| {
            let drawn: Vec<f64> =
                ratios.iter().filter_map(|_| ratios.choose(&mut generator)).copied().collect();
            median(&drawn)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    format!("{:.3} ({:.3} to {:.3})", median(ratios), medians[100], medians[1899])
}

async fn block(postgres: &Postgres, watcher: Watcher, script: &str, seconds: u32) -> Block {
    let dsn = postgres.dsn("postgres");
    let exporter = match watcher {
        Watcher::EachSecond => Some(Exporter::serve(&["--dsn", &dsn]).await),
        Watcher::TenTimesASecond => {
            Some(Exporter::serve(&["--dsn", &dsn, "--poll.interval", "100ms"]).await)
        }
        Watcher::Nobody | Watcher::NobodyAgain | Watcher::JoinEachSecond => None,
    };
    let joining = if watcher == Watcher::JoinEachSecond {
        let session = postgres.session("join").await;
        Some(tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_secs(1));
            loop {
                ticks.tick().await;
                session.rows(JOIN).await;
            }
        }))
    } else {
        None
    };
    let observer = postgres.session("observer").await;
    let before = match &exporter {
        Some(exporter) => {
            exporter.scrape_fresh().await;
            Some(look(exporter, &observer).await)
        }
        None => None,
    };
    let logs = tempfile::tempdir().expect("a folder can be made");
    let prefix = logs.path().join("log");
    let mut command = Command::new("pgbench");
    command
        .args(["--no-vacuum", "--client=8", "--jobs=1", "--protocol=prepared", "--log"])
        .arg(format!("--log-prefix={}", prefix.display()))
        .arg(format!("--time={seconds}"))
        .arg(format!("--file={script}"))
        .arg(format!("postgresql://postgres@127.0.0.1:{}/app", postgres.port()))
        .stdin(Stdio::null());
    let outcome = crate::support::process::run(command).await;
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let poll = match (&exporter, before) {
        (Some(exporter), Some(before)) => {
            let after = look(exporter, &observer).await;
            let polls = after.polls - before.polls;
            let per_poll = |after: Duration, before: Duration| milliseconds(after - before) / polls;
            Some((per_poll(after.ours, before.ours), per_poll(after.server, before.server)))
        }
        _ => None,
    };
    if let Some(joining) = joining {
        joining.abort();
    }
    let per_second = outcome.stdout.lines().find_map(|line| line.strip_prefix("tps = "));
    let per_second = per_second.and_then(|rest| rest.split(' ').next()?.parse().ok());
    Block { per_second: per_second.expect("it tells"), slowest: slowest(logs.path()), poll }
}

/// The 99th percentile of all transactions, in milliseconds.
fn slowest(logs: &std::path::Path) -> f64 {
    let mut times: Vec<u32> = Vec::new();
    for log in std::fs::read_dir(logs).expect("it can be read") {
        let log = std::fs::read_to_string(log.expect("it can be read").path()).expect("it is text");
        times.extend(log.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<u32>().ok()));
    }
    times.sort_unstable();
    f64::from(times[times.len() * 99 / 100]) / 1e3
}

struct Look {
    polls: f64,
    ours: Duration,
    server: Duration,
}

async fn look(exporter: &Exporter, observer: &Session) -> Look {
    let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'locks'";
    let pid = observer.value(sql).await.and_then(|pid| pid.parse().ok()).expect("it polls");
    let polls = exporter.scrape().await.sample("pg_advisory_polls_total").value();
    Look { polls, ours: processor_time_of_all(exporter.id()), server: processor_time(pid) }
}
