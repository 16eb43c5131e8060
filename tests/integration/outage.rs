//! What could make the exporter an outage, or be taken for one: a lock table that is full, answers of
//! any size, a network that swallows what it is given, clocks that jump, disks that are full, and
//! something else at the server's port. Each time: what is served meanwhile, how much memory and how
//! many connections it costs, and that it is over when it is over.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::clock::Clock;
use crate::support::exporter::{now, unix_seconds};
use crate::support::files::Files;
use crate::support::network::{Conduct, Network};
use crate::support::process::Frozen;
use crate::support::{
    Exporter, Postgres, Scrape, eventually, eventually_within, exporter, locks, require,
};

/// In kilobytes.
fn resident(exporter: &Exporter) -> u64 {
    status(exporter, "VmRSS:")
}

fn threads(exporter: &Exporter) -> u64 {
    status(exporter, "Threads:")
}

fn status(exporter: &Exporter, key: &str) -> u64 {
    let status =
        fs::read_to_string(format!("/proc/{}/status", exporter.id())).expect("it is alive");
    let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("it is told");
    line.split_whitespace().next().expect("a number").parse().expect("a number")
}

/// Down, told so, and nothing frozen.
fn assert_down(scrape: &Scrape, reason: &str) {
    scrape.sample("pg_advisory_up").is(0.0);
    scrape.sample("pg_advisory_lock_rows").absent();
    scrape.sample("pg_advisory_lock_holders").absent();
    let failed = scrape.sample("pg_advisory_poll_failures_total").with("reason", reason);
    assert!(failed.value() > 0.0, "{reason}");
}

fn assert_fresh(scrape: &Scrape) {
    scrape.sample("pg_advisory_up").is(1.0);
    let last = scrape.sample("pg_advisory_last_poll_timestamp_seconds").value();
    let age = unix_seconds(now()) - last;
    assert!((-1.0..10.0).contains(&age), "the last poll was {age} s ago");
}

/// Time for polls that take long in a build without optimization.
async fn watch_patiently(postgres: &Postgres) -> Exporter {
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .argument("--poll.timeout")
        .argument("30s")
        .start()
        .await;
    exporter.scrape_fresh().await;
    exporter
}

#[tokio::test]
async fn a_lock_table_that_fills_is_told_before_and_read_after_it_is_full() {
    require!(Postgres);
    let postgres = Postgres::builder()
        .setting("max_connections", 100)
        .setting("max_locks_per_transaction", 64)
        .setting("max_prepared_transactions", 10)
        .start()
        .await;
    let exporter = watch_patiently(&postgres).await;
    let before = resident(&exporter);
    let import = postgres.session("bulk-import").await;
    import
        .run("BEGIN; SELECT count(pg_advisory_xact_lock(71, g)) FROM generate_series(1, 12000) g")
        .await;
    let scrape = eventually_within(Duration::from_secs(60), "all of them are seen", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_lock_rows").with("granted", "true").is(12_000.0);
        // Counted at every 15th poll.
        assert!(scrape.sample("pg_advisory_lock_table_entries").value() >= 12_000.0);
        scrape
    })
    .await;
    assert_fresh(&scrape);
    let capacity = scrape.sample("pg_advisory_lock_table_capacity").value();
    assert!((capacity - 7040.0).abs() < 0.1, "{capacity}");
    let ratio = scrape.sample("pg_advisory_lock_table_entries").value() / capacity;
    assert!((1.7..1.8).contains(&ratio), "{ratio}");
    scrape.sample("pg_advisory_session_keys_max").is(12_000.0);
    scrape
        .sample("pg_advisory_sessions")
        .with("application_name", "bulk-import")
        .with("side", "holder")
        .is(1.0);
    let findings = scrape.sample("pg_advisory_lock_findings").with("finding", "too_many_keys");
    assert!(findings.values().iter().sum::<f64>() > 0.0);

    // Until nobody gets a lock any more, of whatever kind.
    let greedy = postgres.session("greedy").await;
    let refused = greedy
        .try_run("SELECT count(pg_advisory_lock(72, g)) FROM generate_series(1, 100000) g")
        .await
        .expect_err("the table has an end");
    let refused = refused.as_db_error().map(|error| error.message().to_owned());
    assert_eq!(refused.as_deref(), Some("out of shared memory"));
    let polls = scrape.sample("pg_advisory_polls_total").value();
    eventually_within(Duration::from_secs(60), "polls go on", async || {
        let scrape = exporter.scrape().await;
        assert_fresh(&scrape);
        assert!(scrape.sample("pg_advisory_polls_total").value() > polls + 2.0);
    })
    .await;
    assert!(
        resident(&exporter) < before + 200_000,
        "{} kB, {before} kB before",
        resident(&exporter)
    );

    import.run("ROLLBACK").await;
    drop(greedy);
    eventually_within(Duration::from_secs(60), "it is over", async || {
        exporter.scrape().await.sample("pg_advisory_lock_rows").with("granted", "true").is(0.0);
    })
    .await;
}

#[tokio::test]
async fn two_hundred_thousand_rows_cost_bounded_memory_and_stretch_the_interval() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("max_locks_per_transaction", 3000).start().await;
    let files = Files::new();
    let config = format!(
        "poll: {{ interval: 100ms, timeout: 1m, max_share: 0.02 }}\nservers: [{{ dsn: '{}' }}]\n",
        postgres.dsn("postgres")
    );
    let exporter = Exporter::serve(&["--config.file", &files.write("locks.yaml", &config)]).await;
    exporter.scrape_fresh().await;
    let before = resident(&exporter);
    let mut holders = Vec::new();
    for number in 0..20 {
        let session = postgres.session(&format!("holder-{number}")).await;
        session
            .run(&format!(
                "SELECT count(pg_advisory_lock({number}, g)) FROM generate_series(1, 10000) g"
            ))
            .await;
        holders.push(session);
    }
    let long = Duration::from_secs(180);
    let scrape = eventually_within(long, "all of them are seen", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_lock_rows").with("granted", "true").is(200_000.0);
        // The share is of the time for which the table was copied, not of the whole poll.
        let interval = scrape.sample("pg_advisory_poll_interval_seconds").value();
        assert!(interval > scrape.sample("pg_advisory_poll_interval_configured_seconds").value());
        scrape
    })
    .await;
    scrape.sample("pg_advisory_up").is(1.0);
    assert!(scrape.samples().len() < 5000, "{} samples", scrape.samples().len());
    let grown = resident(&exporter).saturating_sub(before);
    assert!(grown < 900_000, "{grown} kB for 200,000 rows");
    drop(holders);
    eventually_within(long, "it is over, and quick again", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_lock_rows").with("granted", "true").is(0.0);
        scrape.sample("pg_advisory_poll_interval_seconds").is(0.1);
    })
    .await;
}

#[tokio::test]
async fn a_lock_table_that_is_never_read_in_time_gets_no_more_than_its_share_of_polls() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("max_locks_per_transaction", 2000).start().await;
    let dsn = postgres.dsn("postgres");
    let exporter =
        Exporter::serve(&["--dsn", &dsn, "--poll.interval", "50ms", "--poll.timeout", "20ms"])
            .await;
    eventually("a small lock table is read in time", async || {
        exporter.scrape().await.sample("pg_advisory_up").is(1.0);
    })
    .await;
    let holder = postgres.session("greedy").await;
    holder.run("SELECT count(pg_advisory_lock(n)) FROM generate_series(1, 150000) AS n").await;
    eventually("polls that fail are spread as those that succeed", async || {
        let scrape = exporter.scrape().await;
        assert_down(&scrape, "timeout");
        // By default 2 %, and each keeps the server busy for as long as it may.
        scrape.sample("pg_advisory_poll_interval_seconds").is(1.0);
        scrape.sample("pg_advisory_poll_interval_configured_seconds").is(0.05);
    })
    .await;

    holder.run("SELECT pg_advisory_unlock_all()").await;
    eventually("polls are quick again", async || {
        let scrape = exporter.scrape().await;
        assert_fresh(&scrape);
        assert!(scrape.sample("pg_advisory_poll_interval_seconds").value() < 1.0);
    })
    .await;
}

/// Of little patience, so that what hangs is soon noticed.
async fn watch_through(network: &Network) -> Exporter {
    let exporter = Exporter::watching(&network.dsn("postgres"))
        .argument("--poll.timeout")
        .argument("500ms")
        .start()
        .await;
    exporter.scrape_fresh().await;
    exporter
}

#[tokio::test]
async fn a_network_that_swallows_everything_is_noticed_and_left_when_it_works_again() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    let network = Network::start(&postgres).await;
    let exporter = watch_through(&network).await;
    let before = resident(&exporter);
    network.behave(Conduct::Swallow);
    eventually("the poll is given up, and so are connects", async || {
        let scrape = exporter.scrape().await;
        assert_down(&scrape, "timeout");
        assert_down(&scrape, "unreachable");
    })
    .await;
    // The one that is being made, and one that says that nobody waits any more.
    assert!(network.open() <= 2);
    assert!(resident(&exporter) < before + 20_000);
    network.behave(Conduct::Pass);
    // What was swallowed stays so: the connect that hangs ends when its socket is given up.
    eventually_within(Duration::from_secs(150), "it is back", async || {
        let scrape = exporter.scrape().await;
        assert_fresh(&scrape);
        scrape.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);
    })
    .await;
}

#[tokio::test]
async fn a_network_that_drips_is_an_answer_too_late_over_one_connection() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    let network = Network::start(&postgres).await;
    let exporter = watch_through(&network).await;
    let before = resident(&exporter);
    network.behave(Conduct::Drip);
    eventually("the answer is given up", async || {
        assert_down(&exporter.scrape().await, "timeout");
        // The one that is being made, the one that was left, and what says that nobody waits.
        assert!(network.open() <= 3, "{} connections", network.open());
    })
    .await;
    assert!(resident(&exporter) < before + 20_000);
    network.behave(Conduct::Pass);
    eventually_within(Duration::from_secs(60), "it is back", async || {
        let scrape = exporter.scrape().await;
        assert_fresh(&scrape);
        scrape.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);
        assert_eq!(network.open(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_of_an_answer_is_told_once_and_made_again() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    let network = Network::start(&postgres).await;
    let exporter = watch_through(&network).await;
    network.behave(Conduct::BreakOff);
    eventually("every answer is half of one", async || {
        let scrape = exporter.scrape().await;
        assert_down(&scrape, "connection_lost");
        let failures = scrape.sample("pg_advisory_poll_failures_total").values();
        assert!(failures.iter().sum::<f64>() >= 4.0, "{failures:?}");
        assert!(network.open() <= 1, "{} connections", network.open());
    })
    .await;
    network.behave(Conduct::Pass);
    eventually_within(Duration::from_secs(60), "it is back", async || {
        let scrape = exporter.scrape().await;
        assert_fresh(&scrape);
        scrape.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);
    })
    .await;
    assert_eq!(exporter.logged(&["level=warn"]).len(), 1, "{}", exporter.log());
}

#[tokio::test]
async fn another_cluster_at_the_same_address_has_none_of_the_holds_of_the_first() {
    require!(Postgres);
    let first = Postgres::start().await;
    let second = Postgres::builder().another_cluster().start().await;
    let _holders = (first.holds("pod-a", "42").await, second.holds("pod-b", "43").await);
    let network = Network::start(&first).await;
    let exporter = watch_through(&network).await;
    exporter.scrape().await.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);

    network.lead_to(&second);
    network.behave(Conduct::BreakOff);
    eventually("the first is gone", async || {
        exporter.scrape().await.sample("pg_advisory_up").is(0.0);
    })
    .await;
    network.behave(Conduct::Pass);
    let scrape = eventually_within(Duration::from_secs(60), "the second is polled", async || {
        let scrape = exporter.scrape().await;
        assert_fresh(&scrape);
        let told = exporter.logged(&["level=warn", "another cluster answers under this name"]);
        assert_eq!(told.len(), 1);
        scrape
    })
    .await;
    scrape.sample("pg_advisory_lock_holders").with("key", "42").absent();
    let holders = scrape.sample("pg_advisory_lock_holders").with("key", "43");
    holders.with("application_name", "pod-b").is(1.0);
    // A counter goes on, whatever it counted.
    scrape.sample("pg_advisory_lock_acquisitions_observed_total").with("key", "42").present();
}

#[tokio::test]
async fn a_server_that_is_stopped_during_the_first_connect_is_waited_for_over_one_connection() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let observer = postgres.session_in("postgres", "observer").await;
    let _holder = postgres.holds("pod-a", "42").await;
    let network = Network::start(&postgres).await;
    let frozen = Frozen::freeze(&[postgres.process_id()]);
    let exporter = Exporter::watching(&network.dsn("postgres")).start().await;
    eventually("the time of three connects went by", async || {
        let scrape = exporter.scrape().await;
        assert_down(&scrape, "unreachable");
        let failures = scrape.sample("pg_advisory_poll_failures_total");
        assert!(failures.with("reason", "unreachable").value() >= 3.0);
    })
    .await;
    assert_eq!(network.accepted(), 1);
    drop(frozen);
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);
    let ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'locks'";
    assert_eq!(observer.value(ours).await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_host_whose_name_nobody_knows_is_told_once_and_costs_no_thread_more_each_time() {
    let exporter =
        Exporter::watching("host=nobody-is-here.invalid user=u connect_timeout=2").start().await;
    let tries = async |least: f64| {
        eventually_within(Duration::from_secs(60), "it has tried", async || {
            let scrape = exporter.scrape().await;
            assert_down(&scrape, "unreachable");
            assert!(scrape.sample("pg_advisory_polls_total").value() >= least);
        })
        .await;
        (resident(&exporter), threads(&exporter))
    };
    let (memory, before) = tries(2.0).await;
    let (memory_after, after) = tries(6.0).await;
    // A name is asked for on a thread of its own, of which there is one at a time.
    assert!(after <= before + 1, "{before} threads, then {after}");
    assert!(memory_after < memory + 20_000, "{memory} kB, then {memory_after} kB");
    let told = exporter.logged(&["level=warn", "nobody-is-here.invalid"]);
    assert_eq!(told.len(), 1, "{}", exporter.log());
}

#[tokio::test]
async fn something_else_at_the_port_is_told_and_asked_gently() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it listens").port();
    let asked = Arc::<AtomicUsize>::default();
    let count = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let number = count.fetch_add(1, Ordering::Relaxed);
            let _ = client.read(&mut [0; 64]).await;
            let answers: [&[u8]; 4] =
                [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"S", &[0xff; 4096]];
            let _ = client.write_all(answers[number % answers.len()]).await;
        }
    });
    let exporter =
        Exporter::watching(&format!("host=127.0.0.1 port={port} user=u connect_timeout=2"))
            .start()
            .await;
    let before = resident(&exporter);
    let scrape =
        eventually_within(Duration::from_secs(60), "it has tried several times", async || {
            let scrape = exporter.scrape().await;
            scrape.sample("pg_advisory_up").is(0.0);
            assert!(scrape.sample("pg_advisory_polls_total").value() >= 6.0);
            scrape
        })
        .await;
    scrape.sample("pg_advisory_lock_rows").absent();
    assert!(resident(&exporter) < before + 20_000);
    // Each try may be two connections: encrypted, and not.
    let tries = scrape.sample("pg_advisory_polls_total").value();
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let connections = asked.load(Ordering::Relaxed) as f64;
    assert!(connections <= 2.0 * tries + 2.0, "{connections} connections in {tries} tries");
}

#[tokio::test]
async fn a_full_disk_costs_the_state_file_and_nothing_else() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let folder = tempfile::tempdir().expect("a folder can be made");
    // A disk of 64 kB, which only root can make; the size of what is tested is the same elsewhere.
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(folder.path())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        let in_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
        assert!(!in_ci, "CI can mount a small file system");
        return;
    }
    let _unmount = Unmount(folder.path());
    let fill = || fs::write(folder.path().join("ballast"), vec![0; 128 * 1024]);
    assert!(fill().is_err(), "the disk is full");
    let state = folder.path().join("state.json");
    let registry = "locks: [{ name: cron, key: 42, databases: [app], last_held_within: 1h }]\n";
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .registry(registry)
        .argument("--state.file")
        .argument(&state.to_string_lossy())
        .start()
        .await;
    exporter.scrape_fresh().await;
    eventually_within(Duration::from_secs(60), "it is told once", async || {
        assert_eq!(exporter.logged(&["level=warn", "cannot write the state file"]).len(), 1);
    })
    .await;
    assert_fresh(&exporter.scrape_fresh().await);
    fs::remove_file(folder.path().join("ballast")).expect("it is ours");
    let _holder = postgres.holds("cron-a", "42").await;
    eventually_within(Duration::from_secs(60), "it is written when there is room", async || {
        assert_eq!(exporter.logged(&["writing the state file again"]).len(), 1);
        assert!(fs::read_to_string(&state).expect("it is there").contains("cron"));
    })
    .await;
}

/// A file system that goes with the test.
struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// Until the picture is of the time after a jump.
async fn offset(exporter: &Exporter, expected: f64) -> Scrape {
    eventually_within(Duration::from_secs(60), "the clock is seen to have jumped", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_up").is(1.0);
        let offset = scrape.sample("pg_advisory_clock_offset_seconds").value();
        assert!((offset - expected).abs() < 30.0, "{offset} instead of {expected}");
        scrape.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);
        scrape
    })
    .await
}

/// What is known of the ages of the only holder and the only waiter is no nonsense.
async fn assert_ages(exporter: &Exporter, case: &str) {
    let snapshot = exporter.snapshot().await;
    let lock = &snapshot["locks"][0];
    for (who, age) in [("holders", "seen_for_seconds"), ("waiters", "waited_seconds")] {
        let age = lock[who][0][age].as_f64().unwrap_or_else(|| panic!("{case}: {lock}"));
        assert!((0.0..600.0).contains(&age), "{who}: {age} s after {case}");
    }
}

#[tokio::test]
async fn a_clock_that_jumps_makes_no_age_negative_and_no_server_down() {
    require!(Postgres, Faketime);
    let postgres = Postgres::start().await;
    let holder = postgres.holds("pod-a", "42").await;
    let _waiter = postgres.waits("pod-b", "42").await;
    let clock = Clock::new();
    let serve = exporter::serve(&["--dsn", &postgres.dsn("postgres"), "--poll.interval", "100ms"]);
    let mut command = locks(&[]);
    command.args(serve.get_args());
    clock.lend_to(&mut command);
    let exporter = Exporter::start(command).await;
    let polls = offset(&exporter, 0.0).await.sample("pg_advisory_polls_total").value();
    for (jump, expected) in [(3600, -3600.0), (-7200, 7200.0), (0, 0.0)] {
        clock.set(jump);
        let scrape = offset(&exporter, expected).await;
        assert!(scrape.sample("pg_advisory_polls_total").value() > polls);
        assert_ages(&exporter, &format!("a jump to {jump}")).await;
    }
    drop(holder);
    eventually("the next one holds it", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_lock_holders").with("application_name", "pod-b").is(1.0);
    })
    .await;
}

#[tokio::test]
async fn a_server_whose_clock_jumps_is_polled_on_and_what_began_then_has_an_age() {
    require!(Postgres, Faketime);
    let clock = Clock::new();
    let postgres = Postgres::builder().clock(&clock).start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    let _waiter = postgres.waits("pod-b", "42").await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    offset(&exporter, 0.0).await;
    assert_ages(&exporter, "no jump").await;
    // Who waited before a jump has waited for longer by the server's own account; what was set back
    // began just now. What begins after it has its own age.
    for (jump, key) in [(-7200, "43"), (3600, "44")] {
        clock.set(jump);
        #[expect(clippy::cast_precision_loss, reason = "a few hours")]
        offset(&exporter, jump as f64).await;
        let _holder = postgres.holds("pod-c", key).await;
        let locks = eventually("a new hold is seen", async || {
            let snapshot = exporter.snapshot().await;
            let locks = snapshot["locks"].as_array().expect("a list").clone();
            let keys: Vec<_> = locks.iter().map(|lock| lock["key"]["text"].clone()).collect();
            assert_eq!(keys, ["42", key]);
            locks
        })
        .await;
        for (lock, limit) in locks.iter().zip([20_000.0, 60.0]) {
            let held = lock["holders"][0]["seen_for_seconds"].as_f64().expect("an age");
            assert!((0.0..limit).contains(&held), "after a jump to {jump}: {lock}");
        }
        let waited = locks[0]["waiters"][0]["waited_seconds"].as_f64().expect("an age");
        assert!((0.0..20_000.0).contains(&waited), "after a jump to {jump}: {waited} s");
    }
    assert_eq!(exporter.logged(&["level=warn"]), [""; 0]);
}
