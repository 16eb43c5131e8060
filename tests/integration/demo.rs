//! What `scripts/demo` shows: the fleet, watched by the files that are beside it, raises alerts by the
//! rules as they are shipped, each for the reason that its system gives. And the script itself.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::rule::RULES;
use crate::support::files::Files;
use crate::support::process::{Process, make_home};
use crate::support::{
    Exporter, Fleet, PgBouncer, PoolMode, Postgres, Prometheus, eventually, eventually_within,
    require,
};

/// Names the registry beside it.
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/fleet-config.yaml");

/// So long may somebody look at a demonstration before it has shown everything.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the tests are of another profile than the script builds, it builds everything.
const BUILD_AND_RUN: Duration = Duration::from_secs(900);

/// An alert that the fleet raises.
struct Raised {
    alert: &'static str,
    /// Also fires within [`PATIENCE`]; others wait for three minutes.
    fires: bool,
    lock: &'static str,
    finding: &'static str,
    /// Said of the finding in `/api/v1/locks`.
    because: &'static str,
}

const fn pending(
    alert: &'static str,
    lock: &'static str,
    finding: &'static str,
    because: &'static str,
) -> Raised {
    Raised { alert, fires: false, lock, finding, because }
}

const fn firing(
    alert: &'static str,
    lock: &'static str,
    finding: &'static str,
    because: &'static str,
) -> Raised {
    Raised { fires: true, ..pending(alert, lock, finding, because) }
}

const RAISED: [Raised; 17] = [
    // S1: the job runs twice; another does not run.
    firing("AdvisoryLockRepeated", "recalc-reward-points", "repeated", "(pod-c) since"),
    pending("AdvisoryLockMissed", "send-statements", "missed", "last_held_within is 30s"),
    // S3 and S12: names of strangers on one connection.
    pending(
        "AdvisoryLockOnPooledBackend",
        "signup-pooled",
        "pooled_backend",
        "first under the name",
    ),
    pending(
        "AdvisoryLockOnPooledBackend",
        "nightly-billing",
        "pooled_backend",
        "other clients use this connection",
    ),
    // S4: rolled back, and still held.
    firing("AdvisoryLockUnexpectedScope", "settlement", "unexpected_scope", "(settlement) since"),
    // S5: unlocked once too seldom.
    pending("AdvisoryLockHeldTooLong", "ledger-close", "held_too_long", "(ledger-close) since"),
    // S7 and S10: one wait that lasts, and many that do not.
    pending(
        "AdvisoryLockWaitingTooLong",
        "report",
        "waiting_too_long",
        "(report-writer) has waited for",
    ),
    pending(
        "AdvisoryLockWaitingTooLong",
        "inventory-sync",
        "waiting_too_long",
        "(inventory-sync) was seen to keep others waiting for",
    ),
    // S8: a lock per row.
    pending(
        "AdvisoryLockTooManyKeys",
        "unregistered",
        "too_many_keys",
        "(row-worker) was seen holding 300",
    ),
    // S9 and S17: two orders.
    firing(
        "AdvisoryLockOrderInversion",
        "account-one",
        "order_inversion",
        "(transfer-back) was seen",
    ),
    firing(
        "AdvisoryLockOrderInversion",
        "order-rows",
        "order_inversion",
        "(batch-descending) was seen",
    ),
    // S13: a transaction is open while work is done elsewhere.
    pending(
        "AdvisoryLockHolderIdleInTransaction",
        "tenant-reindex",
        "holder_idle_in_transaction",
        "(tenant-worker)",
    ),
    pending("AdvisoryLockStuck", "tenant-reindex", "stuck", "(tenant-worker) has been idle for"),
    // S16: nobody leads.
    firing("AdvisoryLockVacant", "pg-boss-leader", "vacant", "must be held, and was seen free"),
    // S19: a deployment waits, in the end, for a console; a migration, in the end, for itself.
    pending("AdvisoryLockWaitingTooLong", "deployment", "waiting_too_long", "(psql)"),
    pending(
        "AdvisoryLockHiddenCycle",
        "reports-migration",
        "hidden_cycle",
        "(reports-worker), which waits for the key",
    ),
    pending(
        "AdvisoryLockHeldByPreparedTransaction",
        "payout-run",
        "held_by_prepared_transaction",
        "prepared transaction 'payout-2041'",
    ),
];

impl Raised {
    /// Whether the snapshot says of the lock what the alert is about.
    fn is_explained(&self, snapshot: &Value) -> bool {
        let locks = snapshot["locks"].as_array().into_iter().flatten();
        let of_lock = locks.filter(|it| it["lock"].as_str().unwrap_or("unregistered") == self.lock);
        let mut findings = of_lock.flat_map(|it| it["findings"].as_array().into_iter().flatten());
        findings.any(|it| {
            it["finding"] == self.finding
                && it["text"].as_str().is_some_and(|text| text.contains(self.because))
        })
    }

    fn find<'a>(&self, alerts: &'a [Value]) -> Option<&'a Value> {
        alerts
            .iter()
            .find(|it| it["labels"]["alertname"] == self.alert && it["labels"]["lock"] == self.lock)
    }
}

/// What was seen of an alert so far.
#[derive(Clone, Debug, Default)]
struct Seen {
    is_explained: bool,
    is_raised: bool,
    /// Since when it has been pending or firing, and its labels; several if it began anew.
    since: BTreeSet<String>,
}

#[tokio::test]
async fn the_fleet_raises_alerts_for_its_mistakes_and_keeps_them_up_between_two_rounds() {
    require!(Postgres, PgBouncer, Prometheus);
    let postgres = Postgres::builder().setting("max_prepared_transactions", 10).start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 2).await;
    let exporter =
        Exporter::serve(&["--dsn", &postgres.dsn("postgres"), "--config.file", CONFIG]).await;
    let prometheus = Prometheus::start_with_rules(&[exporter.address()], &[RULES], &[]).await;
    // Owners are labels of alerts, and known from the second look on.
    eventually("owners are known", async || {
        let known = prometheus.query("lock:pg_advisory_lock_info:last5m{owner!=''}").await;
        assert!(!known.is_empty());
    })
    .await;
    let fleet = Fleet::start(&postgres, Some(&pooler));

    let mut seen = vec![Seen::default(); RAISED.len()];
    eventually_within(PATIENCE, "every alert is raised, for its reason", async || {
        let snapshot = exporter.snapshot().await;
        let alerts = prometheus.alerts().await;
        for (raised, seen) in RAISED.iter().zip(&mut seen) {
            seen.is_explained |= raised.is_explained(&snapshot);
            if let Some(alert) = raised.find(&alerts) {
                seen.is_raised |= !raised.fires || alert["state"] == "firing";
                seen.since.insert(format!("{} {}", alert["activeAt"], alert["labels"]));
            }
        }
        let unseen = RAISED.iter().zip(&seen).filter(|(_, it)| !(it.is_explained && it.is_raised));
        let unseen: Vec<_> = unseen.map(|(it, seen)| (it.alert, it.lock, seen)).collect();
        assert!(unseen.is_empty(), "{unseen:#?}; raised are {alerts:#?}");
    })
    .await;
    // Rounds take seconds, with pauses between; an alert that begins anew in each would never fire.
    for (raised, seen) in RAISED.iter().zip(&seen) {
        assert_eq!(seen.since.len(), 1, "{} of {}: {seen:?}", raised.alert, raised.lock);
    }
    // Nothing is wrong with who looks.
    let alerts = prometheus.alerts().await;
    let others = alerts.iter().filter(|alert| alert["labels"]["lock"].is_null());
    assert_eq!(others.count(), 0, "{alerts:#?}");
    fleet.end().await;
}

/// All tools that the script would install otherwise: a test installs nothing.
#[tokio::test]
async fn the_script_shows_locks_and_alerts_says_where_to_look_and_leaves_nothing_behind() {
    require!(Postgres, PgBouncer, Prometheus, Promtool, Alertmanager, Amtool, Tmux, Jq);
    let (home, log) = (make_home(), Files::new());
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/demo"));
    command.env("DEMO_SECONDS", "20").env("TMPDIR", home.path());
    // It builds what was built for the tests. What cargo tells a test of its package would be news to a
    // crate that watches these variables, and much would be built again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|it| text.starts_with(it)) {
            command.env_remove(&name);
        }
    }
    let mut script = Process::start(command, &log.path("demo.log"), "TERM");
    let status = eventually_within(BUILD_AND_RUN, "the script ends", async || {
        script.exit_status().expect("it has ended")
    })
    .await;
    assert!(status.success(), "{status}");

    let shown = script.log();
    let (_, summary) = shown.split_once("advisory locks seen over the run").expect("a summary");
    let rows: Vec<Vec<&str>> = summary
        .lines()
        .map(|line| line.split([' ', ',']).filter(|it| !it.is_empty()).collect())
        .collect();
    for (begin, piece) in [
        (&["pg-boss-leader", "-663048221", "app", "boss-a"][..], "exclusive"),
        (&["nightly-billing", "4242", "app"], "pooled_backend"),
        (&["AdvisoryLockOrderInversion", "pending", "warning"], "account-one"),
        (&["AdvisoryLockStuck", "pending", "critical"], "tenant-reindex"),
        (&["AdvisoryLockWaitingTooLong", "pending", "warning"], "deployment"),
        (&["AdvisoryLockTooManyKeys", "pending", "warning"], "1000000"),
    ] {
        let is_meant = |row: &&Vec<&str>| row.starts_with(begin) && row.contains(&piece);
        assert!(rows.iter().any(|row| is_meant(&row)), "{begin:?} {piece}\n{shown}");
    }
    for place in ["status page   http://127.0.0.1:", "alerts        http://127.0.0.1:"] {
        assert!(shown.contains(place), "{place}\n{shown}");
    }
    let left: Vec<_> = fs::read_dir(home.path()).expect("it is ours").collect();
    assert!(left.is_empty(), "{left:?}");
}
