//! What the registry may ask of a database beside the poll: that answers come, that a query can
//! only read and leaves nothing, and that whatever goes wrong is told without quoting it.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pg_locks_exporter::backoff::Backoff;
use pg_locks_exporter::cli::{self, Command};
use pg_locks_exporter::config::{Config, Poolers, Server, World};
use pg_locks_exporter::inspected::{Inspected, LastSuccess, Source};
use pg_locks_exporter::inspector::Inspector;
use pg_locks_exporter::poller::Poller;
use pg_locks_exporter::postgres::dsn::Dsn;
use pg_locks_exporter::postgres::{Inspection, InspectionError};
use pg_locks_exporter::registry::{self, Registry};
use pg_locks_exporter::reload::Loaded;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::{
    DEADLINE, Exporter, PgBouncer, PoolMode, Postgres, Session, eventually, require,
};
use crate::watch::now;

/// A role that may read one table, and things that it may not do.
const STAGE: &str = "
    CREATE ROLE reader LOGIN;
    CREATE TABLE customer (id int, name text, code varchar(10), short char(4), label name);
    INSERT INTO customer VALUES (2, 'b', 'b', 'b', 'b'), (1, 'a', 'a', 'a', 'a'), (3, 'a', 'a', 'a', 'a'),
                                (4, NULL, NULL, NULL, NULL);
    CREATE SEQUENCE counter;
    CREATE FUNCTION write() RETURNS text LANGUAGE sql AS
        'INSERT INTO customer (name) VALUES (''written'') RETURNING name';
    CREATE TYPE mood AS ENUM ('sad');
    CREATE DOMAIN word AS text;
    GRANT ALL ON ALL TABLES IN SCHEMA public TO reader;
    GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO reader;
    CREATE TABLE closed (name text);
    CREATE SCHEMA tool;
    CREATE TABLE tool.job ();
    CREATE TABLE \"Odd.Name\" ();";

async fn stage() -> (Postgres, Session) {
    let postgres = Postgres::start().await;
    let admin = postgres.session("admin").await;
    admin.run(STAGE).await;
    (postgres, admin)
}

/// A connection string for the server, as this role.
fn dsn_as(role: &str, postgres: &Postgres) -> Dsn {
    parse(&postgres.dsn("postgres").replace("postgres@", &format!("{role}@")))
}

fn parse(text: &str) -> Dsn {
    Dsn::parse(text, &|_| None).expect("a connection string")
}

async fn inspect(dsn: &Dsn, database: &str) -> Inspection {
    Inspection::connect(dsn, database).await.expect("a connection")
}

async fn values(inspection: &Inspection, sql: &str) -> Vec<String> {
    let values = inspection.fetch_values(sql).await;
    let values = values.unwrap_or_else(|error| panic!("{sql}: {error}"));
    values.iter().map(ToString::to_string).collect()
}

async fn refusal(inspection: &Inspection, sql: &str) -> InspectionError {
    match inspection.fetch_values(sql).await {
        Ok(values) => panic!("{sql} gave {values:?}"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn values_come_in_order_each_once_and_without_null() {
    require!(Postgres);
    let (postgres, _admin) = stage().await;
    let inspection = inspect(&dsn_as("reader", &postgres), "app").await;
    for sql in [
        "SELECT name FROM customer",
        "SELECT name FROM customer ORDER BY id DESC LIMIT 3;",
        "SELECT name FROM customer -- all of them",
        "SELECT code FROM customer",
        "SELECT short FROM customer",
        "SELECT label FROM customer",
        "SELECT name::word FROM customer",
        "VALUES ('b'), ('a'), (NULL)",
        "WITH c AS (SELECT 'a' UNION SELECT 'b') TABLE c",
        "  SELECT 'a' UNION ALL SELECT 'b' ;\n;",
    ] {
        assert_eq!(values(&inspection, sql).await, ["a", "b"], "{sql}");
    }
    assert_eq!(values(&inspection, "SELECT NULL").await, [""; 0]);
    assert_eq!(values(&inspection, "SELECT current_database()").await, ["app"]);
}

#[tokio::test]
async fn what_is_not_one_reading_query_for_one_column_of_text_is_refused_and_not_quoted() {
    require!(Postgres);
    let (postgres, admin) = stage().await;
    let inspection = inspect(&dsn_as("reader", &postgres), "app").await;
    let state = "SELECT pg_snapshot_xmax(pg_current_snapshot()), (SELECT count(*) FROM customer), \
                 (SELECT is_called FROM counter), (SELECT count(*) FROM pg_class)";
    let before = admin.rows(state).await;
    let one_query = "the query must be one SELECT";
    for (sql, message) in [
        ("SELECT name, name FROM customer", "exactly one column"),
        ("SELECT id FROM customer", "one column of text: cast it, as in id::text (at character 8 "),
        ("SELECT 'sad'::mood", "one column of text"),
        ("SELECT customer FROM customer", "one column of text"),
        ("SELECT 'x'; SELECT 'Canary'", "must be one SELECT"),
        ("SELECT 'x'); DROP TABLE customer; SELECT ('Canary'", "must be one statement"),
        ("", one_query),
        ("SELECT 'Canary", one_query),
        ("SELECT 'x' /* Canary", one_query),
        ("SELECT 'x' FROM customer WHERE Canary Canary", "(at character 39 of the query)"),
        ("INSERT INTO customer (name) VALUES ('Canary') RETURNING name", one_query),
        ("WITH w AS (DELETE FROM customer RETURNING name) SELECT name FROM w", one_query),
        ("SELECT name INTO canary FROM customer", "have no INTO"),
        ("COPY customer (name) TO PROGRAM 'true'", one_query),
        ("DO 'BEGIN END'", one_query),
        ("CALL Canary()", one_query),
        ("SET work_mem = '1GB'", one_query),
        ("EXPLAIN ANALYZE SELECT 'x'", one_query),
        ("SELECT name FROM customer FOR UPDATE", one_query),
        ("SELECT write()", "writes or locks rows"),
        ("SELECT nextval('counter')::text", "writes or locks rows"),
        ("SELECT set_config('transaction_read_only', 'off', true)", "SQLSTATE 25001"),
        ("SELECT name FROM closed", "TO \"reader\""),
        ("SELECT name FROM tool.job", "USAGE on its schema"),
        ("SELECT name FROM Canary", "does not exist; write it as schema.table"),
        ("SELECT Canary FROM customer", "a column of the query does not exist"),
        ("SELECT Canary('x')", "a function or operator of the query does not exist"),
        ("SELECT 'Canary'::int::text", "SQLSTATE 22P02"),
        ("SELECT $1", "SQLSTATE"),
        ("SELECT pg_advisory_lock(1)::text", "advisory lock function"),
        ("SELECT 'x' WHERE pg_try_advisory_lock(1)", "advisory lock function"),
    ] {
        let error = refusal(&inspection, sql).await;
        let shown = format!("{error} {error:?}");
        assert!(error.to_string().contains(message), "{sql}: {error}");
        assert!(!shown.to_lowercase().contains("canary"), "{sql}: {shown}");
        assert!(!error.ends_connection(), "{sql}: {error}");
        assert_eq!(values(&inspection, "SELECT 'x'").await, ["x"], "after {sql}");
    }
    assert_eq!(admin.rows(state).await, before, "nothing is written, nor a transaction begun to");
}

#[tokio::test]
async fn more_than_a_hundred_thousand_rows_or_too_much_text_are_refused() {
    require!(Postgres);
    let (postgres, _admin) = stage().await;
    let dsn = dsn_as("reader", &postgres);
    let inspection = inspect(&dsn, "app").await;
    let series = |rows| format!("SELECT n::text FROM generate_series(1, {rows}) n");
    assert_eq!(values(&inspection, &series(100_000)).await.len(), 100_000);
    let error = refusal(&inspection, &series(100_001)).await;
    assert!(matches!(error, InspectionError::TooManyRows), "{error}");
    // The server stops by itself, whatever the query could give.
    let endless = "SELECT generate_series(1, 1000000000000)::text";
    let error = refusal(&inspection, endless).await;
    assert!(matches!(error, InspectionError::TooManyRows), "{error}");
    assert_eq!(values(&inspection, "SELECT 'x'").await, ["x"]);

    let large = "SELECT repeat('x', 1000000) FROM generate_series(1, 100)";
    let error = refusal(&inspection, large).await;
    assert!(matches!(error, InspectionError::TooLarge) && error.ends_connection(), "{error}");
}

#[tokio::test]
async fn a_query_that_takes_too_long_is_ended_by_the_server() {
    require!(Postgres);
    let (postgres, admin) = stage().await;
    let inspection = inspect(&dsn_as("reader", &postgres), "app").await;
    let error = refusal(&inspection, "SELECT 'x' FROM pg_sleep(600)").await;
    assert!(error.to_string().contains("its limit of 5s"), "{error}");
    let state = "SELECT state FROM pg_stat_activity WHERE usename = 'reader'";
    assert_eq!(admin.value(state).await.as_deref(), Some("idle"));
    assert_eq!(values(&inspection, "SELECT 'x'").await, ["x"]);
}

#[tokio::test]
async fn a_role_that_a_transaction_does_not_bound_is_refused_by_name() {
    require!(Postgres);
    let (postgres, admin) = stage().await;
    admin
        .run(
            "CREATE ROLE between IN ROLE pg_execute_server_program; \
             CREATE ROLE direct LOGIN IN ROLE pg_execute_server_program; \
             CREATE ROLE indirect LOGIN NOINHERIT IN ROLE between; \
             CREATE ROLE writer LOGIN IN ROLE pg_write_server_files; \
             CREATE ROLE boss SUPERUSER; \
             CREATE ROLE deputy LOGIN NOINHERIT IN ROLE boss; \
             CREATE ROLE demoted LOGIN SUPERUSER; ALTER ROLE demoted SET role = reader; \
             CREATE ROLE watcher LOGIN IN ROLE pg_monitor",
        )
        .await;
    for (role, by) in [
        ("postgres", "role \"postgres\" is a superuser"),
        ("demoted", "role \"demoted\" is a superuser"),
        ("direct", "role \"direct\" is a member of \"pg_execute_server_program\""),
        ("indirect", "role \"indirect\" is a member of \"pg_execute_server_program\""),
        ("writer", "role \"writer\" is a member of \"pg_write_server_files\""),
        ("deputy", "role \"deputy\" is a member of \"boss\""),
    ] {
        let inspection = inspect(&dsn_as(role, &postgres), "app").await;
        let error = refusal(&inspection, "SELECT 'x'").await.to_string();
        assert!(error.contains(by), "{role}: {error}");
        // What is ours to ask can be asked by anybody.
        let tables = inspection.fetch_tables(&["customer".into()]).await.expect("an answer");
        assert!(tables[0].1.is_some(), "{role}");
    }
    let inspection = inspect(&dsn_as("watcher", &postgres), "app").await;
    assert_eq!(values(&inspection, "SELECT 'x'").await, ["x"]);
}

#[tokio::test]
async fn tables_are_found_without_privileges_and_what_is_no_name_is_no_table() {
    require!(Postgres);
    let (postgres, admin) = stage().await;
    let inspection = inspect(&dsn_as("reader", &postgres), "app").await;
    let oid = async |name: &str| {
        let sql = format!("SELECT '{name}'::regclass::oid::int8");
        admin.value(&sql).await.and_then(|oid| oid.parse::<u32>().ok())
    };
    let customer = oid("customer").await;
    assert!(customer.is_some());
    for (name, expected) in [
        ("public.customer", customer),
        ("customer", customer),
        ("PUBLIC.Customer", customer),
        ("tool.job", oid("tool.job").await),
        ("job", None),
        ("\"Odd.Name\"", oid("\"Odd.Name\"").await),
        ("public.\"Odd.Name\"", oid("\"Odd.Name\"").await),
        ("Odd.Name", None),
        ("\"PUBLIC\".customer", None),
        ("app.public.customer", None),
        ("", None),
        ("a b", None),
        ("\"", None),
        ("1", None),
        ("public.", None),
        ("x'; DROP TABLE customer; --", None),
    ] {
        let tables = inspection.fetch_tables(&[name.into(), "public.nothing".into()]).await;
        let tables = tables.unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut expected = [(name.into(), expected), ("public.nothing".into(), None)];
        expected.sort();
        let mut tables = tables;
        tables.sort();
        assert_eq!(tables, expected);
    }
}

#[tokio::test]
async fn values_of_another_encoding_come_as_utf_8_or_not_at_all() {
    require!(Postgres);
    let (postgres, admin) = stage().await;
    for encoding in ["LATIN1", "SQL_ASCII"] {
        admin
            .run(&format!(
                "CREATE DATABASE {encoding} TEMPLATE template0 ENCODING '{encoding}' \
                 LC_COLLATE 'C' LC_CTYPE 'C'"
            ))
            .await;
    }
    let dsn = dsn_as("reader", &postgres);
    let latin = inspect(&dsn, "latin1").await;
    assert_eq!(values(&latin, "SELECT 'caf' || chr(233)").await, ["café"]);
    let raw = inspect(&dsn, "sql_ascii").await;
    assert_eq!(values(&raw, "SELECT 'plain'").await, ["plain"]);
    let error = refusal(&raw, "SELECT E'caf\\351'").await;
    assert!(matches!(error, InspectionError::NotUtf8), "{error}");
    assert_eq!(values(&raw, "SELECT 'plain'").await, ["plain"]);
}

#[tokio::test]
async fn a_stranger_on_the_same_backend_of_a_pooler_finds_nothing_of_a_query() {
    require!(Postgres, PgBouncer);
    let (postgres, _admin) = stage().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 1).await;
    let reader = |dsn: String| dsn.replace("postgres@", "reader@");
    let stranger = Session::connect_pooled(&reader(pooler.dsn("app")), "stranger").await;
    let settings = "SELECT pg_backend_pid(), current_setting('statement_timeout'), \
                    current_setting('work_mem'), current_setting('transaction_read_only'), \
                    current_setting('role'), \
                    (SELECT count(*) FROM pg_prepared_statements), \
                    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')";
    let before = stranger.rows(settings).await;
    let inspection = inspect(&parse(&reader(pooler.dsn("postgres"))), "app").await;
    assert_eq!(values(&inspection, "SELECT name FROM customer").await, ["a", "b"]);
    assert_eq!(stranger.rows(settings).await, before);
    // A type that the driver would look up, a setting for the session, and an error.
    refusal(&inspection, "SELECT 'sad'::mood").await;
    values(&inspection, "SELECT set_config('work_mem', '1GB', false)").await;
    refusal(&inspection, "SELECT name FROM closed").await;
    inspection.fetch_tables(&["customer".into()]).await.expect("an answer");
    assert_eq!(stranger.rows(settings).await, before);
    inspection.close().await;
    assert_eq!(stranger.rows(settings).await, before);
}

/// The inspector with all that a test looks at. It runs until it is dropped.
struct Stand {
    loaded: watch::Sender<Loaded>,
    inspected: watch::Receiver<Arc<Inspected>>,
    log: Log,
    _task: JoinSet<std::convert::Infallible>,
    _subscriber: tracing::subscriber::DefaultGuard,
}

impl Stand {
    fn start(dsn: &Dsn, inspect: &[&str], entries: &[Entry]) -> Stand {
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let subscriber = tracing::subscriber::set_default(subscriber);
        let server = Server {
            name: "here".to_owned(),
            dsn: dsn.clone(),
            inspect: inspect.iter().map(|name| (*name).into()).collect(),
            poolers: Poolers::default(),
        };
        let (loaded, receiver) = watch::channel(load(entries));
        let (inspector, inspected) = Inspector::new(server, receiver);
        let mut task = JoinSet::new();
        task.spawn(inspector.run());
        Stand { loaded, inspected, log, _task: task, _subscriber: subscriber }
    }

    fn source(&self, lock: &str) -> Source {
        self.inspected.borrow().sources[lock]
    }

    fn values(&self, database: &str, sql: &str) -> Option<Vec<String>> {
        let inspected = self.inspected.borrow();
        let values = inspected.answers.values(database, sql)?;
        Some(values.iter().map(ToString::to_string).collect())
    }

    async fn until_failures(&self, lock: &str, failures: u64) {
        eventually("the failure is counted", async || {
            assert_eq!(self.source(lock).failures, failures, "{}", self.log.text());
        })
        .await;
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("nobody panicked")).into_owned()
    }

    fn lines(&self, piece: &str) -> usize {
        self.text().lines().filter(|line| line.contains(piece)).count()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panicked").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A lock with values that a database tells: its name, the database, the query.
type Entry = (&'static str, &'static str, &'static str);

fn load(entries: &[Entry]) -> Loaded {
    let mut text = "presets: none\nlocks:\n".to_owned();
    for (lock, database, sql) in entries {
        let source = format!("{{ query: \"{sql}\", database: {database}, refresh: 1m }}");
        let key = "{ hashtext: \"{v}\" }";
        text += &format!("  - {{ name: {lock}, key: {key}, values: {{ v: {source} }} }}\n");
    }
    let registry = Registry::parse(&[registry::Source { name: "test".to_owned(), text }]);
    let registry = Arc::new(registry.expect("a registry"));
    Loaded { registry, read_at: now(), is_current: true }
}

/// Lets time pass for those who wait for a moment, without waiting for it.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_failure_keeps_the_last_answer_and_is_counted_and_told_once() {
    require!(Postgres);
    let (postgres, admin) = stage().await;
    let sql = "SELECT name FROM customer";
    let stand = Stand::start(&dsn_as("reader", &postgres), &["app"], &[("a", "app", sql)]);
    assert_eq!(stand.source("a"), Source { failures: 0, last_success: LastSuccess::Never });
    eventually("values come", async || {
        assert_eq!(stand.values("app", sql).expect("values"), ["a", "b"]);
    })
    .await;
    let success = stand.source("a").last_success;
    assert!(matches!(success, LastSuccess::At(_)), "{success:?}");
    let answers = stand.inspected.borrow().answers.clone();

    admin.run("REVOKE SELECT ON customer FROM reader").await;
    for failures in 1..=3 {
        pass(2 * MINUTE * failures).await;
        stand.until_failures("a", failures.into()).await;
    }
    let kept = stand.inspected.borrow().answers.clone();
    assert!(Arc::ptr_eq(&answers, &kept), "{kept:?}");
    assert_eq!(stand.source("a").last_success, success);
    assert_eq!(stand.log.lines("WARN"), 1, "{}", stand.log.text());
    for piece in ["GRANT SELECT", "locks=\"a\"", "database=\"app\"", "server=\"here\""] {
        assert_eq!(stand.log.lines(piece), 1, "{piece}: {}", stand.log.text());
    }
    assert_eq!(stand.log.lines("FROM customer"), 0, "{}", stand.log.text());

    admin.run("INSERT INTO customer VALUES (9, 'c'); GRANT SELECT ON customer TO reader").await;
    pass(10 * MINUTE).await;
    eventually("values come again", async || {
        assert_eq!(stand.values("app", sql).expect("values"), ["a", "b", "c"]);
        assert_eq!(stand.log.lines("answers the registry again"), 1, "{}", stand.log.text());
    })
    .await;
    assert_eq!(stand.source("a").failures, 3);
}

#[tokio::test]
async fn a_database_that_is_not_there_costs_a_failure_for_each_who_asks_and_one_line() {
    require!(Postgres);
    let (postgres, admin) = stage().await;
    let all = [("a", "later", "SELECT 'a'"), ("b", "later", "SELECT 'b'")];
    let stand = Stand::start(&dsn_as("reader", &postgres), &["later"], &all);
    stand.until_failures("a", 1).await;
    stand.until_failures("b", 1).await;
    assert_eq!(stand.log.lines("WARN"), 1, "{}", stand.log.text());
    assert_eq!(stand.log.lines("does not exist"), 1, "{}", stand.log.text());
    admin.run("CREATE DATABASE later").await;
    pass(2 * MINUTE).await;
    eventually("both are answered", async || {
        assert_eq!(stand.values("later", "SELECT 'a'").expect("values"), ["a"]);
        assert_eq!(stand.values("later", "SELECT 'b'").expect("values"), ["b"]);
    })
    .await;
}

#[tokio::test]
async fn nothing_is_asked_of_a_database_that_is_not_listed() {
    require!(Postgres);
    let (postgres, admin) = stage().await;
    admin.run("CREATE ROLE only_app LOGIN; REVOKE CONNECT ON DATABASE app2 FROM PUBLIC").await;
    let all = [("a", "app2", "SELECT 'a'"), ("b", "app", "SELECT 'b'")];
    let stand = Stand::start(&dsn_as("only_app", &postgres), &["app"], &all);
    eventually("the one that may be asked is", async || {
        assert_eq!(stand.values("app", "SELECT 'b'").expect("values"), ["b"]);
    })
    .await;
    let not_asked = Source { failures: 0, last_success: LastSuccess::NotAsked };
    assert_eq!(stand.source("a"), not_asked, "{}", stand.log.text());
    assert_eq!(stand.log.lines("WARN"), 1, "{}", stand.log.text());
    assert_eq!(stand.log.lines("inspect=\"[app2]\""), 1, "{}", stand.log.text());

    stand.loaded.send_replace(load(&[all[1], ("c", "app", "SELECT 'c'")]));
    eventually("what a new registry wants is asked at once", async || {
        assert_eq!(stand.values("app", "SELECT 'c'").expect("values"), ["c"]);
    })
    .await;
    assert_eq!(stand.inspected.borrow().sources.len(), 2);
}

#[tokio::test]
async fn a_connect_that_hangs_is_told_and_no_second_one_is_begun() {
    // A server that lets clients in and never says a word.
    let mute = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = mute.local_addr().expect("a listener has an address");
    let dsn = parse(&format!("postgresql://reader@{address}/postgres"));
    let stand = Stand::start(&dsn, &["app"], &[("a", "app", "SELECT 'a'")]);
    let _client = mute.accept().await.expect("a client");
    for failures in 1..=3 {
        pass(2 * MINUTE).await;
        stand.until_failures("a", failures).await;
    }
    let second = tokio::time::timeout(Duration::ZERO, mute.accept()).await;
    assert!(second.is_err(), "a second connection");
    assert_eq!(
        stand.log.lines("no connection within"),
        2,
        "after 5 s, after 60: {}",
        stand.log.text()
    );
}

#[tokio::test]
async fn polls_go_on_meanwhile_and_there_is_one_connection_beside_theirs() {
    require!(Postgres);
    let (postgres, admin) = stage().await;
    // The server itself refuses a third one.
    admin.run("ALTER ROLE reader CONNECTION LIMIT 2; GRANT pg_read_all_stats TO reader").await;
    let dsn = dsn_as("reader", &postgres);
    let slow = "SELECT 'x' FROM pg_sleep(1)";
    let all = [("a", "app", slow), ("b", "app2", "SELECT 'b'"), ("c", "postgres", "SELECT 'c'")];
    let stand = Stand::start(&dsn, &["app", "app2", "postgres"], &all);
    let arguments = ["locks", "serve", "--poll.interval", "20ms"].map(Into::into);
    let Command::Serve(args) = cli::parse(arguments).expect("arguments").command else {
        panic!("serve was asked for");
    };
    let world = World {
        variable: &|name| (name == "PGUSER").then(|| "reader".to_owned()),
        read: &|_| Err(io::ErrorKind::NotFound.into()),
    };
    let config = Config::new(&args, world).expect("a configuration");
    let server = Server { dsn, ..config.servers[0].clone() };
    let (_loaded, loaded) = watch::channel(load(&all));
    let (poller, view) = Poller::new(
        server,
        config.poll,
        loaded,
        Arc::default(),
        &config.limits,
        config.thresholds,
        Backoff::default(),
    );
    let mut pollers = JoinSet::new();
    pollers.spawn(poller.with_inspected(stand.inspected.clone()).run());

    let runs =
        format!("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%{}%'", "pg_sleep(1)");
    let runs = format!("{runs} AND usename = 'reader' AND state = 'active'");
    eventually("the slow query runs", async || {
        assert_eq!(admin.value(&runs).await.as_deref(), Some("1"));
    })
    .await;
    let polls = view.borrow().polls.total;
    eventually("polls go on while it does", async || {
        assert!(view.borrow().polls.total >= polls + 3);
    })
    .await;
    assert_eq!(admin.value(&runs).await.as_deref(), Some("1"), "it still runs");

    let mut published = view.clone();
    let all_told = published.wait_for(|view| {
        ["a", "b", "c"].iter().all(|lock| {
            let source = view.inspected.sources.get(*lock);
            source.is_some_and(|source| matches!(source.last_success, LastSuccess::At(_)))
        })
    });
    let view =
        tokio::time::timeout(DEADLINE, all_told).await.expect("all is told").expect("a view");
    assert!(view.polls.failures.is_empty(), "{:?}", view.polls.failures);
    assert_eq!(stand.log.lines("WARN"), 0, "{}", stand.log.text());
    let failures = ["a", "b", "c"].map(|lock| stand.source(lock).failures);
    assert_eq!(failures, [0, 0, 0], "{}", stand.log.text());
}

const REGISTRY: &str = "
presets: none
locks:
  - name: process-customer
    key: { hashtextextended: \"process-customer:{customer}\" }
    values: { customer: { query: \"SELECT name FROM customer\", database: app } }
  - { name: tool-job, key: { pair: [7, { oid: tool.job }] }, databases: [app] }
  - name: broken
    key: { hashtextextended: \"broken:{id}\" }
    values: { id: { query: \"SELECT id FROM customer\", database: app } }
";

#[tokio::test]
async fn what_databases_told_names_keys_and_what_they_did_not_is_counted() {
    require!(Postgres);
    let (postgres, admin) = stage().await;
    admin.run("GRANT pg_read_all_stats TO reader").await;
    let dsn = postgres.dsn("postgres").replace("postgres@", "reader@");
    let exporter = Exporter::builder()
        .config(&format!("servers: [{{ name: here, dsn: '{dsn}', inspect: [app] }}]"))
        .registry(REGISTRY)
        .start()
        .await;
    let first = exporter.scrape().await;
    for lock in ["process-customer", "tool-job", "broken"] {
        first.sample("pg_advisory_registry_source_failures_total").with("lock", lock).present();
    }
    let _a = postgres.holds("pod-a", "hashtextextended('process-customer:a', 0)").await;
    let _c = postgres.holds("pod-c", "hashtextextended('process-customer:c', 0)").await;
    let _job = postgres.holds("pod-j", "7, 'tool.job'::regclass::oid::int4").await;
    eventually("keys have their names", async || {
        let scrape = exporter.scrape_fresh().await;
        for (application, lock) in
            [("pod-a", "process-customer"), ("pod-c", "unregistered"), ("pod-j", "tool-job")]
        {
            let holders = scrape.sample("pg_advisory_lock_holders");
            holders.with("application_name", application).with("lock", lock).is(1.0);
        }
        for (lock, failures) in [("process-customer", 0.0), ("tool-job", 0.0), ("broken", 1.0)] {
            let counted = scrape.sample("pg_advisory_registry_source_failures_total");
            counted.with("lock", lock).is(failures);
            let told = "pg_advisory_registry_source_last_success_timestamp_seconds";
            let told = scrape.sample(told).with("lock", lock);
            if failures == 0.0 { told.present() } else { told.absent() }
        }
    })
    .await;
    let line = exporter.logged(&["does not tell", "one column of text", "locks=broken"]);
    assert_eq!(line.len(), 1, "{}", exporter.log());
    assert!(!exporter.log().contains("customer FROM"), "{}", exporter.log());
}
