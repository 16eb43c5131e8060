//! Life at a hard place: the simulated applications, backends that are killed, a server that restarts,
//! and twenty scrapes a second, for as long as `LOCKS_SOAK_SECONDS` says. `scripts/soak` runs it; the
//! other tests do not.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::support::exporter::now;
use crate::support::files::Files;
use crate::support::{
    Exporter, Fleet, PgBouncer, PoolMode, Postgres, Scrape, Session, eventually_within, http,
    require,
};

/// Between two deaths of a backend.
const KILL_EVERY: Duration = Duration::from_secs(5);

/// How long the exporter may take to be up again after a restart: its back-off ends at a minute.
const RECOVERY: Duration = Duration::from_secs(90);

/// Memory is flat when it grows by no more than this, or by a tenth.
const FLAT: u64 = 2 << 20;

/// What was counted while it ran.
#[derive(Default)]
struct Tally {
    ended: AtomicBool,
    scrapes: AtomicU64,
    failed: AtomicU64,
    /// Scrapes of a server that is down.
    blind: AtomicU64,
    /// Those of them that showed its locks.
    frozen: AtomicU64,
}

/// Twenty times a second one of the paths, each over a connection of its own.
async fn scrape_on(address: std::net::SocketAddr, tally: Arc<Tally>) {
    const PATHS: [&str; 8] = [
        "/metrics",
        "/metrics",
        "/api/v1/locks",
        "/metrics",
        "/",
        "/metrics",
        "/api/v1/events?limit=50",
        "/probe?target=soak",
    ];
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    for path in PATHS.into_iter().cycle() {
        ticks.tick().await;
        if tally.ended.load(Ordering::Relaxed) {
            return;
        }
        let asked =
            tokio::time::timeout(Duration::from_secs(10), http::get(address, path, &[])).await;
        tally.scrapes.fetch_add(1, Ordering::Relaxed);
        let Ok(answer) = asked else {
            tally.failed.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        if answer.status != 200 {
            tally.failed.fetch_add(1, Ordering::Relaxed);
        }
        if path == "/metrics" {
            let scrape = Scrape::parse(answer.text());
            let is_down = scrape.sample("pg_advisory_up").values() == [0.0];
            let shows_locks = !scrape.sample("pg_advisory_lock_rows").matches().is_empty()
                || scrape.sample("pg_advisory_lock_holders").values().iter().any(|n| *n > 0.0);
            tally.blind.fetch_add(u64::from(is_down), Ordering::Relaxed);
            tally.frozen.fetch_add(u64::from(is_down && shows_locks), Ordering::Relaxed);
        }
    }
}

/// What one look at the process saw.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Duration,
    resident: u64,
    files: usize,
    threads: u64,
}

fn look(exporter: &Exporter, began: SystemTime) -> Look {
    let id = exporter.id();
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("the exporter is alive");
    let value = |key: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("it is told");
        line.split_whitespace().next().expect("a number").parse().expect("a number")
    };
    Look {
        at: now().duration_since(began).unwrap_or_default(),
        resident: value("VmRSS:") * 1024,
        files: fs::read_dir(format!("/proc/{id}/fd")).expect("they can be listed").count(),
        threads: value("Threads:"),
    }
}

fn cpu_seconds(exporter: &Exporter) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", exporter.id())).expect("it is alive");
    let (_, rest) = stat.rsplit_once(") ").expect("its name stands in parentheses");
    let ticks = |index: usize| -> f64 {
        rest.split(' ').nth(index).expect("a number").parse().expect("a number")
    };
    (ticks(11) + ticks(12)) / 100.0
}

fn median(looks: &[Look], value: fn(&Look) -> u64) -> u64 {
    let mut values: Vec<u64> = looks.iter().map(value).collect();
    values.sort_unstable();
    values[values.len() / 2]
}

async fn count(session: &Session, sql: &str) -> u64 {
    session.value(sql).await.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[tokio::test]
#[ignore = "scripts/soak runs it, for as long as it is told to"]
async fn an_exporter_lives_through_deaths_and_restarts_and_stays_as_small_as_it_was() {
    require!(Postgres, PgBouncer);
    let seconds = std::env::var("LOCKS_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let length = Duration::from_secs(seconds.expect("LOCKS_SOAK_SECONDS is a number of seconds"));
    // Five minutes to warm up, of a short run a third.
    let warm_up = Duration::from_secs(300).min(length / 3);
    let restart_every = Duration::from_secs(180).min(length / 4);

    let mut postgres = Postgres::builder()
        .setting("max_connections", 200)
        .setting("max_prepared_transactions", 20)
        .start()
        .await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 2).await;
    let fleet = Fleet::start(&postgres, Some(&pooler));
    let files = Files::new();
    let registry = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/fleet-registry.yaml");
    let config = files.write(
        "locks.yaml",
        &format!(
            "registry: ['{registry}']\nservers: [{{ name: soak, dsn: '{}' }}]\n",
            postgres.dsn("postgres")
        ),
    );
    let state = files.path("state.json");
    let state = state.to_string_lossy();
    let exporter = Exporter::serve(&["--config.file", &config, "--state.file", &state]).await;
    let tally = Arc::<Tally>::default();
    let scraping = tokio::spawn(scrape_on(exporter.address(), tally.clone()));

    let began = now();
    let elapsed = || now().duration_since(began).unwrap_or_default();
    let (mut looks, mut kills, mut restarts, mut most_connections) = (Vec::new(), 0, 0_u32, 0);
    let mut next_restart = restart_every;
    while elapsed() < length {
        if elapsed() >= next_restart {
            next_restart += restart_every;
            restarts += 1;
            if restarts % 2 == 1 {
                postgres.kill().await
            } else {
                postgres.stop().await
            }
            postgres.start_again().await;
            eventually_within(RECOVERY, "the server is polled again", async || {
                exporter.scrape().await.sample("pg_advisory_up").is(1.0);
            })
            .await;
        }
        let session = postgres.session_in("postgres", "soak").await;
        let ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'locks'";
        most_connections = most_connections.max(count(&session, ours).await);
        // Somebody dies in the middle of whatever it is.
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity \
                    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() \
                    AND application_name <> 'locks' ORDER BY random() LIMIT 1) AS victim";
        kills += count(&session, kill).await;
        // A lock that is given back is not shown any more.
        session.run("SELECT pg_advisory_lock(987654321)").await;
        let shown = async |is_shown: bool| {
            let what =
                if is_shown { "a lock is shown" } else { "a lock that is gone is not shown" };
            eventually_within(RECOVERY, what, async || {
                let scrape = exporter.scrape().await;
                scrape.sample("pg_advisory_up").is(1.0);
                let holders = scrape
                    .sample("pg_advisory_keys")
                    .with("datname", "postgres")
                    .with("state", "held");
                assert_eq!(holders.value() > 0.0, is_shown);
            })
            .await;
        };
        shown(true).await;
        session.run("SELECT pg_advisory_unlock_all()").await;
        shown(false).await;
        drop(session);
        looks.push(look(&exporter, began));
        tokio::time::sleep(KILL_EVERY).await;
    }
    tally.ended.store(true, Ordering::Relaxed);
    scraping.await.expect("the scraper does not panic");
    let cpu = cpu_seconds(&exporter);

    let warm: Vec<Look> = looks.iter().copied().filter(|look| look.at >= warm_up).collect();
    assert!(warm.len() >= 4, "too short to tell: {looks:?}");
    let fifth = (warm.len() / 5).max(1);
    let (first, last) = (&warm[..fifth], &warm[warm.len() - fifth..]);
    let (early, late) = (median(first, |look| look.resident), median(last, |look| look.resident));
    let most = |value: fn(&Look) -> u64| looks.iter().map(value).max().unwrap_or_default();
    let figure = |number: &AtomicU64| number.load(Ordering::Relaxed);
    eprintln!("soak: {} s, {kills} backends ended, {restarts} restarts", elapsed().as_secs());
    eprintln!(
        "soak: {} scrapes, {} failed, {} with locks of a server that is down",
        figure(&tally.scrapes),
        figure(&tally.failed),
        figure(&tally.frozen)
    );
    let megabytes = |bytes: u64| bytes / 1024 / 1024;
    eprintln!(
        "soak: memory {} MB after the warm-up, {} MB at the end, {} MB at most; {} files, {} threads \
         at most; {most_connections} connections at most; {cpu:.1} s of CPU",
        megabytes(early),
        megabytes(late),
        megabytes(most(|look| look.resident)),
        most(|look| look.files as u64),
        most(|look| look.threads),
    );
    assert!(late <= early + FLAT.max(early / 10), "memory grows: {early} to {late} bytes");
    for (what, value) in [
        ("open files", (|look| look.files as u64) as fn(&Look) -> u64),
        ("threads", |look| look.threads),
    ] {
        let (early, late) = (median(first, value), median(last, value));
        assert!(late <= early + 4, "{what} grow: {early} to {late}");
    }
    assert_eq!(figure(&tally.failed), 0, "scrapes that failed");
    assert!(figure(&tally.blind) > 0, "no scrape met the server down");
    assert_eq!(figure(&tally.frozen), 0, "stale series");
    // One that lasts; no values are asked for here.
    assert_eq!(most_connections, 1, "connections");
    assert!(restarts >= 1 && kills > 0, "{restarts} restarts, {kills} kills");
    let enough = length.as_secs() * 20 / 2;
    assert!(figure(&tally.scrapes) > enough, "{} scrapes", figure(&tally.scrapes));
    assert!(!exporter.log().contains("panicked"));
    fleet.end().await;
}
