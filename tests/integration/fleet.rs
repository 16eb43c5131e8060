//! The simulated applications show what they claim to show, on a real server and through a real
//! pooler. What the product makes of it is tested elsewhere.

use crate::support::{Fleet, PgBouncer, PoolMode, Postgres, eventually, require};

/// The advisory locks as a person would list them, before a condition on them.
const LOCKS: &str = "
    WITH lock AS (
        SELECT d.datname, application_name AS app, state, mode, granted, pid,
            CASE objsubid
                WHEN 1 THEN ((classid::bigint << 32) | objid::bigint)::text
                ELSE classid || ',' || objid
            END AS key
        FROM pg_locks
        JOIN pg_stat_activity USING (pid)
        JOIN pg_database d ON d.oid = database
        WHERE locktype = 'advisory'
    ),
    held AS (SELECT * FROM lock WHERE granted),
    blocked AS (
        SELECT a.application_name AS app, b.application_name AS by, b.state AS by_state
        FROM pg_stat_activity a JOIN pg_stat_activity b ON b.pid = ANY (pg_blocking_pids(a.pid))
    ),
    awaited AS (SELECT * FROM lock WHERE NOT granted)
    SELECT ";

const SCENES: [(&str, &str); 22] = [
    (
        "S1: one pod holds the cron job's key",
        "count(*) = 1 FROM held WHERE key = '6110350855857795459' AND app LIKE 'pod-_'",
    ),
    (
        "S1: a pod runs a job that will not run again",
        "count(*) = 1 FROM held WHERE app = 'pod-b'
         AND key = hashtextextended('cron:send-statements', 0)::text",
    ),
    (
        "S2: one sign-up holds, the other waits",
        "count(*) FILTER (WHERE granted) = 1 AND count(*) = 2 FROM lock
         WHERE key = hashtextextended('signup:an@example.com', 0)::text AND app = 'signup-api'",
    ),
    (
        "S3: the lock of pod-a is held under another pod's name, idle, before a pod that waits",
        "EXISTS (SELECT FROM held JOIN awaited USING (key)
         WHERE key = hashtextextended('signup:pooled', 0)::text
         AND held.app = 'pod-c' AND held.state = 'idle' AND awaited.app = 'pod-d')",
    ),
    (
        "S4: the lock outlives the rollback",
        "count(*) = 1 FROM held WHERE key = hashtext('settlement:eu')::text AND state = 'idle'",
    ),
    ("S5: a re-entrant lock is one row", "count(*) = 1 FROM held WHERE key = '5005'"),
    (
        "S6: four keys that look alike are held at once",
        "count(*) = 4 FROM held WHERE (datname, key) IN
         (('app', '1'), ('app', '0,1'), ('app', '42'), ('app2', '42'))",
    ),
    (
        "S6: the extremes are held",
        "count(*) = 5 FROM held WHERE app = 'edge-keys' AND key IN
         ('-9223372036854775808', '9223372036854775807', '-1', '2147483648,2147483647',
          '4294967295,4294967295')",
    ),
    (
        "S7: a late reader waits behind a writer that waits for an old reader",
        "EXISTS (SELECT FROM held WHERE key = '7007' AND mode = 'ShareLock')
         AND EXISTS (SELECT FROM awaited WHERE key = '7007' AND mode = 'ExclusiveLock')
         AND EXISTS (SELECT FROM awaited WHERE key = '7007' AND mode = 'ShareLock')",
    ),
    ("S8: a lock per row", "count(*) = 300 FROM held WHERE app = 'row-worker'"),
    ("S8: a LIMIT 1 that locks all", "count(*) = 100 FROM held WHERE app = 'queue-worker'"),
    (
        "S9: both transfers wait for each other",
        "count(*) = 2 FROM awaited WHERE (app, key) IN
         (('transfer-there', '9002'), ('transfer-back', '9001'))",
    ),
    (
        "S10: a checkout waits for the inventory",
        "EXISTS (SELECT FROM held JOIN awaited USING (key)
         WHERE key = '1010' AND held.app = 'inventory-sync' AND awaited.app = 'checkout')",
    ),
    (
        "S12: the third billing server is on the backend that holds the key",
        "count(*) = 1 FROM held WHERE key = '4242' AND app = 'billing-c' AND state = 'idle'",
    ),
    (
        "S13: two rebuilds for one tenant",
        "count(*) = 2 FROM lock WHERE key = '7,99' AND app = 'tenant-worker'",
    ),
    (
        "S13: two features block each other on a bare number",
        "EXISTS (SELECT FROM held JOIN awaited USING (key)
         WHERE key = '99' AND held.app = 'search-index' AND awaited.app = 'tenant-export')",
    ),
    ("S15: a packed key is held", "count(*) = 1 FROM held WHERE key = '21474836522'"),
    (
        "S16: somebody leads",
        "count(*) = 1 FROM held WHERE key = hashtext('boss-leader')::text AND app LIKE 'boss-_'",
    ),
    (
        "S17: two batches wait for each other's rows",
        "count(*) = 2 FROM awaited WHERE app IN ('batch-ascending', 'batch-descending')
         AND key BETWEEN '1700001' AND '1700003'",
    ),
    (
        "S19: one deployment waits for another, that for a migration, and that for a lunch break",
        "EXISTS (SELECT FROM blocked JOIN blocked before ON before.app = blocked.by
         JOIN blocked first ON first.app = before.by
         WHERE blocked.app = 'deploy-1842' AND before.app = 'deploy-1841'
         AND first.app = 'shop-migrate' AND first.by = 'psql'
         AND first.by_state = 'idle in transaction')",
    ),
    (
        "S19: an index build waits for who waits for the lock of its own program",
        "EXISTS (SELECT FROM blocked JOIN blocked before ON before.app = blocked.by
         WHERE blocked.app = 'reports-migrate' AND before.app = 'reports-worker'
         AND before.by = 'reports-migrate' AND before.by_state = 'idle')",
    ),
    (
        "a worker waits for a prepared transaction",
        "EXISTS (SELECT FROM awaited WHERE app = 'payout-worker' AND pg_blocking_pids(pid) = '{0}')",
    ),
];

#[tokio::test]
async fn every_scene_is_played_and_played_again_after_a_restart() {
    require!(Postgres, PgBouncer);
    let mut postgres = Postgres::builder().setting("max_prepared_transactions", 10).start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 5).await;
    let fleet = Fleet::start(&postgres, Some(&pooler));
    every_scene_is_seen(&postgres).await;
    postgres.restart().await;
    every_scene_is_seen(&postgres).await;
    fleet.end().await;

    for database in ["app", "app2"] {
        let observer = postgres.session_in(database, "observer").await;
        eventually("the fleet leaves nothing behind", async || {
            for what in [
                "pid, classid, objid FROM pg_locks WHERE locktype = 'advisory'",
                "gid FROM pg_prepared_xacts",
                "relname FROM pg_class WHERE relnamespace = 'public'::regnamespace",
            ] {
                let left = observer.rows(&format!("SELECT {what}")).await;
                assert!(left.is_empty(), "{what}: {left:?}");
            }
        })
        .await;
    }
}

async fn every_scene_is_seen(postgres: &Postgres) {
    let observer = postgres.session("observer").await;
    let mut seen = [false; SCENES.len()];
    eventually("every scene is seen", async || {
        for (seen, (_, condition)) in seen.iter_mut().zip(SCENES) {
            let is_seen = observer.value(&format!("{LOCKS} {condition}")).await;
            *seen |= is_seen.as_deref() == Some("t");
        }
        let unseen = seen.iter().zip(SCENES).filter(|(seen, _)| !**seen);
        let unseen: Vec<&str> = unseen.map(|(_, (scene, _))| scene).collect();
        assert!(unseen.is_empty(), "unseen: {unseen:#?}");
    })
    .await;
}
