//! Our hashes are the server's, and the exporter says so or says where they differ.

use pg_locks_exporter::registry::hash::{hashtext, hashtextextended};
use pg_locks_exporter::registry::{HashCall, HashCheck, HashFunction};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::support::{Exporter, Postgres, eventually, require};
use crate::watch::connect;

/// Text of this length: any characters but NUL, from all planes.
fn random_text(random: &mut StdRng, characters: usize) -> String {
    let mut text = String::new();
    while text.chars().count() < characters {
        // As many of each encoded width, one to four bytes.
        let range = match random.random_range(0..4) {
            0 => 0x1..0x80,
            1 => 0x80..0x800,
            2 => 0x800..0x1_0000,
            _ => 0x1_0000..0x11_0000,
        };
        text.extend(char::from_u32(random.random_range(range)));
    }
    text
}

/// Random bytes, made valid text.
fn random_bytes(random: &mut StdRng, length: usize) -> String {
    let bytes: Vec<u8> = (0..length).map(|_| random.random_range(1..=u8::MAX)).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn our_hashes_are_the_servers_on_thousands_of_texts() {
    require!(Postgres);
    let number = rand::random::<u64>();
    println!("the seed of this run is {number}");
    let mut random = StdRng::seed_from_u64(number);

    let mut texts: Vec<String> =
        ["", "cron:recalc-reward-points", "café", "é", "漢字", "🔒", "\u{10ffff}"]
            .map(str::to_owned)
            .to_vec();
    texts.extend((0..=64).map(|length| "abcdefgh".repeat(8)[..length].to_owned()));
    texts.extend((0..=64).map(|length| random_text(&mut random, length)));
    texts.extend((0..=64).map(|length| random_bytes(&mut random, length)));
    texts.extend([1023, 4096, 9999].map(|length| random_text(&mut random, length)));
    for _ in 0..1000 {
        let length = random.random_range(1..200);
        texts.push(random_text(&mut random, length));
    }
    let mut cases: Vec<(&str, i64)> = Vec::new();
    for text in &texts {
        let seeds = [0, 1, -1, i64::MIN, i64::MAX, random.random()];
        cases.extend(seeds.map(|seed| (text.as_str(), seed)));
    }

    let postgres = Postgres::start().await;
    let session = postgres.session("hasher").await;
    let (texts, seeds): (Vec<&str>, Vec<i64>) = cases.iter().copied().unzip();
    let rows = session
        .client()
        .query(
            "SELECT hashtext(t), hashtextextended(t, s) \
             FROM unnest($1::text[], $2::int8[]) WITH ORDINALITY AS v (t, s, n) ORDER BY n",
            &[&texts, &seeds],
        )
        .await
        .expect("the server hashes");
    assert_eq!(rows.len(), cases.len());
    for ((text, seed), row) in cases.into_iter().zip(rows) {
        let ours = (hashtext(text.as_bytes()), hashtextextended(text.as_bytes(), seed));
        assert_eq!(ours, (row.get(0), row.get(1)), "{text:?} under {seed}; seed {number}");
    }
}

#[tokio::test]
async fn a_hash_that_the_server_computes_differently_is_told_and_no_other() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let connection = connect(&postgres.dsn("app")).await;
    let check = |function, text: &str, seed, value| HashCheck {
        call: HashCall { function, text: text.into(), seed },
        value,
    };
    let right = [
        check(HashFunction::Hashtext, "jobs", 0, hashtext(b"jobs").into()),
        check(HashFunction::Hashtextextended, "café", 7, hashtextextended("café".as_bytes(), 7)),
    ];
    let wrong = [
        check(HashFunction::Hashtext, "mails", 0, i64::from(hashtext(b"mails")) + 1),
        // The same text under another seed: the value of seed 7.
        check(HashFunction::Hashtextextended, "café", 8, right[1].value),
    ];
    let all = [&right[..], &wrong[..]].concat();
    let mismatches = connection.fetch_hash_mismatches(&all).await.expect("an answer");
    // With the server's own value, which is what its sessions lock.
    let expected = [
        (wrong[0].call.clone(), hashtext(b"mails").into()),
        (wrong[1].call.clone(), hashtextextended("café".as_bytes(), 8)),
    ];
    assert_eq!(mismatches, expected.into());
}

#[tokio::test]
async fn hashed_names_of_the_registry_are_compared_with_the_server_and_name_its_keys() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let folder = tempfile::tempdir().expect("a folder can be made");
    let registry = folder.path().join("registry.yaml");
    let text = "locks:
  - { name: jobs, key: { hashtext: jobs } }
  - { name: coffee, key: { hashtextextended: 'café 🔒' } }
  - { name: nightly, key: { pair: [{ hashtext: jobs }, { hashtext: 'job:nightly' }] } }
";
    std::fs::write(&registry, text).expect("the folder is ours");
    let dsn = postgres.dsn("app");
    let exporter = Exporter::serve(&[
        "--dsn",
        &dsn,
        "--registry.file",
        &registry.display().to_string(),
        "--poll.interval",
        "100ms",
    ])
    .await;
    let _jobs = postgres.holds("pod-a", "hashtext('jobs')").await;
    let _coffee = postgres.holds("pod-a", "hashtextextended('café 🔒', 0)").await;
    let _nightly = postgres.holds("pod-a", "hashtext('jobs'), hashtext('job:nightly')").await;
    eventually("all three locks are held by name", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_hash_mismatches").is(0.0);
        for lock in ["jobs", "coffee", "nightly"] {
            let holders = scrape.sample("pg_advisory_lock_holders").with("datname", "app");
            holders.with("lock", lock).with("application_name", "pod-a").is(1.0);
        }
    })
    .await;
}

#[tokio::test]
async fn one_text_names_the_key_that_each_database_makes_of_it_in_its_own_encoding() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let admin = postgres.session("admin").await;
    for encoding in ["LATIN1", "WIN1252", "EUC_JP", "SQL_ASCII"] {
        let locale = "TEMPLATE template0 LOCALE 'C'";
        admin.run(&format!("CREATE DATABASE {encoding} ENCODING '{encoding}' {locale}")).await;
    }
    let registry = "locks:
  - { name: coffee, key: { hashtext: 'café' } }
  - { name: dots, key: { hashtextextended: 'é…', seed: 7 } }
  - { name: work, key: { pair: [{ hashtext: '仕事' }, { hashtext: ジョブ }] } }
";
    // What the session of an application locks, and what no encoding of its database can write.
    let locks = [
        ("coffee", "hashtext('café')"),
        ("dots", "hashtextextended('é…', 7)"),
        ("work", "hashtext('仕事'), hashtext('ジョブ')"),
    ];
    let names = [
        ("app", &["coffee", "dots", "work"][..]),
        ("latin1", &["coffee"]),
        ("win1252", &["coffee", "dots"]),
        ("euc_jp", &["work"]),
    ];
    let mut sessions = Vec::new();
    let mut keys = Vec::new();
    for (datname, named) in names {
        for (lock, argument) in locks.into_iter().filter(|(lock, _)| named.contains(lock)) {
            let session = postgres.session_in(datname, "pod-a").await;
            session.run(&format!("SELECT pg_advisory_lock({argument})")).await;
            let key = "SELECT classid || '/' || objid FROM pg_locks \
                       WHERE pid = pg_backend_pid() AND locktype = 'advisory'";
            keys.push((lock, session.value(key).await));
            sessions.push(session);
        }
    }
    let distinct: std::collections::HashSet<_> = keys.iter().collect();
    // LATIN1 and WIN1252 write é in the same byte, and nothing else is alike.
    assert_eq!(distinct.len() + 1, keys.len(), "{keys:?}");
    // A database that does not know what its bytes mean: here they are those of UTF8, elsewhere not.
    let unknown = postgres.session_in("sql_ascii", "pod-a").await;
    unknown.run("SELECT pg_advisory_lock(hashtext('café'))").await;

    let exporter = Exporter::watching(&postgres.dsn("app")).registry(registry).start().await;
    eventually("each lock has its name", async || {
        let scrape = exporter.scrape_fresh().await;
        scrape.sample("pg_advisory_hash_mismatches").is(0.0);
        let holders = |datname| scrape.sample("pg_advisory_lock_holders").with("datname", datname);
        for (datname, named) in names {
            for lock in named {
                holders(datname).with("lock", lock).with("application_name", "pod-a").is(1.0);
            }
            holders(datname).with("lock", "unregistered").absent();
        }
        holders("sql_ascii").with("lock", "unregistered").is(1.0);
        holders("sql_ascii").with("lock", "coffee").absent();
    })
    .await;
}
