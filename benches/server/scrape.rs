//! One scrape, beside that of `postgres_exporter` with a query that gives key, database, application
//! name and state of each advisory lock.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use rand::seq::SliceRandom as _;

use crate::load::{self, Load};
use crate::measure::{median, milliseconds, processor_time_of_all, resident, verdict};
use crate::support::files::Files;
use crate::support::port::Port;
use crate::support::process::Process;
use crate::support::{Exporter, Postgres, http};

const PEER: &str = "prometheus-postgres-exporter";

const QUERIES: &str = r#"
advisory_lock:
  query: >-
    SELECT d.datname, l.classid::text, l.objid::text, l.objsubid::text, coalesce(a.application_name, '') AS application_name,
    l.granted::text, count(*)::float8 AS sessions
    FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid LEFT JOIN pg_database d ON d.oid = l.database
    WHERE l.locktype = 'advisory' GROUP BY 1, 2, 3, 4, 5, 6
  metrics:
    - datname: { usage: LABEL, description: Database. }
    - classid: { usage: LABEL, description: Class. }
    - objid: { usage: LABEL, description: Object. }
    - objsubid: { usage: LABEL, description: Kind. }
    - application_name: { usage: LABEL, description: Application. }
    - granted: { usage: LABEL, description: Granted. }
    - sessions: { usage: GAUGE, description: Sessions. }
"#;

/// What asks, and what answers.
struct Subject {
    name: &'static str,
    process: u32,
    address: SocketAddr,
    times: Vec<f64>,
    processor: Duration,
    bytes: usize,
}

pub async fn run() {
    if Command::new(PEER).arg("--version").output().is_err() {
        println!("scrape: {PEER} is not installed: nothing was measured");
        return;
    }
    let postgres = load::large_server().await;
    println!(
        "\nscrape, PostgreSQL {}; medians, ratios to {PEER}\n\
         {:<9} {:<24} {:>9} {:>8} {:>10} {:>9} {:>10}  target",
        postgres.major_version(),
        "locks",
        "exporter",
        "ms",
        "ratio",
        "bytes",
        "CPU ms",
        "memory MB"
    );
    for (locks, target) in [(0, None), (1_000, Some(20.0)), (10_000, None), (100_000, Some(200.0))]
    {
        case(&postgres, locks, target).await;
    }
}

async fn case(postgres: &Postgres, locks: u32, target: Option<f64>) {
    let _sessions = Load::Advisory(locks).make(postgres).await;
    let files = Files::new();
    let (peer, address) = start_peer(postgres, &files).await;
    let ours = start(postgres, &files, "locks.yaml", "").await;
    let limits = "limits: { keys: 200000, applications: 1000 }\n";
    let raised = start(postgres, &files, "raised.yaml", limits).await;
    let subject = |name, process, address| Subject {
        name,
        process,
        address,
        times: Vec::new(),
        processor: Duration::ZERO,
        bytes: 0,
    };
    let mut subjects = [
        subject("postgres_exporter", peer.id(), address),
        subject("locks", ours.id(), ours.address()),
        subject("locks, limits raised", raised.id(), raised.address()),
    ];
    let rounds = if locks > 10_000 { 11 } else { 31 };
    // The first of each is not counted.
    for round in 0..=rounds {
        subjects.shuffle(&mut rand::rng());
        for subject in &mut subjects {
            let processor = processor_time_of_all(subject.process);
            let began = Instant::now();
            let answer = http::get(subject.address, "/metrics", &[]).await;
            let took = milliseconds(began.elapsed());
            assert_eq!(answer.status, 200);
            subject.bytes = answer.body.len();
            if round > 0 {
                subject.times.push(took);
                subject.processor += processor_time_of_all(subject.process) - processor;
            }
        }
    }
    subjects.sort_by_key(|subject| std::cmp::Reverse(subject.name));
    let [peers, others @ ..] = &subjects;
    let (time, memory) = (median(&peers.times), resident(peers.process));
    for subject in std::iter::once(peers).chain(others) {
        let own = median(&subject.times);
        let own_memory = resident(subject.process);
        let judged = match target {
            Some(target) if subject.name == "locks" => {
                let of_memory = match locks {
                    100_000 => format!(", memory 1/2 {}", verdict(own_memory, memory / 2.0)),
                    _ => String::new(),
                };
                format!("1/{target} {}{of_memory}", verdict(own, time / target))
            }
            _ => String::new(),
        };
        println!(
            "{locks:<9} {:<24} {own:>9.3} {:>8} {:>10} {:>9.2} {own_memory:>10.1}  {judged}",
            subject.name,
            format!("1/{:.0}", time / own),
            subject.bytes,
            milliseconds(subject.processor) / f64::from(rounds),
        );
    }
}

async fn start(postgres: &Postgres, files: &Files, name: &str, limits: &str) -> Exporter {
    let dsn = postgres.dsn("postgres");
    let config = files.write(name, &format!("servers: [{{ dsn: '{dsn}' }}]\n{limits}"));
    let exporter = Exporter::serve(&["--config.file", &config]).await;
    exporter.scrape_fresh().await;
    exporter
}

async fn start_peer(postgres: &Postgres, files: &Files) -> (Process, SocketAddr) {
    let queries = files.write("queries.yaml", QUERIES);
    let port = Port::reserve();
    let address = SocketAddr::from(([127, 0, 0, 1], port.number()));
    let mut command = Command::new(PEER);
    command
        .arg(format!("--web.listen-address={address}"))
        .arg(format!("--extend.query-path={queries}"))
        .env("DATA_SOURCE_NAME", format!("{}?sslmode=disable", postgres.dsn("postgres")));
    let mut process = Process::start(command, &files.path("peer.log"), "TERM");
    process
        .until_ready(async |_| {
            let answer = http::request("GET", address, "/metrics", &[]).await;
            answer.is_ok_and(|answer| answer.text().contains("pg_up 1"))
        })
        .await;
    let log = fs::read_to_string(files.path("peer.log")).unwrap_or_default();
    assert!(!log.contains("level=error"), "{log}");
    (process, address)
}
