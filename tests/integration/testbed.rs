//! The test bed tests itself: what other tests lean on is shown here to hold, and to fail.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::files::Files;
use crate::support::{
    Browser, Exporter, PgBouncer, PoolMode, Postgres, Prometheus, Relay, Scheme, Session, Terminal,
    View, eventually_within, http, prometheus, require,
};

#[tokio::test]
async fn a_throwaway_server_answers_over_loopback_and_socket() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("max_prepared_transactions", 7).start().await;
    for dsn in [postgres.dsn("app"), postgres.socket_dsn("app2")] {
        let session = Session::connect(&dsn, "pod-a").await;
        let setting = session.value("SHOW max_prepared_transactions").await;
        assert_eq!(setting.as_deref(), Some("7"), "over {dsn}");
        assert_eq!(session.value("SHOW application_name").await.as_deref(), Some("pod-a"));
    }
}

#[tokio::test]
async fn a_server_comes_back_on_its_port_after_a_stop_and_after_a_crash() {
    require!(Postgres);
    let mut postgres = Postgres::start().await;
    let before = postgres.holds("pod-a", "42").await;
    postgres.restart().await;
    assert!(before.try_run("SELECT 1").await.is_err(), "a session outlived its server");
    postgres.kill().await;
    postgres.start_again().await;
    let after = postgres.session("pod-a").await;
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    assert_eq!(after.value(locks).await.as_deref(), Some("0"));
    assert!(postgres.log().contains("automatic recovery"), "{}", postgres.log());
}

#[tokio::test]
async fn a_session_waits_for_another_until_it_closes() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let holder = postgres.holds("pod-a", "42").await;
    let first = postgres.waits("pod-b", "42").await;
    let second = postgres.waits("pod-c", "42").await;
    assert!(!first.statement.is_finished());
    second.statement.cancel().await;

    holder.close().await;
    first.statement.finish().await;
    let observer = postgres.session("observer").await;
    let holders =
        observer.rows("SELECT pid, granted FROM pg_locks WHERE locktype = 'advisory'").await;
    assert_eq!(holders, [[Some(first.session.pid().to_string()), Some("t".to_owned())]]);
}

#[tokio::test]
async fn a_pooler_gives_one_backend_to_two_clients_only_in_transaction_mode() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    for (mode, is_shared) in [(PoolMode::Transaction, true), (PoolMode::Session, false)] {
        let pooler = PgBouncer::start(&postgres, mode, 2).await;
        let (pod_a, pod_b) = (pooler.session("pod-a").await, pooler.session("pod-b").await);
        let backend = "SELECT pg_backend_pid()";
        let (of_a, of_b) = (pod_a.value(backend).await, pod_b.value(backend).await);
        assert!(of_a.is_some());
        assert_eq!(of_a == of_b, is_shared, "in {mode} mode");
        let console = pooler.console().await;
        assert!(!console.rows("SHOW SERVERS").await.is_empty());
    }
}

#[tokio::test]
async fn prometheus_is_ready_and_answers_queries() {
    require!(Prometheus);
    let prometheus = Prometheus::start(&[]).await;
    let answer = prometheus.query("label_replace(vector(2) + 1, \"a\", \"b c\", \"\", \"\")").await;
    assert_eq!(answer[0].0["a"], "b c");
    assert_eq!(answer[0].1, 3.0);
    assert_eq!(http::get(prometheus.address(), "/nowhere", &[]).await.status, 404);
}

#[test]
fn promtool_accepts_good_metrics_and_refuses_bad_ones() {
    require!(Promtool);
    prometheus::assert_metrics_pass(
        "# HELP a_seconds Time.\n# TYPE a_seconds gauge\na_seconds 1\n",
    );
    let complaint =
        prometheus::promtool(&["check", "metrics"], "# TYPE a_total gauge\na_total 1\n");
    assert!(!complaint.status.success());
}

#[tokio::test]
async fn the_relay_tells_one_round_trip_from_two_and_sees_statement_names() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let relay = Relay::start(&postgres).await;
    let session = Session::connect_pooled(&relay.dsn("app"), "pod-a").await;

    session.run("SELECT 1; SELECT 2").await;
    let bursts = relay.bursts();
    assert_eq!(bursts.len(), 1);
    assert_eq!((bursts[0].messages.as_str(), bursts[0].reads), ("Q", 1));
    assert_eq!(bursts[0].statements, ["SELECT 1; SELECT 2"]);

    relay.forget();
    // Sent without waiting for each other: two answers are owed, one round trip pays both.
    let (first, second) = tokio::join!(session.try_run("SELECT 4"), session.try_run("SELECT 5"));
    first.and(second).expect("both run");
    let bursts = relay.bursts();
    assert_eq!(bursts.len(), 1, "{bursts:?}");
    assert_eq!((bursts[0].messages.as_str(), bursts[0].answers), ("QQ", 2));

    relay.forget();
    // The driver names and describes a statement in a first round trip and runs it in a second;
    // the third, which closes it, nobody waits for.
    session.client().query("SELECT 3", &[]).await.expect("a query");
    let bursts = relay.bursts();
    let messages: Vec<&str> = bursts.iter().map(|burst| burst.messages.as_str()).collect();
    assert_eq!(messages[..2], ["PDS", "BES"]);
    assert_eq!(bursts[0].named_statements.len(), 1);
}

#[tokio::test]
async fn what_is_so_only_later_is_waited_for() {
    let mut attempts = 0;
    let value = eventually_within(Duration::from_secs(5), "the third attempt", async || {
        attempts += 1;
        assert_eq!(attempts, 3);
        "reached"
    })
    .await;
    assert_eq!(value, "reached");
}

#[tokio::test]
#[should_panic(expected = "did not come to be: one is two, within 100ms; the last failure: \
                           panicked at tests/integration/testbed.rs")]
async fn what_never_comes_to_be_ends_with_its_last_failure() {
    eventually_within(Duration::from_millis(100), "one is two", async || assert_eq!(1, 2)).await;
}

#[tokio::test]
async fn a_terminal_shows_what_a_program_draws_and_how_it_leaves() {
    require!(Tmux);
    let terminal = Terminal::start(60, 10).await;
    terminal.allow_clipboard();
    let before = terminal.settings();
    // It takes the screen, answers a key, and leaves by what the next one says.
    let files = Files::new();
    let program = files.write(
        "program.sh",
        "old=$(stty -g); stty raw -echo; printf '\\033[?1049h\\033[?25l\\033[31mred\\033[0m\\r\\n'
        key() { dd bs=1 count=1 2>/dev/null; }
        printf \"$SAYS $(key)\\033]52;c;Y29waWVk\\007\"
        [ \"$(key)\" = a ] || { stty \"$old\"; printf '\\033[?1049l\\033[?25h'; }
        printf '\\r\\n'; exit 3",
    );
    for (way, is_clean) in [("c", true), ("a", false)] {
        let mut command = Command::new("sh");
        command.arg(&program).env("SAYS", "it's");
        terminal.run(&command);
        terminal.until_shows(&["red"]).await;
        assert_ne!(terminal.settings(), before);
        assert!(terminal.colored_screen().contains("\u{1b}[31mred"));
        terminal.press("K");
        terminal.until_shows(&["it's K"]).await;
        assert_eq!(terminal.clipboard(), "copied");
        terminal.press(way);
        assert_eq!(terminal.until_ended().await, 3);
        assert_eq!(terminal.settings() == before, is_clean);
    }
}

#[tokio::test]
async fn a_program_in_a_terminal_is_told_of_its_size_and_can_be_stopped_and_killed() {
    require!(Tmux);
    let terminal = Terminal::start(60, 10).await;
    let files = Files::new();
    let program = files.write(
        "program.sh",
        "trap 'stty size' WINCH; trap 'echo again' CONT; stty size; while :; do sleep 0.1; done",
    );
    let mut command = Command::new("sh");
    command.arg(program);
    terminal.run(&command);
    terminal.until_shows(&["10 60"]).await;
    terminal.resize(70, 20);
    terminal.until_shows(&["20 70"]).await;
    terminal.press("C-z");
    assert_eq!(terminal.until_ended().await, 128 + Signal::TSTP.as_raw());
    terminal.type_text("fg");
    terminal.press("Enter");
    terminal.until_shows(&["again"]).await;
    terminal.resize(50, 15);
    terminal.until_shows(&["15 50"]).await;
    terminal.signal("KILL");
    assert_eq!(terminal.until_ended().await, 128 + Signal::KILL.as_raw());
}

/// Something of each kind that the tests of pages look for.
const PAGE: &str = "<!doctype html><title>A page</title>
    <meta http-equiv=content-security-policy content=\"script-src 'none'; img-src *\">
    <style>p { display: none } div { width: 3000px; height: 3000px }
    @media (prefers-color-scheme: dark) { .dark { display: block } }
    @media (prefers-reduced-motion) { .still { display: block } }</style>
    <h1>Locks</h1><p class=dark>Dark</p><p class=still>Still</p>
    <details><summary>More</summary><div>Wide</div></details><button aria-label=Count>1</button>";

#[tokio::test]
async fn a_page_is_seen_as_its_reader_sees_it() {
    require!(Chromium, Node);
    let files = Files::new();
    let url = format!("file://{}", files.write("page.html", PAGE));
    let browser = Browser::start().await;
    for (scheme, script, reduced_motion, text) in [
        (Scheme::Dark, false, true, "Locks\n\nDark\n\nStill\n\nMore\n1"),
        (Scheme::Light, true, false, "Locks\nMore\n1"),
    ] {
        let view = View { width: 390, height: 600, scheme, script, reduced_motion };
        let page = browser.open(&url, view).await;
        assert_eq!(page.text().await, text);
        assert_eq!(page.eval::<[u32; 2]>("[innerWidth, innerHeight]").await, [390, 600]);
        page.resize(500, 300).await;
        assert_eq!(page.eval::<u32>("innerWidth").await, 500);
        assert_eq!(page.errors().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_page_is_used_by_keyboard_and_mouse_and_drawn_whole() {
    require!(Chromium, Node);
    let files = Files::new();
    let url = format!("file://{}", files.write("page.html", PAGE));
    let browser = Browser::start().await;
    let page = browser.open(&url, View { script: false, ..View::default() }).await;
    let tree = page.accessibility().await;
    assert!(tree.contains("\n  heading \"Locks\" level=1\n"), "{tree}");
    assert!(tree.contains("DisclosureTriangle \"More\" expanded=false"), "{tree}");
    assert!(tree.contains("button \"Count\""), "{tree}");

    page.press("Tab").await;
    page.press("Enter").await;
    page.wait_for("document.querySelector('details').open").await;
    assert!(page.text().await.contains("Wide"));
    let picture = files.path("page.png");
    page.screenshot(&picture).await;
    let picture = std::fs::read(picture).expect("it was drawn");
    // A PNG begins with its signature and a header with its width and height.
    let number = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
    assert!(picture.starts_with(b"\x89PNG") && number(16) >= 3000 && number(20) >= 3000);

    page.click("summary").await;
    page.wait_for("!document.querySelector('details').open").await;
    page.click("summary").await;
    page.reload().await;
    assert!(!page.text().await.contains("Wide"));
}

#[tokio::test]
async fn what_goes_wrong_on_a_page_is_told() {
    require!(Chromium, Node);
    let files = Files::new();
    let browser = Browser::start().await;
    for (name, html, error) in [
        ("refused.html", format!("{PAGE}<script>1</script>"), "Content Security Policy"),
        ("thrown.html", "<script>nowhere()</script>".to_owned(), "nowhere is not defined"),
        ("said.html", "<script>console.error('said')</script>".to_owned(), "said"),
        ("missing.html", format!("{PAGE}<img src=missing.png>"), "ERR_FILE_NOT_FOUND"),
    ] {
        let url = format!("file://{}", files.write(name, &html));
        let page = browser.open(&url, View::default()).await;
        let errors = page.errors().await;
        assert!(matches!(&*errors, [one] if one.contains(error)), "{name}: {errors:?}");
        let is_asked_for = name == "missing.html";
        let missing = format!("file://{}", files.path("missing.png").display());
        assert_eq!(page.requests().await.contains(&missing), is_asked_for, "{name}");
    }
}

#[tokio::test]
async fn a_page_of_the_exporter_is_opened_with_its_headers() {
    require!(Chromium, Node);
    let exporter = Exporter::serve(&["--dsn", "host=127.0.0.1 port=1"]).await;
    let browser = Browser::start().await;
    let page = browser.open(&exporter.url(), View::default()).await;
    assert_eq!(page.status().await, 200);
    assert!(page.headers().await["content-type"].starts_with("text/html"));
    assert_eq!(page.requests().await[0], format!("{}/", exporter.url()));
    page.close().await;
}

#[tokio::test]
async fn a_browser_leaves_nothing_running() {
    require!(Chromium, Node);
    let browser = Browser::start().await;
    let page = browser.open("about:blank", View::default()).await;
    assert_eq!(page.eval::<u32>("1 + 1").await, 2);
    let home = browser.home().to_owned();
    let is_used = |home: &std::path::Path| {
        let processes = std::fs::read_dir("/proc").expect("there are processes").flatten();
        let command = |process: std::fs::DirEntry| std::fs::read(process.path().join("cmdline"));
        let home = home.to_str().expect("it is text");
        processes.flat_map(command).any(|line| String::from_utf8_lossy(&line).contains(home))
    };
    assert!(is_used(&home));
    drop(browser);
    assert!(!is_used(&home) && !home.exists());
}
