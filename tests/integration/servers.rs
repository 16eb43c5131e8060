//! Several servers in one exporter: each on its own, changed while the program runs, and discovered by
//! Prometheus one by one.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::files::Files;
use crate::support::port::Port;
use crate::support::process::{Frozen, run};
use crate::support::{
    Exporter, Postgres, Prometheus, Relay, Scrape, Session, eventually, exporter, locks, require,
};

/// The backends of exporters, by process id.
pub async fn backends(observer: &Session) -> BTreeSet<String> {
    let sql = "SELECT coalesce(string_agg(pid::text, ' '), '') FROM pg_stat_activity \
               WHERE application_name = 'locks'";
    let pids = observer.value(sql).await.unwrap_or_default();
    pids.split_whitespace().map(str::to_owned).collect()
}

/// A configuration with these servers, each a line of its own.
pub fn config(servers: &[String]) -> String {
    let servers: String = servers.iter().map(|server| format!("  - {{ {server} }}\n")).collect();
    format!("poll: {{ interval: 100ms, max_share: 1 }}\nservers:\n{servers}")
}

pub fn server(name: &str, postgres: &Postgres) -> String {
    format!("name: {name}, dsn: '{}'", postgres.dsn("postgres"))
}

pub async fn until_up(exporter: &Exporter, server: &str) -> Scrape {
    eventually("the server is polled", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_up").with("server", server).is(1.0);
        scrape
    })
    .await
}

#[tokio::test]
async fn servers_come_change_and_go_and_the_others_notice_nothing() {
    require!(Postgres);
    let (a, b, c) = (Postgres::start().await, Postgres::start().await, Postgres::start().await);
    let observers = [
        a.session_in("postgres", "observer").await,
        b.session_in("postgres", "observer").await,
        c.session_in("postgres", "observer").await,
    ];
    let _holder = a.holds("pod-a", "42").await;
    let files = Files::new();
    let path = files.write("locks.yaml", &config(&[server("a", &a), server("b", &b)]));
    let exporter = Exporter::serve(&["--config.file", &path]).await;
    until_up(&exporter, "b").await;
    let before = until_up(&exporter, "a").await;
    let since = |scrape: &Scrape| {
        scrape.sample("pg_advisory_lock_held_since_timestamp_seconds").with("server", "a").value()
    };
    let (held_since, ours) = (since(&before), backends(&observers[0]).await);
    assert_eq!(ours.len(), 1);

    // One more, one that goes.
    files.write("locks.yaml", &config(&[server("c", &c), server("a", &a)]));
    let scrape = until_up(&exporter, "c").await;
    scrape.sample("pg_advisory_up").with("server", "b").absent();
    let of_b = scrape
        .samples()
        .iter()
        .filter(|sample| sample.labels.get("server").is_some_and(|server| server == "b"));
    assert_eq!(of_b.count(), 0, "nothing is left of it");
    eventually("its connection is closed", async || {
        assert_eq!(backends(&observers[1]).await.len(), 0);
    })
    .await;
    assert_eq!(
        exporter
            .logged(&["reloaded the configuration", "added=c", "removed=b", "unchanged=1"])
            .len(),
        1
    );

    // One that changes begins anew; the other keeps its connection and what it knows.
    let changed = server("c", &c) + ", poolers: [local]";
    files.write("locks.yaml", &config(&[changed, server("a", &a)]));
    let of_c = backends(&observers[2]).await;
    eventually("the changed one is connected anew", async || {
        let now = backends(&observers[2]).await;
        assert!(now.len() == 1 && now != of_c, "{now:?} {of_c:?}");
    })
    .await;
    let after = until_up(&exporter, "a").await;
    assert_eq!(backends(&observers[0]).await, ours, "the connection of the one that stays");
    assert!((since(&after) - held_since).abs() < 0.001, "a hold does not begin anew");
    let polls =
        |scrape: &Scrape| scrape.sample("pg_advisory_polls_total").with("server", "a").value();
    assert!(polls(&after) > polls(&before), "counters go on");
}

#[tokio::test]
async fn a_broken_configuration_changes_nothing_and_is_told_until_it_is_mended() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let files = Files::new();
    let good = config(&[server("a", &postgres)]);
    let path = files.write("locks.yaml", &good);
    let exporter = Exporter::serve(&["--config.file", &path]).await;
    let observer = postgres.session_in("postgres", "observer").await;
    let reloaded = "pg_advisory_config_last_reload_successful";
    until_up(&exporter, "a").await.sample(reloaded).is(1.0);
    for broken in [
        "servers: [{ nmae: a }]\n".to_owned(),
        "servers: [{ dsn: 'postgresql://u:S3cr3t-canary@h:x' }]\n".to_owned(),
        good.clone() + "limits: { keys: -1 }\n",
    ] {
        files.write("locks.yaml", &broken);
        eventually("the fault is told", async || {
            let scrape = exporter.scrape().await;
            scrape.sample(reloaded).is(0.0);
            scrape.sample("pg_advisory_up").with("server", "a").is(1.0);
        })
        .await;
        files.write("locks.yaml", &good);
        eventually("the mend is taken", async || exporter.scrape().await.sample(reloaded).is(1.0))
            .await;
    }
    let told = exporter.logged(&["level=error", "cannot reload the configuration", &path]);
    assert_eq!(told.len(), 3, "each once: {told:?}");
    assert!(!exporter.log().contains("canary"));

    // A file that is empty for a while is one that lists no servers, which would end all.
    let ours = backends(&observer).await;
    files.write("locks.yaml", "");
    eventually("the fault is told", async || exporter.scrape().await.sample(reloaded).is(0.0))
        .await;
    assert_eq!(exporter.logged(&["level=error", "lists no `servers` any more"]).len(), 1);
    files.write("locks.yaml", &good);
    eventually("the mend is taken", async || exporter.scrape().await.sample(reloaded).is(1.0))
        .await;
    assert_eq!(backends(&observer).await, ours, "the connection outlived it all");

    // What only a restart applies is told.
    files.write("locks.yaml", &(good + "limits: { keys: 7 }\nstate_file: elsewhere.json\n"));
    eventually("it is told", async || {
        let told = exporter.logged(&["which only a restart applies", "limits, state_file"]);
        assert_eq!(told.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn what_applies_to_all_servers_changes_while_they_are_polled() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let holder = postgres.holds("svc-billing-7f9c", "42").await;
    holder.run("BEGIN").await;
    let observer = postgres.session_in("postgres", "observer").await;
    let files = Files::new();
    files.write("first.yaml", "locks: [{ name: first, key: 42 }]");
    files.write("second.yaml", "locks: [{ name: second, key: 42 }]");
    let servers = format!("servers: [{{ {} }}]\n", server("a", &postgres));
    let path = files.write(
        "locks.yaml",
        &format!("{servers}poll: {{ interval: 1h }}\nregistry: [first.yaml]\n"),
    );
    let exporter = Exporter::serve(&["--config.file", &path, "--poll.timeout", "7s"]).await;
    let before = until_up(&exporter, "a").await;
    before.sample("pg_advisory_lock_holders").with("lock", "first").is(1.0);
    let ours = backends(&observer).await;

    files.write(
        "locks.yaml",
        &format!(
            "{servers}poll: {{ interval: 100ms, timeout: 3s, max_share: 1 }}\n\
             registry: [second.yaml]\n\
             applications: [{{ match: '^(svc-[a-z]+)-.*$', name: '$1' }}]\n\
             thresholds: {{ idle_in_transaction: 1ms }}\n"
        ),
    );
    let after = eventually("all of it applies", async || {
        let scrape = exporter.scrape().await;
        let holders =
            scrape.sample("pg_advisory_lock_holders").with("application_name", "svc-billing");
        holders.with("lock", "second").is(1.0);
        let finding = scrape.sample("pg_advisory_lock_findings").with("lock", "second");
        finding.with("finding", "holder_idle_in_transaction").is(1.0);
        scrape.sample("pg_advisory_poll_interval_configured_seconds").is(0.1);
        scrape
    })
    .await;
    let value = |scrape: &Scrape, name| scrape.sample(name).value();
    let since = "pg_advisory_lock_held_since_timestamp_seconds";
    assert!((value(&after, since) - value(&before, since)).abs() < 0.001, "the hold goes on");
    assert_eq!(backends(&observer).await, ours, "so does the connection");
    let told = exporter.logged(&["reloaded the configuration", "unchanged=1"]);
    assert!(told[0].contains("keys=\"poll, applications, thresholds\""), "{told:?}");

    // Registry files that are not there leave the names as they are, until they come.
    files.write("locks.yaml", &format!("{servers}registry: [third.yaml]\n"));
    let reloaded = "pg_advisory_registry_last_reload_successful";
    eventually("the fault is told", async || exporter.scrape().await.sample(reloaded).is(0.0))
        .await;
    files.write("third.yaml", "locks: [{ name: third, key: 42 }]");
    eventually("the new file is read", async || {
        let scrape = exporter.scrape().await;
        scrape.sample(reloaded).is(1.0);
        scrape.sample("pg_advisory_lock_holders").with("lock", "third").is(1.0);
    })
    .await;
}

#[tokio::test]
async fn flags_win_over_the_file_whenever_it_is_read() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let files = Files::new();
    let path = files.write("locks.yaml", "");
    let dsn = postgres.dsn("postgres");
    let flags = ["--config.file", &path, "--dsn", &dsn, "--poll.interval", "200ms"];
    let exporter = Exporter::serve(&flags).await;
    let server = format!("127.0.0.1:{}", postgres.port());
    until_up(&exporter, &server).await;
    files.write("locks.yaml", "poll: { interval: 5s }\nthresholds: { prepared: 7m }\n");
    eventually("it is read", async || {
        assert_eq!(exporter.logged(&["reloaded the configuration", "keys=thresholds"]).len(), 1);
    })
    .await;
    let interval = "pg_advisory_poll_interval_configured_seconds";
    until_up(&exporter, &server).await.sample(interval).is(0.2);
    // Two answers to the question which servers to watch.
    files.write("locks.yaml", &format!("servers: [{{ name: b, dsn: '{dsn}' }}]\n"));
    eventually("it is refused", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_config_last_reload_successful").is(0.0);
        scrape.sample("pg_advisory_up").with("server", &server).is(1.0);
    })
    .await;
}

#[tokio::test]
async fn one_server_becomes_two_hundred_and_one_again() {
    require!(Postgres);
    const MANY: usize = 200;
    let postgres = Postgres::builder().setting("max_connections", MANY + 20).start().await;
    let observer = postgres.session_in("postgres", "observer").await;
    let all: Vec<String> = (0..MANY).map(|n| server(&format!("s-{n}"), &postgres)).collect();
    let write = |files: &Files, servers: &[String]| {
        files.write("locks.yaml", &config(servers).replace("100ms", "2s"))
    };
    let files = Files::new();
    let path = write(&files, &all[..1]);
    let exporter = Exporter::serve(&["--config.file", &path]).await;
    until_up(&exporter, "s-0").await;
    let first = backends(&observer).await;
    write(&files, &all);
    eventually("each is polled over a connection of its own", async || {
        let up = exporter.scrape().await.sample("pg_advisory_up").values();
        assert_eq!((up.len(), up.iter().sum::<f64>()), (MANY, MANY as f64));
        assert_eq!(backends(&observer).await.len(), MANY);
    })
    .await;
    write(&files, &all[..1]);
    eventually("the others are gone", async || {
        assert_eq!(exporter.scrape().await.sample("pg_advisory_up").values(), [1.0]);
        assert_eq!(backends(&observer).await, first, "the first was here all along");
    })
    .await;
}

#[tokio::test]
async fn commands_and_the_state_file_follow_the_servers_that_are_watched() {
    require!(Postgres);
    let (a, b, c) = (Postgres::start().await, Postgres::start().await, Postgres::start().await);
    let holder = c.holds("pod-c", "7").await;
    let files = Files::new();
    let registry = files.write(
        "registry.yaml",
        "locks: [{ name: nightly, key: 7, databases: [app], max_hold: 1ms, role: any }]",
    );
    let state = files.path("state.json");
    let path = files.write("locks.yaml", &config(&[server("a", &a), server("b", &b)]));
    let state_flag = state.display().to_string();
    let flags = ["--config.file", &path, "--registry.file", &registry, "--state.file", &state_flag];
    let mut exporter = Exporter::serve(&flags).await;
    until_up(&exporter, "a").await;
    until_up(&exporter, "b").await;
    files.write("locks.yaml", &config(&[server("c", &c), server("a", &a)]));
    let scrape = until_up(&exporter, "c").await;
    let held = "pg_advisory_lock_last_held_timestamp_seconds";
    let last_held = scrape.sample(held).with("server", "c").with("lock", "nightly").value();

    let shown = run(locks(&["top", "--once", "--json", "--from", &exporter.url()])).await;
    let shown: Value = serde_json::from_str(&shown.stdout).expect("it is JSON");
    let servers = shown["servers"].as_array().expect("servers").iter();
    assert_eq!(servers.map(|it| &it["server"]).collect::<Vec<_>>(), ["c", "a"]);
    let checked = run(locks(&["check", "--samples", "1", "--from", &exporter.url()])).await;
    assert_eq!(checked.code, Some(1), "{}", checked.stdout);
    assert!(
        checked.stdout.contains("nightly") && checked.stdout.contains("on c"),
        "{}",
        checked.stdout
    );

    exporter.signal("TERM");
    exporter.exit_status().await;
    let text = fs::read_to_string(&state).expect("the state was written");
    let kept: Value = serde_json::from_str(&text).expect("it is JSON");
    let servers = kept["servers"].as_array().expect("sections").iter();
    let kept: Vec<&Value> = servers.map(|it| &it["server"]).collect();
    assert_eq!(kept, ["a", "c"], "what is not watched is forgotten");
    drop(holder);
    let next = Exporter::serve(&flags).await;
    let scrape = eventually("it is remembered", async || {
        let scrape = until_up(&next, "c").await;
        scrape.sample(held).with("server", "c").with("lock", "nightly").value();
        scrape
    })
    .await;
    let remembered = scrape.sample(held).with("server", "c").with("lock", "nightly").value();
    assert!(remembered >= last_held - 1.0, "{remembered} {last_held}");
}

/// As the kubelet exchanges a ConfigMap: a new folder, and a link that is renamed.
fn mount(root: &Path, version: &str, text: &str) {
    fs::create_dir(root.join(version)).expect("the folder is ours");
    fs::write(root.join(version).join("locks.yaml"), text).expect("the folder is ours");
    symlink(version, root.join("..data_tmp")).expect("the folder is ours");
    fs::rename(root.join("..data_tmp"), root.join("..data")).expect("the folder is ours");
}

#[tokio::test]
async fn a_config_map_that_is_swapped_is_read_again() {
    require!(Postgres);
    let (a, b) = (Postgres::start().await, Postgres::start().await);
    let home = tempfile::tempdir().expect("a folder can be made");
    mount(home.path(), "..1", &config(&[server("a", &a)]));
    symlink("..data/locks.yaml", home.path().join("locks.yaml")).expect("the folder is ours");
    let path = home.path().join("locks.yaml");
    let exporter = Exporter::serve(&["--config.file", &path.to_string_lossy()]).await;
    until_up(&exporter, "a").await;
    mount(home.path(), "..2", &config(&[server("b", &b)]));
    let scrape = until_up(&exporter, "b").await;
    scrape.sample("pg_advisory_up").with("server", "a").absent();
}

#[tokio::test]
async fn one_that_is_dead_or_hangs_delays_none_of_the_others() {
    require!(Postgres);
    let (good, hung) = (Postgres::start().await, Postgres::start().await);
    let dead = Port::reserve();
    let mute = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mute_port = mute.local_addr().expect("it listens").port();
    let files = Files::new();
    let path = files.write(
        "locks.yaml",
        &config(&[
            format!("name: dead, dsn: 'host=127.0.0.1 port={} user=u'", dead.number()),
            format!("name: mute, dsn: 'host=127.0.0.1 port={mute_port} user=u connect_timeout=2'"),
            server("hung", &hung),
            server("good", &good),
        ]),
    );
    let exporter = Exporter::serve(&["--config.file", &path, "--poll.timeout", "500ms"]).await;
    until_up(&exporter, "hung").await;
    until_up(&exporter, "good").await;
    let observer = hung.session_in("postgres", "observer").await;
    let ours: Vec<u32> =
        backends(&observer).await.iter().map(|pid| pid.parse().expect("a number")).collect();
    let _frozen = Frozen::freeze(&[ours, vec![hung.process_id()]].concat());
    eventually("the hanging one is down, and each has its reason", async || {
        let scrape = exporter.scrape().await;
        for down in ["dead", "mute", "hung"] {
            scrape.sample("pg_advisory_up").with("server", down).is(0.0);
            let failed = scrape.sample("pg_advisory_poll_failures_total").with("server", down);
            assert!(failed.values().iter().sum::<f64>() > 0.0, "{down}");
            scrape.sample("pg_advisory_lock_rows").with("server", down).absent();
        }
    })
    .await;
    // Meanwhile the good one is as fresh as ever.
    let polls = async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_up").with("server", "good").is(1.0);
        let last = scrape.sample("pg_advisory_last_poll_timestamp_seconds").with("server", "good");
        let age = exporter::unix_seconds(exporter::now()) - last.value();
        assert!(age < 5.0, "the last poll was {age} s ago");
        scrape.sample("pg_advisory_polls_total").with("server", "good").value()
    };
    let before = polls().await;
    eventually("it goes on", async || assert!(polls().await >= before + 10.0)).await;
}

#[tokio::test]
async fn a_server_is_scraped_by_its_name_and_by_nothing_else() {
    require!(Postgres, Promtool);
    let (a, b) = (Postgres::start().await, Postgres::start().await);
    let files = Files::new();
    let path = files.write("locks.yaml", &config(&[server("a", &a), server("'b & co'", &b)]));
    let exporter = Exporter::serve(&["--config.file", &path]).await;
    until_up(&exporter, "a").await;
    until_up(&exporter, "b & co").await;
    let get = async |path: &str| exporter.get(path, &[]).await;

    let answer = get("/probe?target=b%20%26%20co").await;
    assert_eq!(answer.status, 200);
    let scrape = Scrape::parse(answer.text());
    scrape.sample("pg_advisory_up").is(1.0);
    let strangers: Vec<_> = scrape
        .samples()
        .iter()
        .filter(|sample| sample.labels.get("server").map(String::as_str) != Some("b & co"))
        // The alerts look for it beside the series of locks.
        .filter(|sample| sample.name != "pg_advisory_lock_info")
        .collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    crate::support::prometheus::assert_metrics_pass(answer.text());
    for (path, status) in [
        ("/probe", 400),
        ("/probe?target=", 400),
        ("/probe?target=a&target=b", 400),
        ("/probe?target=nobody", 404),
        ("/probe?target=postgresql://127.0.0.1/app", 404),
        ("/probe?target=host%3D127.0.0.1", 404),
    ] {
        assert_eq!(get(path).await.status, status, "{path}");
    }
    let backends_of_b = backends(&b.session_in("postgres", "observer").await).await;
    assert_eq!(backends_of_b.len(), 1, "no request makes a connection");

    let targets: Value = serde_json::from_str(get("/api/v1/targets").await.text()).expect("JSON");
    let address = exporter.address().to_string();
    let target = |name: &str| {
        json!({
            "targets": [address],
            "labels": {
                "__scheme__": "http", "__metrics_path__": "/probe",
                "__param_target": name, "instance": name,
            },
        })
    };
    assert_eq!(targets, json!([target("a"), target("b & co")]));
}

/// A job of `docs/servers.md`, with the addresses of these exporters.
pub fn documented_job(example: &str, exporters: &[&Exporter]) -> Value {
    let document = include_str!("../../docs/servers.md");
    let (_, rest) = document.split_once(&format!("```json {example}\n")).expect("it is there");
    let (text, _) = rest.split_once("```").expect("the example ends");
    let mut job: Value = serde_json::from_str(text).expect("the example is JSON, which is YAML");
    let urls = exporters.iter().map(|exporter| {
        let url = format!("http://{}/api/v1/targets", exporter.address());
        json!({ "url": url, "refresh_interval": "1s" })
    });
    if !exporters.is_empty() {
        job["http_sd_configs"] = urls.collect();
    }
    job
}

/// The job of one of several Prometheus servers.
fn documented_shard(exporters: &[&Exporter], shard: usize) -> Value {
    let mut job = documented_job("shard", exporters);
    let rules = job["relabel_configs"].as_array_mut().expect("it has rules");
    rules[1]["regex"] = json!(shard.to_string());
    job
}

#[tokio::test]
async fn prometheus_discovers_every_server_of_every_exporter_once_however_many_share_the_work() {
    require!(Postgres, Prometheus);
    let (a, b) = (Postgres::start().await, Postgres::start().await);
    let files = Files::new();
    let names = |prefix: &str| (0..4).map(|n| format!("{prefix}-{n}")).collect::<Vec<_>>();
    let write = |file: &str, postgres: &Postgres, prefix: &str| {
        let servers: Vec<String> =
            names(prefix).iter().map(|name| server(name, postgres)).collect();
        files.write(file, &config(&servers))
    };
    let first = write("first.yaml", &a, "first");
    let second = write("second.yaml", &b, "second");
    let exporters = [
        Exporter::serve(&["--config.file", &first]).await,
        Exporter::serve(&["--config.file", &second]).await,
    ];
    let all: Vec<&Exporter> = exporters.iter().collect();
    let expected: BTreeSet<String> = names("first").into_iter().chain(names("second")).collect();
    let shards = [
        Prometheus::start_with_job(&[], &documented_shard(&all, 0), &[]).await,
        Prometheus::start_with_job(&[], &documented_shard(&all, 1), &[]).await,
    ];
    eventually("each is scraped by one of them", async || {
        let mut seen: Vec<String> = Vec::new();
        for prometheus in &shards {
            let up = prometheus.query("up").await;
            let polled = prometheus.query("pg_advisory_up == 1").await;
            assert!(up.iter().all(|(_, value)| *value > 0.0), "{up:?}");
            for (labels, _) in &polled {
                assert_eq!(labels["instance"], labels["server"]);
            }
            assert!(polled.len() < expected.len(), "the work is shared: {polled:?}");
            seen.extend(polled.iter().map(|(labels, _)| labels["server"].clone()));
        }
        assert_eq!(seen.len(), expected.len(), "each once: {seen:?}");
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), expected);
    })
    .await;
}

#[tokio::test]
async fn a_pair_of_exporters_tells_the_same_series() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    let _waiter = postgres.waits("pod-b", "42").await;
    let files = Files::new();
    let path = files.write("locks.yaml", &config(&[server("a", &postgres)]));
    let pair = [
        Exporter::serve(&["--config.file", &path]).await,
        Exporter::serve(&["--config.file", &path]).await,
    ];
    eventually("both tell the same", async || {
        let mut told = Vec::new();
        for exporter in &pair {
            let scrape = exporter.scrape().await;
            scrape.sample("pg_advisory_lock_waiters").with("key", "42").is(1.0);
            let series: BTreeSet<String> = scrape
                .samples()
                .iter()
                .map(|sample| format!("{} {:?}", sample.name, sample.labels))
                .collect();
            told.push(series);
        }
        assert!(told[0].len() > 40, "{told:?}");
        assert_eq!(told[0], told[1]);
    })
    .await;
}

#[tokio::test]
async fn a_file_that_is_written_all_the_time_is_applied_when_it_rests() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let relay = Relay::start(&postgres).await;
    let files = Files::new();
    let path = files.write("locks.yaml", &config(&[server("a", &postgres)]));
    let exporter = Exporter::serve(&["--config.file", &path]).await;
    until_up(&exporter, "a").await;
    for round in 0..300 {
        files.write("locks.yaml", &config(&[server(&format!("round-{round}"), &postgres)]));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    files.write("locks.yaml", &config(&[format!("name: last, dsn: '{}'", relay.dsn("postgres"))]));
    until_up(&exporter, "last").await;
    let reloads = exporter.logged(&["reloaded the configuration"]).len();
    assert!(reloads <= 4, "{reloads} reloads");
}
