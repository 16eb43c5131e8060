//! An exporter behind a proxy that speaks TLS, looked at through the built binary.

use std::process::Stdio;

use crate::support::files::Files;
use crate::support::process::{Outcome, run};
use crate::support::tls::TlsProxy;
use crate::support::{Exporter, Postgres, locks, require};

/// Three looks through an exporter, with a file of certificates that the system is to trust.
async fn check(arguments: &[&str], system: Option<&str>) -> Outcome {
    let mut command = locks(&["check", "--samples", "3", "--interval", "20ms", "--from"]);
    command.args(arguments).stdin(Stdio::null());
    command.env_remove("SSL_CERT_DIR").env_remove("SSL_CERT_FILE");
    if let Some(file) = system {
        command.env("SSL_CERT_FILE", file);
    }
    run(command).await
}

#[tokio::test]
async fn an_exporter_behind_tls_is_looked_at_by_who_trusts_it_over_one_connection() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    exporter.scrape_fresh().await;
    let proxy = TlsProxy::start(exporter.address()).await;
    let stranger = TlsProxy::start(exporter.address()).await;
    let files = Files::new();
    let ours = files.write("ours.pem", proxy.issuer());
    let others = files.write("others.pem", stranger.issuer());
    let url = proxy.url();

    for (arguments, system) in [
        (&[&*url, "--from.ca-file", &ours][..], None),
        (&[&*url], Some(&*ours)),
        // The file alone counts.
        (&[&*url, "--from.ca-file", &ours], Some(&*others)),
    ] {
        let before = proxy.handshakes();
        let outcome = check(arguments, system).await;
        let calm = format!(
            "LOCKS OK - no findings on 127.0.0.1:{}: 1 key held, 0 awaited | ",
            postgres.port()
        );
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{}", outcome.stdout);
        assert!(outcome.stdout.starts_with(&calm), "{}", outcome.stdout);
        assert_eq!(proxy.handshakes() - before, 1, "the connection is kept between looks");
    }

    let before = proxy.handshakes();
    let (misnamed, plain) = (proxy.misnamed_url(), exporter.url().replace("http:", "https:"));
    let mistrusted = "its certificate is of nobody that is trusted here: ";
    for (arguments, system, said) in [
        (&[&*url][..], None, mistrusted),
        (&[&*url], Some(&*others), mistrusted),
        (&[&*url, "--from.ca-file", &others], Some(&*ours), mistrusted),
        (&[&*misnamed], Some(&*ours), "its certificate is for another name: "),
        (&[&*plain], Some(&*ours), "is there a server without TLS at this port, for http://?: "),
    ] {
        let outcome = check(arguments, system).await;
        let expected =
            format!("LOCKS UNKNOWN - {}: the TLS handshake failed: {said}", arguments[0]);
        assert!(outcome.stdout.starts_with(&expected), "{}", outcome.stdout);
        assert_eq!(outcome.code, Some(3), "{}", outcome.stdout);
    }
    assert_eq!(proxy.handshakes(), before, "nobody that was not trusted was spoken to");
}
