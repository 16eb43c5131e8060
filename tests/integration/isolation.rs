//! Servers, names and files that are slow or never answer: whoever they belong to is told to be down or
//! late, and nobody else notices.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::servers::{config, server, until_up};
use crate::support::exporter::{self, Exporter};
use crate::support::files::Files;
use crate::support::port::Port;
use crate::support::{Postgres, Relay, eventually, require};

/// Polls of the good one go on, fresh at every scrape.
async fn assert_goes_on(exporter: &Exporter, server: &str) {
    let polls = async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_up").with("server", server).is(1.0);
        let last = scrape.sample("pg_advisory_last_poll_timestamp_seconds").with("server", server);
        let age = exporter::unix_seconds(exporter::now()) - last.value();
        assert!(age < 5.0, "the last poll was {age} s ago");
        scrape.sample("pg_advisory_polls_total").with("server", server).value()
    };
    let before = polls().await;
    eventually("it goes on", async || assert!(polls().await >= before + 10.0)).await;
}

async fn until_down(exporter: &Exporter, server: &str) {
    eventually("it is told to be down", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_up").with("server", server).is(0.0);
        let failed = scrape.sample("pg_advisory_poll_failures_total").with("server", server);
        assert!(failed.values().iter().sum::<f64>() > 0.0, "nothing was tried yet");
        scrape.sample("pg_advisory_lock_rows").with("server", server).absent();
    })
    .await;
}

#[tokio::test]
async fn a_slow_server_is_polled_slowly_and_delays_no_other() {
    require!(Postgres);
    let (good, far) = (Postgres::start().await, Postgres::start().await);
    let delay = Duration::from_millis(300);
    let relay = Relay::start_slow(&far, delay).await;
    let files = Files::new();
    let far = format!("name: far, dsn: '{}'", relay.dsn("postgres"));
    let path = files.write("locks.yaml", &config(&[far, server("good", &good)]));
    let exporter = Exporter::serve(&["--config.file", &path]).await;
    let scrape = until_up(&exporter, "far").await;
    let took =
        |server| scrape.sample("pg_advisory_poll_duration_seconds").with("server", server).value();
    assert!(took("far") >= delay.as_secs_f64(), "{}", took("far"));
    let polls = |server| scrape.sample("pg_advisory_polls_total").with("server", server).value();
    assert!(polls("good") > polls("far"), "{} {}", polls("good"), polls("far"));
    assert_goes_on(&exporter, "good").await;
    until_up(&exporter, "far").await;
}

/// A resolver that never answers for some names, in the place of the system's.
const RESOLVER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

typedef int resolver(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
    while (node && strstr(node, ".lost.example")) pause();
    return ((resolver *)dlsym(RTLD_NEXT, "getaddrinfo"))(node, service, hints, found);
}
"#;

#[tokio::test]
async fn names_that_nobody_resolves_delay_neither_polls_nor_scrapes() {
    require!(Postgres, Compiler);
    let good = Postgres::start().await;
    let files = Files::new();
    let (source, library) = (files.write("resolver.c", RESOLVER), files.path("resolver.so"));
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .args([&source, "-ldl"])
        .status()
        .expect("the compiler can be run");
    assert!(compiled.success());
    // More than there are threads for anything else.
    let lost = (0..20).map(|n| {
        format!("name: lost-{n}, dsn: 'host=db-{n}.lost.example user=u connect_timeout=2'")
    });
    let servers: Vec<String> = lost.chain([server("good", &good)]).collect();
    let path = files.write("locks.yaml", &config(&servers));
    let mut command = exporter::serve(&["--config.file", &path]);
    command.env("LD_PRELOAD", &library);
    let exporter = Exporter::start(command).await;
    until_up(&exporter, "good").await;
    for n in 0..20 {
        until_down(&exporter, &format!("lost-{n}")).await;
    }
    assert_goes_on(&exporter, "good").await;
}

#[tokio::test]
async fn a_password_file_that_never_ends_delays_its_own_server_alone() {
    require!(Postgres);
    let good = Postgres::start().await;
    let nobody = Port::reserve();
    let files = Files::new();
    let password = files.write("password", "S3cr3t");
    let waits = format!(
        "name: waits, dsn: 'host=127.0.0.1 port={} user=u connect_timeout=2', password_file: {password}",
        nobody.number()
    );
    let path = files.write("locks.yaml", &config(&[waits, server("good", &good)]));
    let exporter = Exporter::serve(&["--config.file", &path]).await;
    until_up(&exporter, "good").await;
    // As a file system does that went away: whoever opens it waits.
    let pipe = files.path("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo can be run");
    assert!(made.success());
    fs::rename(&pipe, &password).expect("the folder is ours");
    eventually("it is told that it waits", async || {
        assert_eq!(exporter.logged(&["server=waits", "no connection within 2s"]).len(), 1);
    })
    .await;
    assert_goes_on(&exporter, "good").await;
    until_down(&exporter, "waits").await;
}
