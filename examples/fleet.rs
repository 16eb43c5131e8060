//! A fleet of small applications that take advisory locks as real ones do, mistakes included. The
//! demonstration runs it beside the exporter, and the tests look for every mistake in `pg_locks`.
//!
//! ```text
//! cargo run --example fleet -- --dsn postgresql://postgres@127.0.0.1/postgres \
//!     --pooler postgresql://postgres@127.0.0.1:6432/app
//! ```
//!
//! One function per system, numbered S1 and on; each plays one round over connections of its own,
//! and is played again until the fleet ends. A round takes some seconds, or some minutes where the
//! point is how long something lasts. All that stays is the databases `app` and `app2`: the table
//! that migrations alter and the transaction that somebody forgets prepared are taken away again.
//! Names for most of the keys are in `fleet-registry.yaml`; the others are unregistered on purpose.

use std::pin::pin;
use std::time::Duration;

use clap::Parser;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

/// Every key of the fleet, as its owner writes it in SQL.
mod key {
    /// S1. 6110350855857795459.
    pub const CRON: &str = "hashtextextended('cron:recalc-reward-points', 0)";
    /// S1. A job that does not run.
    pub const STATEMENTS: &str = "hashtextextended('cron:send-statements', 0)";
    /// S2. Unregistered: addresses of people do not belong into a registry.
    pub const SIGNUP: &str = "hashtextextended('signup:' || lower('An@Example.com'), 0)";
    /// S3.
    pub const POOLED_SIGNUP: &str = "hashtextextended('signup:pooled', 0)";
    /// S4. A 32-bit hash, widened with its sign.
    pub const SETTLEMENT: &str = "hashtext('settlement:eu')";
    /// S5.
    pub const LEDGER: &str = "5005";
    /// S6. Three keys that look alike, of which two are one number in two databases.
    pub const ONE: &str = "1";
    /// S6. Not the bigint 1.
    pub const ZERO_AND_ONE: &str = "0, 1";
    /// S6. Taken in `app` and in `app2`; registered for `app` alone.
    pub const FORTY_TWO: &str = "42";
    /// S6. Unregistered: the ends of each range.
    pub const EXTREMES: [&str; 5] = [
        "'-9223372036854775808'::bigint",
        "9223372036854775807",
        "-1",
        "'-2147483648'::integer, 2147483647",
        "-1, -1",
    ];
    /// S7.
    pub const REPORT: &str = "7007";
    /// S8. Unregistered: one key per row of a table.
    pub const ROWS: std::ops::Range<u32> = 1_000_000..1_000_300;
    /// S9.
    pub const ACCOUNTS: [&str; 2] = ["9001", "9002"];
    /// S10.
    pub const INVENTORY: &str = "1010";
    /// S12.
    pub const BILLING: &str = "4242";
    /// S13. The feature is 7; the second half is the tenant.
    pub const TENANT_REINDEX: &str = "7, 99";
    /// S13. Unregistered: two features that both lock the tenant's bare number.
    pub const TENANT: &str = "99";
    /// S15. Tenant 5 and resource 42 packed into one number, 21474836522.
    pub const TENANT_RESOURCE: &str = "(5::bigint << 32) | 42";
    /// S16. Whoever holds it maintains the queues.
    pub const LEADER: &str = "hashtext('boss-leader')";
    /// S16. As pg-boss makes it for its schema, so that a preset names it.
    pub const BOSS_SCHEMA: &str = "('x' || encode(sha224((current_database() || '.pgboss.pgboss')::bytea), 'hex'))\
         ::bit(64)::bigint";
    /// S17. Rows that a batch locks one by one.
    pub const BATCH: [&str; 3] = ["1700001", "1700002", "1700003"];
    /// S19. Whoever holds it migrates the schema.
    pub const MIGRATION: &str = "1919";
    /// S19. Whoever holds it rolls out a release.
    pub const DEPLOYMENT: &str = "hashtextextended('deploy:shop', 0)";
    /// S19. The same as the migration's, of another program, in `app2`.
    pub const REPORTS_MIGRATION: &str = "hashtextextended('migrate:reports', 0)";
    /// Held by a transaction that is prepared.
    pub const PAYOUT: &str = "hashtextextended('payout:run', 0)";
}

/// The name of the transaction that is prepared and forgotten.
const FORGOTTEN: &str = "payout-2041";

/// Plays applications that take advisory locks, against a PostgreSQL server.
#[derive(Clone, Debug, Parser)]
pub struct Options {
    /// The server, as a role that may create databases
    #[arg(long, value_name = "DSN", env = "DATA_SOURCE_NAME")]
    pub dsn: String,
    /// A pooler in transaction mode before the same server; without it two systems stay at home
    #[arg(long, value_name = "DSN")]
    pub pooler: Option<String>,
    /// End after so many seconds instead of at an interrupt
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let seconds = options.seconds;
    let end = async move {
        let mut terminated =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let time_is_up = async {
            match seconds {
                Some(seconds) => sleep(Duration::from_secs(seconds)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted,
            _ = terminated.recv() => Ok(()),
            () = time_is_up => Ok(()),
        }
    };
    run(options, end).await
}

/// Plays every system until `end`, then takes back what would stay.
pub async fn run(
    options: Options,
    end: impl Future<Output = std::io::Result<()>>,
) -> anyhow::Result<()> {
    let servers = Servers {
        direct: options.dsn.parse()?,
        pooler: options.pooler.map(|dsn| dsn.parse()).transpose()?,
    };
    let mut end = pin!(end);
    tokio::select! {
        ended = &mut end => return Ok(ended?),
        () = create_databases(&servers) => {}
    }

    // Dropped at the end of this function, and every connection with it.
    let mut systems = JoinSet::new();
    let pooler = servers.pooler.is_some();
    report(&format!("the fleet is at work{}", if pooler { "" } else { ", without a pooler" }));
    macro_rules! play {
        ($($system:ident),+ $(,)?) => {
            $({
                let servers = servers.clone();
                systems.spawn(async move {
                    loop {
                        settle(stringify!($system), $system(&servers).await).await;
                    }
                });
            })+
        };
    }
    play!(s1_cron, s1_statements, s2_signup, s4_settlement, s5_ledger, s6_alike, s6_extremes);
    play!(s7_report, s8_rows, s8_limit, s9_transfers, s10_inventory, s13_tenant, s13_bare_tenant);
    play!(s15_packed, s16_leader, s17_batches, s19_migration, s19_index, prepared_payout);
    if pooler {
        play!(s3_pooled_signup, s12_billing);
    }
    end.await?;
    systems.shutdown().await;
    settle("the way home", clean_up(&servers).await).await;
    report("the fleet went home");
    Ok(())
}

/// S1: three pods run one cron job, each on a connection of its own. One wins and works; the
/// others are told so and leave, and of them no trace stays. In one night of three the clock of a
/// pod is slow: it finds the lock free again, and the job runs twice.
async fn s1_cron(servers: &Servers) -> Result {
    let pods = ["pod-a", "pod-b", "pod-c"];
    let lock = format!("SELECT pg_try_advisory_lock({})", key::CRON);
    // Another pod comes first each night.
    for first in 0..pods.len() {
        let mut winner = None;
        for turn in 0..pods.len() {
            let pod = servers.app(pods[(first + turn) % pods.len()]).await?;
            if pod.is_true(&lock).await? {
                winner = Some(pod);
            }
        }
        seconds(5).await;
        if let Some(pod) = winner {
            pod.unlock(key::CRON).await?;
        }
        seconds(1).await;
        if first == 0 {
            let late = servers.app("pod-c").await?;
            if late.is_true(&lock).await? {
                seconds(5).await;
                late.unlock(key::CRON).await?;
            }
        }
        seconds(12).await;
    }
    Ok(())
}

/// S1: a job that ran once, and then for many nights not at all: its pod is up, its clock is not.
async fn s1_statements(servers: &Servers) -> Result {
    let pod = servers.app("pod-b").await?;
    seconds(5).await;
    if pod.is_true(&format!("SELECT pg_try_advisory_lock({})", key::STATEMENTS)).await? {
        seconds(5).await;
        pod.unlock(key::STATEMENTS).await?;
    }
    pod.stay(300).await
}

/// S2: one person signs up twice at once. The second request waits for the first, and where it
/// reads from an old snapshot it inserts twice all the same.
async fn s2_signup(servers: &Servers) -> Result {
    let first = servers.app("signup-api").await?;
    let second = servers.app("signup-api").await?;
    let lock = format!("SELECT pg_advisory_xact_lock({})", key::SIGNUP);
    first.run(&format!("BEGIN; {lock}")).await?;
    let first_works = async {
        seconds(4).await;
        first.run("COMMIT").await
    };
    let second_waits = async {
        second.run(&format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {lock}")).await?;
        seconds(1).await;
        second.run("COMMIT").await
    };
    tokio::try_join!(first_works, second_waits)?;
    seconds(2).await;
    Ok(())
}

/// S3: a session-level lock through a pooler in transaction mode. The lock stays on one server
/// connection while the unlock, on another, returns false; then another pod is given the same
/// connection and is told that the lock is its own. All of them leave; the lock stays.
async fn s3_pooled_signup(servers: &Servers) -> Result {
    let pod_a = servers.pooled("pod-a").await?;
    let lock = format!("SELECT pg_backend_pid(), pg_advisory_lock({})", key::POOLED_SIGNUP);
    let backend = pod_a.value(&lock).await?.unwrap_or_default();
    seconds(3).await;

    let traffic = occupy(servers, &backend).await?;
    // Where the pool has one connection only, the unlock waits behind the traffic.
    let _ = timeout(Duration::from_secs(2), pod_a.unlock(key::POOLED_SIGNUP)).await;
    traffic.run("COMMIT").await?;
    drop((pod_a, traffic));

    let pod_c = servers.pooled("pod-c").await?;
    pod_c.is_true(&format!("SELECT pg_try_advisory_lock({})", key::POOLED_SIGNUP)).await?;
    drop(pod_c);
    // Restarting the pods would not help. The one who comes without a pooler waits.
    let direct = servers.app("pod-d").await?;
    let lock = format!("SELECT pg_advisory_lock({})", key::POOLED_SIGNUP);
    let waiting = timeout(Duration::from_secs(8), direct.run(&lock));
    if waiting.await.is_err() {
        direct.cancel().await?;
    }
    servers.app("operator").await?.end_holders(key::POOLED_SIGNUP).await
}

/// S4: a session-level lock taken inside a transaction that is rolled back. The lock outlives the
/// transaction, which its owner does not expect.
async fn s4_settlement(servers: &Servers) -> Result {
    let settlement = servers.app("settlement").await?;
    settlement.run(&format!("BEGIN; SELECT pg_advisory_lock({})", key::SETTLEMENT)).await?;
    seconds(2).await;
    settlement.run("ROLLBACK").await?;
    seconds(8).await;
    Ok(())
}

/// S5: one session locks three times and unlocks twice. It goes on to hold the lock for as long as it
/// lives, and how often is nowhere to be seen.
async fn s5_ledger(servers: &Servers) -> Result {
    let ledger = servers.app("ledger-close").await?;
    for _ in 0..3 {
        ledger.run(&format!("SELECT pg_advisory_lock({})", key::LEDGER)).await?;
    }
    for _ in 0..2 {
        ledger.unlock(key::LEDGER).await?;
    }
    ledger.stay(300).await?;
    drop(ledger);
    seconds(2).await;
    Ok(())
}

/// S6: the bigint 1, the pair (0, 1), and 42 in two databases. People take them for conflicts; all
/// four are held at once.
async fn s6_alike(servers: &Servers) -> Result {
    let holds = [
        ("app", "catalogue", key::ONE),
        ("app", "inventory-pairs", key::ZERO_AND_ONE),
        ("app", "orders", key::FORTY_TWO),
        ("app2", "orders", key::FORTY_TWO),
    ];
    let mut holders = Vec::new();
    for (database, application, key) in holds {
        let holder = App::connect(&servers.direct, database, application).await?;
        holder.run(&format!("SELECT pg_advisory_lock({key})")).await?;
        holders.push(holder);
    }
    seconds(15).await;
    Ok(())
}

/// S6: keys at the ends of their ranges, which a careless decoder shows as other keys.
async fn s6_extremes(servers: &Servers) -> Result {
    let holder = servers.app("edge-keys").await?;
    for key in key::EXTREMES {
        holder.run(&format!("SELECT pg_advisory_lock({key})")).await?;
    }
    seconds(15).await;
    Ok(())
}

/// S7: a reader that takes long, a writer that waits for it, and a reader that waits for the
/// writer, although the two readers would go together.
async fn s7_report(servers: &Servers) -> Result {
    let old_reader = servers.app("report-reader").await?;
    let writer = servers.app("report-writer").await?;
    let late_reader = servers.app("report-reader-late").await?;
    let read = format!("SELECT pg_advisory_lock_shared({})", key::REPORT);
    old_reader.run(&read).await?;
    let old_reader_works = async {
        old_reader.run("SELECT pg_sleep(6)").await?;
        old_reader.run("SELECT pg_advisory_unlock_all()").await
    };
    let writer_waits = async {
        writer.run(&format!("SELECT pg_advisory_lock({})", key::REPORT)).await?;
        seconds(1).await;
        writer.run("SELECT pg_advisory_unlock_all()").await
    };
    let late_reader_waits = async {
        seconds(1).await;
        late_reader.run(&read).await?;
        seconds(1).await;
        late_reader.run("SELECT pg_advisory_unlock_all()").await
    };
    tokio::try_join!(old_reader_works, writer_waits, late_reader_waits)?;
    seconds(2).await;
    Ok(())
}

/// S8: a lock per row, all in one transaction. The lock table is shared by everyone, and full for
/// everyone.
async fn s8_rows(servers: &Servers) -> Result {
    let worker = servers.app("row-worker").await?;
    let (first, last) = (key::ROWS.start, key::ROWS.end - 1);
    worker
        .run(&format!(
            "BEGIN; SELECT pg_advisory_xact_lock(id) FROM generate_series({first}, {last}) id"
        ))
        .await?;
    seconds(6).await;
    worker.run("COMMIT").await?;
    seconds(3).await;
    Ok(())
}

/// S8: a queue that fetches one job and locks them all, because the lock is taken before ORDER BY
/// and LIMIT choose.
async fn s8_limit(servers: &Servers) -> Result {
    let worker = servers.app("queue-worker").await?;
    let (first, last) = (key::ROWS.end, key::ROWS.end + 99);
    let fetch = format!(
        "BEGIN; SELECT id FROM generate_series({first}, {last}) id \
         WHERE pg_try_advisory_xact_lock(id) ORDER BY id DESC LIMIT 1"
    );
    worker.run(&fetch).await?;
    seconds(5).await;
    worker.run("COMMIT").await?;
    seconds(3).await;
    Ok(())
}

/// S9: two transfers lock the same two accounts in opposite order. Each waits for the other until
/// the server's deadlock detector, or a timeout, ends one of them.
async fn s9_transfers(servers: &Servers) -> Result {
    let [one, other] = key::ACCOUNTS;
    let there = lock_in_order(servers, "transfer-there", [one, other]);
    let back = lock_in_order(servers, "transfer-back", [other, one]);
    of_whom_one_fails(there, back).await?;
    seconds(2).await;
    Ok(())
}

/// What fails by design is no news; what else goes wrong is told.
async fn of_whom_one_fails(
    one: impl Future<Output = Result>,
    other: impl Future<Output = Result>,
) -> Result {
    let (one, other) = tokio::join!(one, other);
    for outcome in [one, other] {
        match outcome {
            Err(error) if is_expected(&error) => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Locks one key a second, in one transaction.
async fn lock_in_order<'a>(
    servers: &Servers,
    application: &str,
    keys: impl IntoIterator<Item = &'a str>,
) -> Result {
    let app = servers.app(application).await?;
    // Only a superuser may ask the detector for patience; others are looked at for a second.
    let _ = app.run("SET deadlock_timeout = '4s'").await;
    app.run("SET lock_timeout = '8s'").await?;
    app.run("BEGIN").await?;
    for key in keys {
        app.run(&format!("SELECT pg_advisory_xact_lock({key})")).await?;
        seconds(1).await;
    }
    app.run("COMMIT").await
}

/// S10: waiters that give up after two seconds and come back. No single wait is long, and yet
/// nobody gets the lock.
async fn s10_inventory(servers: &Servers) -> Result {
    let holder = servers.app("inventory-sync").await?;
    holder.run(&format!("SELECT pg_advisory_lock({})", key::INVENTORY)).await?;
    tokio::select! {
        synced = holder.run("SELECT pg_sleep(12)") => synced?,
        checkout = lock_at_last(servers, "checkout", key::INVENTORY, "2s") => drop(checkout?),
    }
    holder.unlock(key::INVENTORY).await?;
    seconds(2).await;
    Ok(())
}

/// Waits for a key only so long at a time, on a new connection each, until it has it.
async fn lock_at_last(
    servers: &Servers,
    application: &str,
    key: &str,
    patience: &str,
) -> Result<App> {
    loop {
        let app = servers.app(application).await?;
        app.run(&format!("SET lock_timeout = '{patience}'")).await?;
        match app.run(&format!("SELECT pg_advisory_lock({key})")).await {
            Err(error) if is_expected(&error) => {}
            outcome => return outcome.map(|()| app),
        }
        sleep(Duration::from_millis(300)).await;
    }
}

/// S12: nightly billing on three servers, moved behind a pooler. All three are given the lock,
/// because they are given the same server connection, and customers are charged three times.
async fn s12_billing(servers: &Servers) -> Result {
    let mut believers = Vec::new();
    for application in ["billing-a", "billing-b", "billing-c"] {
        let billing = servers.pooled(application).await?;
        if billing.is_true(&format!("SELECT pg_try_advisory_lock({})", key::BILLING)).await? {
            believers.push(billing);
        }
        seconds(3).await;
    }
    drop(believers);
    seconds(3).await;
    servers.app("operator").await?.end_holders(key::BILLING).await?;
    seconds(1).await;
    Ok(())
}

/// S13: a search index is rebuilt per tenant, under a pair of feature and tenant. A second rebuild
/// of the same tenant waits.
async fn s13_tenant(servers: &Servers) -> Result {
    let first = servers.app("tenant-worker").await?;
    let second = servers.app("tenant-worker").await?;
    let lock = format!("BEGIN; SELECT pg_advisory_xact_lock({})", key::TENANT_REINDEX);
    first.run(&lock).await?;
    let first_works = async {
        seconds(5).await;
        first.run("COMMIT").await
    };
    let second_waits = async {
        second.run(&lock).await?;
        seconds(1).await;
        second.run("COMMIT").await
    };
    tokio::try_join!(first_works, second_waits)?;
    seconds(2).await;
    Ok(())
}

/// S13: two features lock the bare number of the tenant. They have nothing to do with each other,
/// and one waits for the other.
async fn s13_bare_tenant(servers: &Servers) -> Result {
    let search = servers.app("search-index").await?;
    let export = servers.app("tenant-export").await?;
    let lock = format!("BEGIN; SELECT pg_advisory_xact_lock({})", key::TENANT);
    search.run(&lock).await?;
    let search_works = async {
        seconds(5).await;
        search.run("COMMIT").await
    };
    let export_waits = async {
        export.run(&lock).await?;
        seconds(1).await;
        export.run("COMMIT").await
    };
    tokio::try_join!(search_works, export_waits)?;
    seconds(2).await;
    Ok(())
}

/// S15: two numbers packed into one key, which says nothing to whoever reads it.
async fn s15_packed(servers: &Servers) -> Result {
    let worker = servers.app("resource-worker").await?;
    worker.run(&format!("SELECT pg_advisory_lock({})", key::TENANT_RESOURCE)).await?;
    seconds(8).await;
    worker.unlock(key::TENANT_RESOURCE).await?;
    seconds(2).await;
    Ok(())
}

/// S16: a queue of jobs in the manner of pg-boss. Whoever comes looks after the schema, then leads.
/// The leader's connection dies, and the next one comes much later.
async fn s16_leader(servers: &Servers) -> Result {
    for application in ["boss-a", "boss-b"] {
        let boss = servers.app(application).await?;
        boss.run(&format!("BEGIN; SELECT pg_advisory_xact_lock({})", key::BOSS_SCHEMA)).await?;
        seconds(1).await;
        boss.run("COMMIT").await?;
        boss.run(&format!("SELECT pg_advisory_lock({})", key::LEADER)).await?;
        boss.stay(15).await?;
        drop(boss);
        seconds(12).await;
    }
    Ok(())
}

/// S17: two batches fetch the same rows and lock them one by one, the one in ascending order of id,
/// the other in descending. They meet in the middle.
async fn s17_batches(servers: &Servers) -> Result {
    let ascending = lock_in_order(servers, "batch-ascending", key::BATCH);
    let descending = key::BATCH.into_iter().rev();
    let descending = lock_in_order(servers, "batch-descending", descending);
    of_whom_one_fails(ascending, descending).await?;
    seconds(2).await;
    Ok(())
}

/// S19: one process of many migrates the schema, and it hangs. Somebody has read the table in a
/// console and gone to lunch in the middle of a transaction; the migration waits for the table, the
/// pods and a deployment for the migration, and the next deployment for that one.
async fn s19_migration(servers: &Servers) -> Result {
    let console = servers.app("psql").await?;
    console.run("DROP TABLE IF EXISTS purchase; CREATE TABLE purchase (id bigint)").await?;
    console.run("BEGIN; SELECT count(*) FROM purchase").await?;
    let migrate = servers.app("shop-migrate").await?;
    migrate.run(&format!("SELECT pg_advisory_lock({})", key::MIGRATION)).await?;
    let deploy = servers.app("deploy-1841").await?;
    deploy.run(&format!("SELECT pg_advisory_lock({})", key::DEPLOYMENT)).await?;
    let next_deploy = servers.app("deploy-1842").await?;

    let lunch = async {
        seconds(50).await;
        console.run("ROLLBACK").await
    };
    let migrates = async {
        migrate.run("ALTER TABLE purchase ADD COLUMN paid boolean").await?;
        migrate.unlock(key::MIGRATION).await
    };
    let pod_starts =
        async { lock_at_last(servers, "shop-web", key::MIGRATION, "10s").await.map(drop) };
    let deploys = async {
        seconds(1).await;
        deploy.run(&format!("SELECT pg_advisory_lock({})", key::MIGRATION)).await?;
        deploy.run("SELECT pg_advisory_unlock_all()").await
    };
    let deploys_next = async {
        seconds(2).await;
        next_deploy.run(&format!("SELECT pg_advisory_lock({})", key::DEPLOYMENT)).await?;
        next_deploy.unlock(key::DEPLOYMENT).await
    };
    tokio::try_join!(lunch, migrates, pod_starts, deploys, deploys_next)?;
    console.run("DROP TABLE purchase").await?;
    seconds(3).await;
    Ok(())
}

/// S19: the process that migrates keeps its lock on one connection and builds an index on another.
/// The build waits for the snapshot of a process that waits for the lock: a circle which closes in
/// the program, so that no server sees a deadlock. It lasts until the one that waits gives up.
async fn s19_index(servers: &Servers) -> Result {
    let connect = |application| App::connect(&servers.direct, "app2", application);
    let keeper = connect("reports-migrate").await?;
    let builder = connect("reports-migrate").await?;
    let worker = connect("reports-worker").await?;
    keeper.run("DROP TABLE IF EXISTS purchase; CREATE TABLE purchase (id bigint)").await?;
    let lock = format!("SELECT pg_advisory_lock({})", key::REPORTS_MIGRATION);
    keeper.run(&lock).await?;
    worker.run("SET lock_timeout = '15s'").await?;
    let builds = async {
        seconds(1).await;
        builder.run("CREATE INDEX CONCURRENTLY ON purchase (id)").await
    };
    of_whom_one_fails(worker.run(&lock), builds).await?;
    keeper.unlock(key::REPORTS_MIGRATION).await?;
    keeper.run("DROP TABLE purchase").await?;
    seconds(3).await;
    Ok(())
}

/// A transaction is prepared for a commit in two phases, and its coordinator is gone. No session
/// holds the lock, and no end of a session frees it.
async fn prepared_payout(servers: &Servers) -> Result {
    let coordinator = servers.app("payout-coordinator").await?;
    let most = coordinator.value("SHOW max_prepared_transactions").await?;
    if most.as_deref() == Some("0") {
        std::future::pending::<()>().await;
    }
    coordinator.forget_prepared().await?;
    let lock = format!("SELECT pg_advisory_xact_lock({})", key::PAYOUT);
    coordinator.run(&format!("BEGIN; {lock}")).await?;
    coordinator.run(&format!("PREPARE TRANSACTION '{FORGOTTEN}'")).await?;
    drop(coordinator);
    let worker = servers.app("payout-worker").await?;
    let operator = servers.app("operator").await?;
    let operator_notices = async {
        seconds(60).await;
        operator.forget_prepared().await
    };
    tokio::try_join!(worker.run(&lock), operator_notices)?;
    seconds(3).await;
    Ok(())
}

/// Opens transactions through the pooler until one of them has the given server connection, so
/// that whoever comes next is given another.
async fn occupy(servers: &Servers, backend: &str) -> Result<App> {
    let mut others = Vec::new();
    for _ in 0..8 {
        let web = servers.pooled("pod-b").await?;
        // A full pool has no connection to give; then this traffic must do.
        let begin = web.value("BEGIN; SELECT pg_backend_pid()");
        let given = timeout(Duration::from_secs(1), begin).await;
        let is_last = !matches!(&given, Ok(Ok(Some(pid))) if pid != backend);
        others.push(web);
        if is_last {
            break;
        }
    }
    // The others leave, and the pooler rolls their transactions back.
    others.pop().ok_or_else(|| anyhow::anyhow!("no client was let in"))
}

/// Where the fleet connects.
#[derive(Clone)]
struct Servers {
    direct: Config,
    pooler: Option<Config>,
}

impl Servers {
    /// A connection to the database `app`.
    async fn app(&self, application: &str) -> Result<App> {
        App::connect(&self.direct, "app", application).await
    }

    /// A connection to the database `app` that shares its server connection with strangers.
    async fn pooled(&self, application: &str) -> Result<App> {
        let pooler = self.pooler.as_ref().ok_or_else(|| anyhow::anyhow!("there is no pooler"))?;
        App::connect(pooler, "app", application).await
    }
}

type Result<T = ()> = anyhow::Result<T>;

/// One connection of one application. Dropping it drops the socket, and the locks with it.
struct App {
    client: Client,
    connection: JoinHandle<()>,
}

impl App {
    async fn connect(server: &Config, database: &str, application: &str) -> Result<App> {
        let mut config = server.clone();
        config.dbname(database).application_name(application);
        config.connect_timeout(Duration::from_secs(5));
        let (client, connection) = config.connect(NoTls).await?;
        let connection = tokio::spawn(async move {
            // Its end is noticed by the next statement.
            let _ = connection.await;
        });
        Ok(App { client, connection })
    }

    /// Runs SQL in the simple protocol, which a pooler passes on without named statements.
    async fn run(&self, sql: &str) -> Result {
        Ok(self.client.batch_execute(sql).await?)
    }

    /// The first value, as text.
    async fn value(&self, sql: &str) -> Result<Option<String>> {
        let messages = self.client.simple_query(sql).await?;
        Ok(messages.iter().find_map(|message| {
            let SimpleQueryMessage::Row(row) = message else { return None };
            row.get(0).map(str::to_owned)
        }))
    }

    async fn is_true(&self, sql: &str) -> Result<bool> {
        Ok(self.value(sql).await?.as_deref() == Some("t"))
    }

    async fn unlock(&self, key: &str) -> Result {
        self.run(&format!("SELECT pg_advisory_unlock({key})")).await
    }

    /// Does nothing for so long, unless the server ends the connection before.
    async fn stay(&self, number: u64) -> Result {
        for _ in 0..number {
            anyhow::ensure!(!self.client.is_closed(), "the connection is closed");
            seconds(1).await;
        }
        Ok(())
    }

    /// Ends the statement that runs on this connection.
    async fn cancel(&self) -> Result {
        Ok(self.client.cancel_token().cancel_query(NoTls).await?)
    }

    /// What an operator does about a transaction that nobody will finish, where it is there.
    async fn forget_prepared(&self) -> Result {
        let is_there = format!("SELECT true FROM pg_prepared_xacts WHERE gid = '{FORGOTTEN}'");
        if self.is_true(&is_there).await? {
            self.run(&format!("ROLLBACK PREPARED '{FORGOTTEN}'")).await?;
        }
        Ok(())
    }

    /// What an operator does about a lock that nobody will release: end the backends that hold it.
    async fn end_holders(&self, key: &str) -> Result {
        self.run(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_locks \
             WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
             AND (classid::bigint << 32) | objid::bigint = {key}"
        ))
        .await
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Makes sure of both databases, however long the server takes to be there.
async fn create_databases(servers: &Servers) {
    for database in ["app", "app2"] {
        while !settle(database, create_database(servers, database).await).await {}
    }
}

async fn create_database(servers: &Servers, database: &str) -> Result {
    let maintenance = servers.direct.get_dbname().unwrap_or("postgres");
    let operator = App::connect(&servers.direct, maintenance, "operator").await?;
    let exists = format!("SELECT true FROM pg_database WHERE datname = '{database}'");
    if !operator.is_true(&exists).await? {
        operator.run(&format!("CREATE DATABASE {database}")).await?;
    }
    Ok(())
}

/// Takes away what would outlive the fleet: locks that a pooler keeps, sessions that wait for each
/// other or work on, of which the server would notice only later that their clients are gone, what
/// is prepared, and tables.
async fn clean_up(servers: &Servers) -> Result {
    let operator = servers.app("operator").await?;
    let working = [key::POOLED_SIGNUP, key::BILLING, key::REPORT, key::INVENTORY];
    let waiting = key::ACCOUNTS.into_iter().chain(key::BATCH);
    for key in working.into_iter().chain(waiting) {
        operator.end_holders(key).await?;
    }
    operator.forget_prepared().await?;
    operator.run("DROP TABLE IF EXISTS purchase").await?;
    let operator = App::connect(&servers.direct, "app2", "operator").await?;
    operator.run("DROP TABLE IF EXISTS purchase").await
}

/// Whether it went well; if not, says so in a line and pauses, since servers restart.
async fn settle(what: &str, outcome: Result) -> bool {
    if let Err(error) = &outcome {
        report(&format!("{what}: {}", describe(error)));
        sleep(Duration::from_secs(1)).await;
    }
    outcome.is_ok()
}

/// Whether the server refused a wait, by the detector or by a timeout.
fn is_expected(error: &anyhow::Error) -> bool {
    let code = error.downcast_ref::<tokio_postgres::Error>().and_then(|error| error.code());
    code.is_some_and(|code| {
        [&SqlState::T_R_DEADLOCK_DETECTED, &SqlState::LOCK_NOT_AVAILABLE].contains(&code)
    })
}

/// The whole chain in one line; the driver's own text is only "db error".
fn describe(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().collect::<Vec<_>>().join("; ")
}

#[expect(clippy::print_stderr, reason = "a program for the terminal")]
fn report(line: &str) {
    eprintln!("{line}");
}

async fn seconds(number: u64) {
    sleep(Duration::from_secs(number)).await;
}
