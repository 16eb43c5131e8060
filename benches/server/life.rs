//! An exporter from its start on: how long until the first scrape has a server in it, what it keeps in
//! memory, what it takes of the processor, with one server and with two hundred.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::load::{self, Load};
use crate::measure::{median, milliseconds, processor_time_of_all, resident, verdict};
use crate::support::files::Files;
use crate::support::{Exporter, Postgres, eventually_within};

const SERVERS: u32 = 200;

pub async fn run() {
    let postgres = load::large_server().await;
    println!("\nlife, PostgreSQL {}", postgres.major_version());
    let line =
        |what: &str, value: String, judged: String| println!("{what:<58} {value:>12}  {judged}");
    let size = std::fs::metadata(env!("CARGO_BIN_EXE_locks")).expect("it is built").len();
    #[expect(clippy::cast_precision_loss, reason = "megabytes")]
    line("binary", format!("{:.1} MB", size as f64 / 1e6), String::new());

    let mut starts = Vec::new();
    for _ in 0..9 {
        starts.push(start(&postgres).await);
    }
    let time = median(&starts);
    line(
        "start to the first scrape with a server in it",
        format!("{time:.0} ms"),
        target(time, 150.0, "ms"),
    );

    let sessions = Load::Advisory(100).make(&postgres).await;
    let dsn = postgres.dsn("postgres");
    let mut exporters = Vec::new();
    for _ in 0..5 {
        exporters.push(Exporter::serve(&["--dsn", &dsn]).await);
    }
    let before: Vec<Duration> =
        exporters.iter().map(|one| processor_time_of_all(one.id())).collect();
    let minute = Duration::from_secs(60);
    tokio::time::sleep(minute).await;
    let memory: Vec<f64> = exporters.iter().map(|one| resident(one.id())).collect();
    let memory = median(&memory);
    line(
        "memory after 60 s, 100 locks, one server",
        format!("{memory:.1} MB"),
        target(memory, 12.0, "MB"),
    );
    let shares: Vec<f64> = exporters
        .iter()
        .zip(before)
        .map(|(one, before)| share(processor_time_of_all(one.id()) - before, minute))
        .collect();
    line(
        "processor, one server at 1 s, no scrape",
        format!("{:.2} %", median(&shares)),
        String::new(),
    );
    drop((exporters, sessions));
    many(&postgres, line).await;
}

fn share(time: Duration, of: Duration) -> f64 {
    100.0 * time.as_secs_f64() / of.as_secs_f64()
}

fn target(value: f64, target: f64, unit: &str) -> String {
    format!("{target} {unit} {}", verdict(value, target))
}

/// In milliseconds.
async fn start(postgres: &Postgres) -> f64 {
    let dsn = postgres.dsn("postgres");
    let began = Instant::now();
    let exporter = Exporter::serve(&["--dsn", &dsn]).await;
    // Asked all the time.
    while exporter.scrape().await.sample("pg_advisory_up").values() != [1.0] {}
    milliseconds(began.elapsed())
}

/// One server under so many names.
async fn many(postgres: &Postgres, line: impl Fn(&str, String, String)) {
    let _sessions = Load::Advisory(100).make(postgres).await;
    let files = Files::new();
    let mut config = String::from("servers:\n");
    for number in 0..SERVERS {
        let dsn = postgres.dsn("postgres");
        writeln!(config, "  - {{ name: server-{number}, dsn: '{dsn}' }}").expect("it is text");
    }
    let config = files.write("locks.yaml", &config);
    let exporter = Exporter::serve(&["--config.file", &config]).await;
    eventually_within(Duration::from_secs(60), "all are polled", async || {
        let up = exporter.scrape().await.sample("pg_advisory_up").values();
        assert_eq!(up.iter().sum::<f64>(), f64::from(SERVERS));
    })
    .await;
    let polls = async || -> f64 {
        exporter.scrape().await.sample("pg_advisory_polls_total").values().iter().sum()
    };
    let (before, polls_before) = (processor_time_of_all(exporter.id()), polls().await);
    let began = Instant::now();
    let minute = Duration::from_secs(60);
    tokio::time::sleep(minute).await;
    let took = began.elapsed();
    let used = share(processor_time_of_all(exporter.id()) - before, took);
    let delay = took.as_secs_f64() * f64::from(SERVERS) / (polls().await - polls_before);
    let what = |figure: &str| format!("{figure}, {SERVERS} servers at 1 s, 100 locks each");
    line(&what("processor"), format!("{used:.1} %"), target(used, 50.0, "%"));
    let memory = resident(exporter.id());
    line(&what("memory"), format!("{memory:.1} MB"), target(memory, 150.0, "MB"));
    line(&what("from poll to poll"), format!("{delay:.3} s"), String::new());
    let scrape = exporter.scrape().await;
    let longest = scrape.sample("pg_advisory_poll_duration_seconds").values();
    let longest = longest.into_iter().fold(0.0, f64::max);
    line(&what("longest poll of one round"), format!("{:.1} ms", longest * 1e3), String::new());
}
