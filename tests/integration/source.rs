//! Where the pictures of the terminal view come from: real servers, some of them lost or silent, and
//! a real exporter that has watched for longer.

use std::sync::Arc;
use std::time::Duration;

use pg_locks_exporter::client;
use pg_locks_exporter::config;
use pg_locks_exporter::config::{Applications, Poolers, Server, Thresholds};
use pg_locks_exporter::key::Key;
use pg_locks_exporter::postgres::dsn::Dsn;
use pg_locks_exporter::registry::Registry;
use pg_locks_exporter::snapshot::Holder;
use pg_locks_exporter::table::row::LockId;
use pg_locks_exporter::top::source::{Origin, Source, Subject, Targets, Watched};

use crate::support::port::Port;
use crate::support::process::Frozen;
use crate::support::{DEADLINE, Exporter, Postgres, Session, eventually, require};
use crate::watch::{elapsed, now};

const SOON: Duration = Duration::from_millis(50);

/// So long that no poll comes by itself while a test runs.
const NEVER: Duration = Duration::from_secs(3600);

/// Servers by name and connection string.
fn start(servers: &[(&str, &str)], exporter: Option<&str>, interval: Duration) -> Source {
    let server = |(name, dsn): &(&str, &str)| Server {
        name: (*name).to_owned(),
        dsn: Dsn::parse(dsn, &|_| None).expect("a connection string"),
        inspect: Default::default(),
        poolers: Poolers::default(),
    };
    let targets = Targets {
        servers: servers.iter().map(server).collect(),
        poll: config::Poll { interval, timeout: Duration::from_secs(5), max_share: 1.0 },
        registry: Arc::new(Registry::empty()),
        applications: Arc::new(Applications::default()),
        limits: config::Limits {
            keys: 200,
            applications: 100,
            databases: 100,
            registered_keys: 1000,
            values: 1000,
        },
        thresholds: Thresholds::default(),
        exporter: exporter.map(|url| client::Exporter::parse(url).expect("an address")),
    };
    Source::start(Subject::Servers(targets), interval).expect("a thread")
}

/// The pictures, once they are such.
async fn until(
    source: &mut Source,
    what: &str,
    is_such: impl Fn(&[Watched]) -> bool,
) -> Vec<Watched> {
    let mut watched = source.latest();
    let waiting = async {
        while !is_such(&watched) {
            watched = source.changed().await;
        }
    };
    if tokio::time::timeout(DEADLINE, waiting).await.is_err() {
        let said: Vec<_> = source
            .latest()
            .into_iter()
            .map(|it| (it.origin, it.lost, it.server.error.clone()))
            .collect();
        panic!("did not come to be: {what}; at last {said:?}");
    }
    watched
}

fn holder(watched: &Watched) -> Option<&Holder> {
    watched.server.locks.as_ref()?.iter().find(|lock| lock.key == Key::bigint(42))?.holders.first()
}

#[tokio::test]
async fn our_own_connection_shows_who_holds_and_says_why_it_is_alone() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    let mut source = start(&[("main", &postgres.dsn("app"))], None, SOON);
    let [first] = &source.changed().await[..] else { panic!("one server") };
    assert!(!first.is_seen() && first.server.error.is_none());
    let watched = until(&mut source, "the holder is seen", |it| holder(&it[0]).is_some()).await;
    assert_eq!(watched[0].origin.to_string(), "own connection (no exporter is asked)");
    assert!(watched[0].lost.is_none() && elapsed(watched[0].received_at) < DEADLINE);

    let nobody = Port::reserve();
    let url = format!("http://me:S3cr3t@127.0.0.1:{}", nobody.number());
    let mut source = start(&[("main", &postgres.dsn("app"))], Some(&url), SOON);
    let expected = format!("own connection (no exporter at http://127.0.0.1:{})", nobody.number());
    until(&mut source, "it says that nobody is there", |it| {
        it[0].is_seen() && it[0].origin.to_string() == expected
    })
    .await;
}

#[tokio::test]
async fn a_lost_server_keeps_its_last_picture_with_its_age_and_comes_back() {
    require!(Postgres);
    let mut postgres = Postgres::start().await;
    let session = postgres.holds("pod-a", "42").await;
    let mut source = start(&[("main", &postgres.dsn("app"))], None, SOON);
    until(&mut source, "the holder is seen", |it| holder(&it[0]).is_some()).await;
    let stopped = now();
    drop(session);
    postgres.stop().await;
    let watched = until(&mut source, "it is lost", |it| it[0].lost.is_some()).await;
    let lost = watched[0].lost.clone().expect("it is lost");
    assert!(lost.since >= stopped && watched[0].received_at <= lost.since);
    assert!(watched[0].server.up && watched[0].server.locks.is_some(), "the last picture stays");
    let again = until(&mut source, "it is refused", |it| {
        it[0].lost.as_ref().is_some_and(|lost| lost.reason.contains("refused"))
    })
    .await;
    assert_eq!(again[0].lost.as_ref().map(|lost| lost.since), Some(lost.since));
    assert_eq!(again[0].received_at, watched[0].received_at);
    postgres.start_again().await;
    source.refresh();
    let watched = until(&mut source, "it is back", |it| it[0].lost.is_none()).await;
    assert!(holder(&watched[0]).is_none() && watched[0].received_at > lost.since);
}

#[tokio::test]
async fn a_server_that_was_never_seen_says_why() {
    let nobody = Port::reserve();
    let dsn = format!("postgresql://me:S3cr3t@127.0.0.1:{}/app", nobody.number());
    let mut source = start(&[("main", &dsn)], None, SOON);
    let watched = until(&mut source, "it says why", |it| it[0].server.error.is_some()).await;
    let error = watched[0].server.error.as_deref().unwrap_or_default();
    assert!(error.contains("refused") && !error.contains("S3cr3t"), "{error}");
    assert!(!watched[0].is_seen() && watched[0].lost.is_none());
}

#[tokio::test]
async fn a_hanging_server_holds_up_no_other() {
    require!(Postgres);
    let (silent, healthy) = (Postgres::start().await, Postgres::start().await);
    let servers = [("silent", &*silent.dsn("app")), ("healthy", &*healthy.dsn("app"))];
    let mut source = start(&servers, None, SOON);
    until(&mut source, "both are seen", |it| it.iter().all(Watched::is_seen)).await;
    let observer = silent.session("observer").await;
    let backend = observer
        .value("SELECT pid FROM pg_stat_activity WHERE application_name = 'locks'")
        .await
        .and_then(|pid| pid.parse().ok())
        .expect("our backend");
    let frozen = Frozen::freeze(&[silent.process_id(), backend]);
    let _holder = healthy.holds("pod-a", "42").await;
    let watched = until(&mut source, "the other goes on", |it| holder(&it[1]).is_some()).await;
    assert!(watched[0].is_seen() && watched[1].lost.is_none());
    drop(frozen);
}

/// When our own connection last did something.
async fn last_poll(observer: &Session) -> Option<String> {
    observer
        .value("SELECT state_change::text FROM pg_stat_activity WHERE application_name = 'locks'")
        .await
}

#[tokio::test]
async fn paused_nothing_is_polled_but_what_is_asked_for_and_the_connection_stays() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let observer = postgres.session("observer").await;
    let mut source = start(&[("main", &postgres.dsn("app"))], None, SOON);
    until(&mut source, "it is seen", |it| it[0].is_seen()).await;
    source.set_pace(SOON, true);
    // A poll may be on its way; after it nothing is.
    let before = eventually("polls have stopped", async || {
        let one = last_poll(&observer).await;
        tokio::time::sleep(4 * SOON).await;
        assert_eq!(last_poll(&observer).await, one);
        one
    })
    .await;
    assert!(before.is_some(), "the connection stays");
    let seen = source.latest()[0].received_at;

    let _holder = postgres.holds("pod-a", "42").await;
    assert!(holder(&source.latest()[0]).is_none());
    source.refresh();
    let watched = until(&mut source, "the refresh shows it", |it| holder(&it[0]).is_some()).await;
    assert!(watched[0].received_at > seen);
    source.set_pace(SOON, false);
    let again = watched[0].received_at;
    until(&mut source, "polls go on", |it| it[0].received_at > again).await;
    let backends = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'locks'";
    assert_eq!(observer.value(backends).await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_refresh_and_a_shorter_interval_end_a_long_one() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let mut source = start(&[("main", &postgres.dsn("app"))], None, NEVER);
    let seen = until(&mut source, "it is seen", |it| it[0].is_seen()).await[0].received_at;
    source.refresh();
    let watched = until(&mut source, "it is polled", |it| it[0].received_at > seen).await;
    assert_eq!(watched[0].interval, NEVER);
    let seen = watched[0].received_at;
    source.set_interval(SOON);
    let watched = until(&mut source, "it is polled", |it| it[0].received_at > seen).await;
    assert_eq!(watched[0].interval, SOON);
}

#[tokio::test]
async fn an_exporter_of_the_same_server_lends_its_memory() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .registry("locks: [{ name: nightly, key: 42 }]")
        .start()
        .await;
    exporter.scrape_fresh().await;
    let session = postgres.holds("billing", "42").await;
    let first = exporter.scrape_fresh().await;
    first.sample("pg_advisory_lock_holders").with("lock", "nightly").is(1.0);
    let before = exporter.snapshot().await;
    session.run("SET application_name = 'somebody else'").await;
    exporter.scrape_fresh().await;

    let mut source = start(&[("here", &postgres.dsn("app"))], Some(&exporter.url()), SOON);
    let watched = until(&mut source, "it is remembered", |it| {
        matches!(it[0].origin, Origin::Remembered { .. }) && holder(&it[0]).is_some()
    })
    .await;
    let expected = format!("own connection, with the memory of the exporter at {}", exporter.url());
    assert_eq!(watched[0].origin.to_string(), expected);
    let holder = holder(&watched[0]).expect("it is held");
    let since = &before["locks"][0]["holders"][0]["since"];
    assert_eq!(&serde_json::to_value(holder.since).expect("a moment"), since);
    assert_eq!(holder.first_application_name.as_deref(), Some("billing"));
    assert!(holder.seen_to_begin);
    assert_eq!(holder.session.application_name.as_deref(), Some("somebody else"));
    let lock = &watched[0].server.locks.as_ref().expect("it is up")[0];
    assert_eq!(lock.lock.as_deref(), Some("nightly"));

    let lock = LockId::of(&watched[0].server, lock);
    let history = source.fetch_history(lock.clone()).await.expect("the exporter tells");
    assert!(history.iter().any(|event| &*event.event == "hold_began"), "{history:?}");
    let other = LockId { datname: "app2".into(), ..lock };
    assert!(source.fetch_history(other).await.expect("it tells").is_empty());

    // Of another server it is of no use, though it is a copy with the same system identifier.
    let stranger = Postgres::start().await;
    let mut source = start(&[("here", &stranger.dsn("app"))], Some(&exporter.url()), SOON);
    let expected = format!(
        "own connection (no use of the exporter at {}: it watches another server)",
        exporter.url()
    );
    until(&mut source, "it says so", |it| it[0].origin.to_string() == expected).await;
}

#[tokio::test]
async fn the_exporter_alone_is_shown_with_its_servers_and_lost_with_it() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    let client = client::Exporter::parse(&exporter.url()).expect("an address");
    let mut source = Source::start(Subject::Exporter(client), SOON).expect("a thread");
    let watched = until(&mut source, "the holder is seen", |it| holder(&it[0]).is_some()).await;
    assert_eq!(watched[0].origin.to_string(), format!("exporter at {}", exporter.url()));
    drop(exporter);
    let watched = until(&mut source, "it is lost", |it| it[0].lost.is_some()).await;
    assert!(holder(&watched[0]).is_some(), "the last picture stays");
}

#[tokio::test]
async fn a_role_without_rights_knows_the_server_again() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let admin = postgres.session("admin").await;
    admin.run("CREATE ROLE watcher LOGIN").await;
    let dsn = format!("postgresql://watcher@127.0.0.1:{}/app", postgres.port());
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    exporter.scrape_fresh().await;
    let mut source = start(&[("here", &dsn)], Some(&exporter.url()), SOON);
    until(&mut source, "it is the same", |it| matches!(it[0].origin, Origin::Remembered { .. }))
        .await;
    // Everybody may, unless somebody was careful.
    let revoke = "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC";
    admin.run("CREATE DATABASE careful").await;
    postgres.session_in("careful", "admin").await.run(revoke).await;
    let dsn = format!("postgresql://watcher@127.0.0.1:{}/careful", postgres.port());
    let mut source = start(&[("here", &dsn)], Some(&exporter.url()), SOON);
    until(&mut source, "it says why not", |it| {
        it[0].is_seen() && it[0].origin.to_string().contains("did not tell its system identifier")
    })
    .await;
}
