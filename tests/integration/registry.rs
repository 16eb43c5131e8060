//! `locks registry` through the built binary: what goes to which stream with which exit code, and
//! the way from an empty registry to one in which every lock of the fleet has a name.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use pg_locks_exporter::key::Key;
use pg_locks_exporter::registry::{Circumstances, MAX_KEYS, Registry, Resolver, Signs};
use serde_json::Value;

use crate::support::files::Files;
use crate::support::port::Port;
use crate::support::process::{Outcome, run};
use crate::support::{
    Exporter, Fleet, PgBouncer, PoolMode, Postgres, eventually, eventually_within, locks, require,
};

async fn registry(arguments: &[&str]) -> Outcome {
    let mut command = locks(&["registry"]);
    command.args(arguments).stdin(Stdio::null());
    run(command).await
}

#[tokio::test]
async fn files_without_a_fault_are_summed_up_on_standard_output() {
    let files = Files::new();
    let one = files.write("one.yaml", "locks: [{ name: a, keys: [1, 2] }]");
    let two = files.write("two.yaml", "locks: [{ name: b, key: { range: [7, 9] } }]");
    let Outcome { code, stdout, stderr } = registry(&["check", &one, &two]).await;
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(stdout, "2 files: 2 entries, 3 keys, no conflicts\n");
    assert_eq!(stderr, "");
}

#[tokio::test]
async fn all_that_is_wrong_is_told_on_standard_error_at_once() {
    let files = Files::new();
    let bad = files.write("bad.yaml", "locks:\n- { name: a, key: 010 }\n- { nam: b, key: 1 }\n");
    let one = files.write("one.yaml", "locks:\n- { name: one, key: 42 }\n");
    let two = files.write("two.yaml", "locks:\n- { name: two, key: 42 }\n");
    let gone = files.path("gone.yaml").display().to_string();
    let Outcome { code, stdout, stderr } = registry(&["check", &bad, &one, &two, &gone]).await;
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    for piece in [
        format!("cannot read registry file {gone}: No such file"),
        format!("{bad}:2:19: 010 begins with a zero"),
        "\n  2 | - { name: a, key: 010 }\n    |                   ^\n".to_owned(),
        format!("{bad}:3:5: unknown field \"nam\" in an entry"),
        format!("{one}:2:21: key 42 has more than one name: \"one\" (42 at {one}:2), \"two\""),
    ] {
        assert!(stderr.contains(&piece), "{piece}\n{stderr}");
    }
    assert!(stderr.ends_with("\n4 files: 1 unreadable file, 2 faults, 1 conflict\n"), "{stderr}");
}

#[tokio::test]
async fn standard_input_is_checked_as_a_file() {
    let files = Files::new();
    let good = files.write("good.yaml", "locks: [{ name: a, key: 1 }]");
    let bad = files.write("bad.yaml", "locks: {}\n");
    for (file, code, said) in
        [(good, 0, "1 file: 1 entry"), (bad, 1, "<stdin>:1:8: locks is a list")]
    {
        let mut command = locks(&["registry", "check", "-"]);
        command.stdin(File::open(&file).expect("it was written"));
        let outcome = run(command).await;
        assert_eq!(outcome.code, Some(code));
        let all = outcome.stdout + &outcome.stderr;
        assert!(all.starts_with(said), "{all}");
    }
    assert_eq!(registry(&["check"]).await.code, Some(2));
}

#[tokio::test]
async fn every_name_is_listed_for_people_and_for_scripts() {
    let files = Files::new();
    let file = files.write(
        "locks.yaml",
        "locks:\n- { name: cron, key: { hashtext: jobs }, databases: [app] }\n\
         - { name: migrations, key: { crc32: \"{database}\" } }\n",
    );
    let table = registry(&["list", "--registry.file", &file]).await;
    assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""));
    let cells: Vec<Vec<&str>> =
        table.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(cells[0], ["NAME", "KEY", "DATABASES", "FROM", "WRITTEN", "AS"]);
    let place = format!("{file}:2");
    assert_eq!(cells[1], ["cron", "-1679774495", "app", &place, "hashtext(\"jobs\")"]);
    assert!(table.stdout.contains(" preset rails"), "{}", table.stdout);

    let list = ["list", "--registry.file", &file, "--json", "--database", "app2"];
    let json: Value = serde_json::from_str(&registry(&list).await.stdout).expect("it is JSON");
    assert_eq!(json["keys"][0]["name"], "migrations", "cron is of another database");
    assert_eq!(json["keys"][0]["key"], "298258268");

    let bad = files.write("bad.yaml", "locks: {}\n");
    let refused = registry(&["list", "--registry.file", &bad]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""));
}

#[tokio::test]
async fn what_cannot_be_looked_at_is_told_with_exit_code_1() {
    let nobody = Port::reserve();
    let place = format!("127.0.0.1:{}", nobody.number());
    let dsn = format!("postgresql://me:S3cr3t@{place}/app");
    let url = format!("http://me:S3cr3t@{place}");
    let refused = "Connection refused (os error 111)";
    for (arguments, said) in [
        (["--dsn", &dsn], format!("locks: {place}: cannot connect: {refused}\n")),
        (["--from", &url], format!("locks: http://{place}: cannot connect: {refused}\n")),
    ] {
        let outcome = registry(&[&["suggest"], &arguments[..]].concat()).await;
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""), "{arguments:?}");
        assert!(outcome.stderr.ends_with(&said), "{}", outcome.stderr);
        assert!(!outcome.stderr.contains("S3cr3t"), "{}", outcome.stderr);
    }
    for (arguments, said) in [
        (["--from", "ftp://me:S3cr3t@h"], "locks: --from: an address begins with http://"),
        (["--from", "me:S3cr3t@h"], "locks: --from: an address begins with http://"),
        (["--samples", "0"], "error: invalid value '0' for '--samples <N>'"),
        (["--registry.file", "/nowhere.yaml"], "locks: cannot read registry file /nowhere.yaml"),
    ] {
        let outcome = registry(&[&["suggest"], &arguments[..]].concat()).await;
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(outcome.stderr.starts_with(said), "{}", outcome.stderr);
        assert!(!outcome.stderr.contains("S3cr3t"), "{}", outcome.stderr);
    }
}

#[tokio::test]
async fn an_exporter_is_found_by_any_address_of_its_own() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("app")).start().await;
    exporter.scrape_fresh().await;
    let url = exporter.url();
    let nothing = registry(&["suggest", "--samples", "1", "--from", &url]).await;
    assert_eq!(nothing.code, Some(0), "{}", nothing.stderr);
    assert!(nothing.stdout.starts_with("# Nothing to suggest: "), "{}", nothing.stdout);
    // With its metrics' address it is found too.
    let metrics = format!("{url}/metrics");
    let found = registry(&["suggest", "--samples", "1", "--from", &metrics]).await;
    assert_eq!(found.code, Some(0), "{}", found.stderr);
    let elsewhere = format!("{url}/elsewhere");
    let lost = registry(&["suggest", "--from", &elsewhere]).await;
    assert_eq!(lost.code, Some(1));
    assert!(lost.stderr.contains("answered 404 Not Found"), "{}", lost.stderr);
}

#[tokio::test]
async fn of_several_servers_those_that_are_up_get_their_entries() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let nobody = Port::reserve();
    let _holder = postgres.holds("pod: a", "42424242").await;
    let files = Files::new();
    let config = files.write(
        "locks.yaml",
        &format!(
            "servers:\n- {{ name: up, dsn: \"{}\" }}\n- {{ name: down, dsn: \"host=127.0.0.1 \
             port={} user=me\" }}\napplications: [{{ match: '^pod: (.*)$', name: 'pods-$1' }}]\n",
            postgres.dsn("postgres"),
            nobody.number()
        ),
    );
    let suggest = ["suggest", "--config.file", &config, "--samples", "1"];
    let Outcome { code, stdout, stderr } = registry(&suggest).await;
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.starts_with("locks: down: cannot connect"), "{stderr}");
    assert!(
        stdout.ends_with(
            "  - name: pods-a-1\n    key: 42424242\n    databases: [app]\n    \
             servers: [up]\n"
        ),
        "{stdout}"
    );
}

/// Every key that the applications of the fleet take, by database.
fn fleet_keys() -> Vec<(&'static str, Key)> {
    let bigints = [
        6_110_350_855_857_795_459,
        4_646_360_110_713_121_735,
        3_527_008_159_069_678_219,
        -1_507_432_483,
        5005,
        1,
        42,
        i64::MIN,
        i64::MAX,
        -1,
        7007,
        9001,
        9002,
        1010,
        4242,
        99,
        (5 << 32) | 42,
        -663_048_221,
        1919,
        -2_009_229_123_736_490_489,
    ];
    let pairs = [(0, 1), (i32::MIN, i32::MAX), (-1, -1), (7, 99)];
    let mut keys: Vec<_> =
        bigints.into_iter().chain(1_000_000..1_000_400).map(Key::bigint).collect();
    keys.extend(pairs.map(|(first, second)| Key::pair(first, second)));
    let mut keys: Vec<_> = keys.into_iter().map(|key| ("app", key)).collect();
    keys.push(("app2", Key::bigint(42)));
    keys.push(("app2", Key::bigint(-2_537_241_598_836_690_277)));
    keys
}

fn unnamed(registry_file: &Path) -> Vec<(&'static str, Key)> {
    let registry = Registry::load(&[registry_file.to_owned()], MAX_KEYS);
    let registry = Arc::new(registry.unwrap_or_else(|error| panic!("{error}")));
    let resolver = Resolver::new(registry, "any".into(), &Circumstances::default());
    let mut keys = fleet_keys();
    keys.retain(|(database, key)| {
        resolver.resolve(Some(database), *key, Signs::default()).lock.is_none()
    });
    keys
}

/// Suggests and puts the entries under those of the file, until nothing is left to name.
async fn fill(registry_file: &Path, from: &[&str]) {
    let file = registry_file.display().to_string();
    eventually_within(Duration::from_secs(60), "every lock has a name", async || {
        let look = ["suggest", "--samples", "20", "--interval", "100ms", "--registry.file", &file];
        let outcome = registry(&[&look[..], from].concat()).await;
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert_eq!(outcome.stderr, "");
        if let Some((_, entries)) = outcome.stdout.split_once("\nlocks:\n") {
            let mut text = fs::read_to_string(registry_file).expect("it is ours");
            text.push_str(entries);
            fs::write(registry_file, text).expect("it is ours");
        }
        let unnamed = unnamed(registry_file);
        assert!(unnamed.is_empty(), "without a name: {unnamed:?}");
    })
    .await;
}

#[tokio::test]
async fn pasting_what_is_suggested_names_every_lock_of_the_fleet() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 5).await;
    let fleet = Fleet::start(&postgres, Some(&pooler));
    let dsn = postgres.dsn("postgres");

    let files = Files::new();
    let own = files.path("own.yaml");
    let read = files.path("read.yaml");
    for file in [&own, &read] {
        fs::write(file, "locks:\n").expect("the folder is ours");
    }
    let exporter = Exporter::watching(&dsn)
        .argument("--registry.file")
        .argument(&read.display().to_string())
        .start()
        .await;
    let url = exporter.url();
    let (connecting, reading) = (["--dsn", &dsn], ["--from", &url]);
    tokio::join!(fill(&own, &connecting), fill(&read, &reading));

    for file in [&own, &read] {
        let checked = registry(&["check", &file.display().to_string()]).await;
        assert_eq!(checked.code, Some(0), "{}", checked.stderr);
        let text = fs::read_to_string(file).expect("it is ours");
        for piece in ["# guess: one lock for each row", "# guess: 5 and 42, packed", "held by pod-"]
        {
            assert!(text.contains(piece), "{piece}\n{text}");
        }
    }
    exporter.signal("HUP");
    eventually("the exporter gives every lock its name", async || {
        let snapshot = exporter.snapshot().await;
        let locks = snapshot["locks"].as_array().expect("locks are listed");
        assert!(locks.len() > 10, "{}", locks.len());
        let unnamed: Vec<&Value> = locks.iter().filter(|lock| lock["lock"].is_null()).collect();
        assert!(unnamed.is_empty(), "{unnamed:?}");
    })
    .await;
    fleet.end().await;
}
