//! The view of the one on call, in a terminal of its own against a real server: what is read, what
//! keys do, and that the terminal comes back whatever happens.

use std::process::Command;

use pg_locks_exporter::top::terminal::Terminal as OurTerminal;
use serde_json::Value;

use crate::support::files::Files;
use crate::support::process::{Process, run};
use crate::support::{Exporter, Postgres, Session, Terminal, eventually, locks, require};

const REGISTRY: &str = "\
defaults: { max_hold: 15m, max_wait: 1s }
locks:
  - name: nightly-billing
    key: 42
    databases: [app]
    owner: billing
    runbook: https://wiki.example.com/billing
    description: charges everybody once
";

/// `locks top` on the server alone.
fn top(postgres: &Postgres, arguments: &[&str]) -> Command {
    let dsn = postgres.dsn("postgres");
    let mut command = locks(&["top", "--dsn", &dsn, "--interval", "200ms"]);
    if !arguments.contains(&"--exporter") {
        command.args(["--exporter", "none"]);
    }
    command.args(arguments);
    command
}

fn registry() -> (Files, String) {
    let files = Files::new();
    let path = files.write("registry.yaml", REGISTRY);
    (files, path)
}

/// What is said in a box, in one line.
fn unbroken(screen: &str) -> String {
    let inside = screen.lines().filter_map(|line| {
        let (_, rest) = line.split_once('│')?;
        Some(rest.rsplit_once('│')?.0.trim())
    });
    inside.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn eighty_columns_tell_which_lock_who_holds_it_who_waits_and_what_to_do() {
    require!(Postgres, Tmux);
    let postgres = Postgres::start().await;
    let (_files, registry) = registry();
    let holder = postgres.holds("billing-a", "42").await;
    let waiter = postgres.waits("billing-b", "42").await;
    let command = top(&postgres, &["--registry.file", &registry]);
    let terminal = Terminal::running(80, 24, &command).await;
    let pid = holder.pid();
    let screen = terminal.until_shows(&["nightly-billing", "CRITICAL stuck", "PAUSED"]);
    let pause = async {
        terminal.until_shows(&["CRITICAL stuck"]).await;
        terminal.press("Space");
    };
    let (screen, ()) = tokio::join!(screen, pause);
    let row = screen.lines().find(|line| line.contains("nightly-billing ")).unwrap();
    for text in ["billing-a", "idle", "!stuck"] {
        assert!(row.contains(text), "no {text:?} in {row}");
    }
    assert!(screen.contains(&format!("remedy: SELECT pg_terminate_backend({pid})")), "{screen}");
    assert!(screen.contains("own connection (no exporter is asked)"), "{screen}");
    assert!(screen.contains("PostgreSQL"), "{screen}");

    terminal.press("3");
    let tree = terminal.until_shows(&["└─"]).await;
    let root =
        tree.lines().find(|line| line.starts_with(&format!("{pid} billing-a  idle"))).unwrap();
    assert!(root.contains("1 behind it") && root.contains(": nightly-billing"), "{tree}");
    let waits = format!("└─ {} billing-b  waits ", waiter.session.pid());
    assert!(tree.contains(&waits), "{tree}");
    assert!(tree.contains("for nightly-billing (exclusive)"), "{tree}");

    terminal.press("2");
    let sessions = terminal.until_shows(&["ROLE"]).await;
    let of = |role: &str| sessions.lines().find(|line| line.starts_with(role)).unwrap().to_owned();
    assert!(of("holder").contains(&pid.to_string()), "{sessions}");
    assert!(of("waiter").contains(&waiter.session.pid().to_string()), "{sessions}");
}

#[tokio::test]
async fn the_detail_of_a_key_has_the_registry_the_forms_of_the_key_and_its_past() {
    require!(Postgres, Tmux);
    let postgres = Postgres::start().await;
    let (_files, registry) = registry();
    let command = top(&postgres, &["--registry.file", &registry, "--show-queries"]);
    let terminal = Terminal::running(120, 60, &command).await;
    terminal.until_shows(&["no advisory lock is held or awaited"]).await;
    let holder = postgres.holds("billing-a", "42").await;
    let _waiter = postgres.waits("billing-b", "42").await;
    terminal.until_shows(&["nightly-billing"]).await;
    terminal.press("Enter");
    let detail = terminal
        .until_shows(&[
            "nightly-billing in app",
            "description  charges everybody once",
            "owner        billing",
            "runbook      https://wiki.example.com/billing",
            "max_hold     15m",
            "bigint       42",
            "classid/objid/objsubid 0/42/1",
            "hold began  billing-a",
            "query: SELECT pg_advisory_lock(42)",
            "its chain ends at",
        ])
        .await;
    assert!(detail.contains(&format!("session {} (billing-a)", holder.pid())), "{detail}");

    // Whoever is looked at stays, and is said to be gone.
    drop(_waiter);
    drop(holder);
    terminal.until_shows(&["it is gone"]).await;
    terminal.press("Escape");
    terminal.until_shows(&["no advisory lock is held or awaited"]).await;
}

#[tokio::test]
async fn what_a_session_runs_is_not_shown_unless_it_is_asked_for() {
    require!(Postgres, Tmux);
    let postgres = Postgres::start().await;
    let holder = postgres.session("billing-a").await;
    holder.run("SELECT pg_advisory_lock(42), 'S3cr3t-canary'").await;
    for (arguments, is_shown) in [(&[][..], false), (&["--show-queries"], true)] {
        let terminal = Terminal::running(120, 60, &top(&postgres, arguments)).await;
        terminal.until_shows(&["billing-a"]).await;
        terminal.press("Enter");
        let query = if is_shown { "S3cr3t-canary" } else { "bigint       42" };
        let detail = terminal.until_shows(&[query]).await;
        assert_eq!(detail.contains("canary"), is_shown, "{detail}");
        let once = run(top(&postgres, &[&["--once", "--json"], arguments].concat())).await;
        assert!(!once.stdout.contains("canary"), "{}", once.stdout);
    }
}

#[tokio::test]
async fn keys_filter_sort_pause_and_explain_themselves() {
    require!(Postgres, Tmux);
    let postgres = Postgres::start().await;
    let _one = postgres.holds("aardvark", "1").await;
    let _other = postgres.holds("zebra", "2").await;
    let terminal = Terminal::running(100, 24, &top(&postgres, &[])).await;
    terminal.until_shows(&["aardvark", "zebra"]).await;

    terminal.type_text("/ZEB");
    terminal.until_without(&["aardvark"]).await;
    terminal.press("Enter");
    terminal.until_shows(&["/ZEB", "q quit"]).await;
    terminal.press("Escape");
    terminal.until_shows(&["aardvark", "zebra"]).await;

    let order = |screen: &str| {
        let place = |name: &str| screen.lines().position(|line| line.contains(name)).unwrap();
        place("aardvark") < place("zebra")
    };
    terminal.press("s");
    terminal.until_shows(&["Sort by", "> findings"]).await;
    for _ in 0..7 {
        terminal.press("Up");
    }
    terminal.until_shows(&["> application"]).await;
    terminal.press("Enter");
    assert!(order(&terminal.until_shows(&["APPLICATION ^"]).await));
    terminal.press("I");
    assert!(!order(&terminal.until_shows(&["APPLICATION v"]).await));

    // The selection stays with whom it is on.
    terminal.press("G");
    terminal.until_shows(&["2 of 2", "key 1 is held by"]).await;
    terminal.press("I");
    terminal.until_shows(&["1 of 2", "key 1 is held by"]).await;

    terminal.press("Space");
    terminal.until_shows(&["PAUSED"]).await;
    let late = postgres.holds("too-late-to-be-seen", "3").await;
    terminal.press("+");
    terminal.until_shows(&["every"]).await;
    terminal.press("?");
    let help = terminal.until_shows(&["locks top: who holds which lock"]).await;
    assert!(help.contains("--allow-kill"), "{help}");
    terminal.press("q");
    terminal.until_without(&["too-late", "who holds which lock"]).await;
    terminal.press("r");
    terminal.until_shows(&["too-late-to-be-seen"]).await;
    drop(late);
}

#[tokio::test]
async fn the_remedy_goes_into_the_clipboard_of_the_terminal() {
    require!(Postgres, Tmux);
    let postgres = Postgres::start().await;
    let (_files, registry) = registry();
    let holder = postgres.holds("billing-a", "42").await;
    let _waiter = postgres.waits("billing-b", "42").await;
    let command = top(&postgres, &["--registry.file", &registry]);
    let terminal = Terminal::running(100, 24, &command).await;
    terminal.allow_clipboard();
    terminal.until_shows(&["CRITICAL stuck"]).await;
    terminal.press("y");
    terminal.until_shows(&["sent to the terminal's clipboard"]).await;
    let remedy = format!("SELECT pg_terminate_backend({})", holder.pid());
    eventually("the clipboard has the remedy", async || {
        let clipboard = terminal.clipboard();
        assert!(clipboard.starts_with(&remedy), "{clipboard}");
    })
    .await;
}

#[tokio::test]
async fn ending_the_holder_lets_the_waiter_in_after_a_question_that_names_it() {
    require!(Postgres, Tmux);
    let postgres = Postgres::start().await;
    let (_files, registry) = registry();
    let holder = postgres.holds("billing-a", "42").await;
    let waiter = postgres.waits("billing-b", "42").await;
    let command = top(&postgres, &["--registry.file", &registry, "--allow-kill"]);
    let terminal = Terminal::running(80, 24, &command).await;
    terminal.until_shows(&["nightly-billing"]).await;

    terminal.press("K");
    let (pid, next) = (holder.pid(), waiter.session.pid());
    let question = terminal.until_shows(&["y does it, any other key does not"]).await;
    let question = unbroken(&question);
    assert!(question.contains(&format!("End session {pid} (billing-a) on")), "{question}");
    assert!(question.contains("It holds nightly-billing, the first for"), "{question}");
    assert!(question.contains(&format!("{next} (billing-b) gets nightly-billing")), "{question}");
    assert!(question.contains("The program may go on working without the lock."), "{question}");
    // Whoever presses another key has done nothing.
    terminal.press("n");
    terminal.until_shows(&["nothing was done"]).await;
    assert!(!waiter.statement.is_finished());

    terminal.press("K");
    terminal.until_shows(&["y does it"]).await;
    terminal.press("y");
    terminal.until_shows(&[&format!("session {pid} (billing-a) was told to end")]).await;
    waiter.statement.finish().await;
    terminal.until_shows(&["billing-b"]).await;
    terminal.until_without(&["billing-a "]).await;
}

#[tokio::test]
async fn cancelling_a_statement_lets_go_of_what_its_transaction_holds() {
    require!(Postgres, Tmux);
    let postgres = Postgres::start().await;
    let holder = postgres.session("import").await;
    let working = holder.start("SELECT pg_advisory_xact_lock(42), pg_sleep(600)");
    let waiter = postgres.waits("report", "42").await;
    let terminal = Terminal::running(80, 24, &top(&postgres, &["--allow-kill"])).await;
    terminal.until_shows(&["import"]).await;
    terminal.press("C");
    let question = unbroken(&terminal.until_shows(&["y does it"]).await);
    assert!(question.contains(&format!("Cancel the statement of session {}", holder.pid())));
    assert!(question.contains("Its statement fails."), "{question}");
    terminal.press("y");
    terminal.until_shows(&["its statement was told to stop"]).await;
    waiter.statement.finish().await;
    assert!(working.try_finish().await.is_err());
    // The session itself goes on.
    assert_eq!(holder.value("SELECT 1").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn an_answer_that_comes_too_late_does_nothing_and_nobody_is_asked_while_it_is_paused() {
    require!(Postgres, Tmux);
    let postgres = Postgres::start().await;
    let holder = postgres.holds("billing-a", "42").await;
    let terminal = Terminal::running(80, 40, &top(&postgres, &["--allow-kill"])).await;
    terminal.until_shows(&["billing-a"]).await;
    terminal.press("K");
    terminal.until_shows(&["y does it"]).await;
    holder.run("SELECT pg_advisory_unlock(42)").await;
    let _next = postgres.holds("later", "43").await;
    terminal.until_shows(&["later", "y does it"]).await;
    terminal.press("y");
    terminal.until_shows(&["(billing-a) does not hold key 42 any more: nothing was done"]).await;
    terminal.press("Space");
    terminal.until_shows(&["PAUSED"]).await;
    terminal.press("K");
    terminal.until_shows(&["nobody is acted upon while it is paused"]).await;
    assert_eq!(holder.value("SELECT 1").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn nobody_is_acted_upon_without_the_flag_or_through_an_exporter() {
    require!(Postgres, Tmux);
    let postgres = Postgres::start().await;
    let holder = postgres.holds("billing-a", "42").await;
    let by_hand = format!("SELECT pg_terminate_backend({})", holder.pid());
    let terminal = Terminal::running(100, 24, &top(&postgres, &[])).await;
    terminal.until_shows(&["billing-a"]).await;
    terminal.press("K");
    terminal.until_shows(&["acting takes --allow-kill", &by_hand]).await;

    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    let command = locks(&["top", "--from", &exporter.url()]);
    let terminal = Terminal::running(100, 24, &command).await;
    terminal.until_shows(&["billing-a", &format!("exporter at {}", exporter.url())]).await;
    terminal.press("K");
    terminal.until_shows(&["an exporter acts on nobody", &by_hand]).await;
    assert_eq!(holder.value("SELECT 1").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_refused_end_is_told_with_the_pid_in_the_words_of_the_server() {
    require!(Postgres, Tmux);
    let postgres = Postgres::start().await;
    let holder = postgres.holds("billing-a", "42").await;
    let operator = postgres.session("operator").await;
    operator.run("CREATE ROLE watcher LOGIN IN ROLE pg_monitor, pg_signal_backend").await;
    let dsn = format!("postgresql://watcher@127.0.0.1:{}/postgres", postgres.port());
    let by_hand = Session::connect(&dsn, "by hand").await;
    let refused = by_hand.try_run(&format!("SELECT pg_terminate_backend({})", holder.pid())).await;
    let refused = refused.expect_err("a superuser is protected");
    let words = refused.as_db_error().expect("the server says so").message().to_owned();
    assert!(words.to_lowercase().contains("superuser"), "{words}");

    let arguments = ["top", "--exporter", "none", "--allow-kill", "--dsn", &dsn];
    let terminal = Terminal::running(200, 24, &locks(&arguments)).await;
    terminal.until_shows(&["billing-a"]).await;
    terminal.press("K");
    terminal.until_shows(&["y does it"]).await;
    terminal.press("y");
    let told = format!("session {} (billing-a): the server refuses: {words}", holder.pid());
    terminal.until_shows(&[&told]).await;
    assert_eq!(holder.value("SELECT 1").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_prepared_transaction_is_never_ended_and_its_remedy_is_shown() {
    require!(Postgres, Tmux);
    let postgres = Postgres::builder().setting("max_prepared_transactions", 5).start().await;
    let session = postgres.session("coordinator").await;
    session.run("BEGIN; SELECT pg_advisory_xact_lock(42); PREPARE TRANSACTION 'order-4711'").await;
    let terminal = Terminal::running(100, 24, &top(&postgres, &["--allow-kill"])).await;
    terminal.until_shows(&["prepared order-4711"]).await;
    terminal.press("K");
    terminal.until_shows(&["has no session to end: COMMIT PREPARED 'order-4711'"]).await;
}

#[tokio::test]
async fn the_terminal_is_as_it_was_after_every_way_out() {
    require!(Postgres, Tmux);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("billing-a", "42").await;
    let terminal = Terminal::start(80, 24).await;
    let before = terminal.settings();
    let command = top(&postgres, &[]);
    for (key, code) in [("q", 0), ("Escape", 0), ("C-c", 0), ("F10", 0)] {
        terminal.run(&command);
        terminal.until_shows(&["billing-a"]).await;
        assert_ne!(terminal.settings(), before, "it was taken");
        terminal.press(key);
        assert_eq!(terminal.until_ended().await, code, "{key}");
        assert_eq!(terminal.settings(), before, "{key}");
    }
    for (signal, code) in [("TERM", 143), ("HUP", 129), ("QUIT", 131), ("INT", 0)] {
        terminal.run(&command);
        terminal.until_shows(&["billing-a"]).await;
        terminal.signal(signal);
        assert_eq!(terminal.until_ended().await, code, "{signal}");
        assert_eq!(terminal.settings(), before, "{signal}");
    }
}

#[tokio::test]
async fn control_z_gives_the_terminal_to_the_shell_and_fg_takes_it_again() {
    require!(Postgres, Tmux);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("billing-a", "42").await;
    let terminal = Terminal::start(80, 24).await;
    let before = terminal.settings();
    terminal.run(&top(&postgres, &[]));
    terminal.until_shows(&["billing-a"]).await;
    terminal.press("C-z");
    terminal.until_shows(&["Stopped", "ready>"]).await;
    assert_eq!(terminal.settings(), before);
    terminal.type_text("fg");
    terminal.press("Enter");
    terminal.until_shows(&["[1 Locks]", "billing-a"]).await;
    terminal.until_without(&["Stopped"]).await;
    terminal.press("2");
    terminal.until_shows(&["[2 Sessions]"]).await;
    terminal.press("q");
    assert_eq!(terminal.until_ended().await, 0);
    assert_eq!(terminal.settings(), before);
}

#[tokio::test]
async fn a_panic_gives_the_terminal_back_before_it_says_what_is_wrong() {
    require!(Tmux);
    let terminal = Terminal::start(80, 24).await;
    let before = terminal.settings();
    let tests = std::env::current_exe().unwrap();
    let mut command = Command::new(tests);
    command.args(["--ignored", "--exact", "--nocapture", "top::panics_on_a_terminal"]);
    terminal.run(&command);
    terminal.until_shows(&["something that must not happen"]).await;
    assert_ne!(terminal.until_ended().await, 0);
    assert_eq!(terminal.settings(), before);
}

/// What the test before runs in a terminal. By itself it has none, and fails.
#[test]
#[ignore = "a part of another test, which runs it in a terminal"]
fn panics_on_a_terminal() {
    let _terminal = OurTerminal::take().unwrap();
    panic!("something that must not happen");
}

#[tokio::test]
async fn any_size_is_drawn_and_a_new_one_at_once() {
    require!(Postgres, Tmux);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("billing-\u{202e}鍵-\u{7}a", "42").await;
    let _waiter = postgres.waits("billing-b", "42").await;
    let terminal = Terminal::running(40, 10, &top(&postgres, &["--allow-kill"])).await;
    terminal.until_shows(&["key 42", "q quit"]).await;
    for (key, text) in [
        ("2", "[2 Sessions]"),
        ("3", "[3 Tree]"),
        ("?", "Esc back"),
        ("Escape", "q quit"),
        ("Enter", "Esc back"),
        ("Escape", "q quit"),
        ("1", "[1 Locks]"),
        ("s", "Sort by"),
        ("Escape", "q quit"),
        ("K", "y does it"),
        ("n", "nothing was done"),
    ] {
        terminal.press(key);
        terminal.until_shows(&[text]).await;
    }
    terminal.resize(200, 50);
    let screen = terminal.until_shows(&["DATABASE", "key 42"]).await;
    assert!(!screen.contains('\u{202e}'), "{screen}");
    terminal.resize(3, 2);
    terminal.resize(1, 1);
    terminal.resize(80, 24);
    terminal.until_shows(&["APPLICATION", "key 42"]).await;
}

#[tokio::test]
async fn a_lost_server_leaves_its_last_picture_with_its_age_and_comes_back() {
    require!(Postgres, Tmux);
    let mut postgres = Postgres::start().await;
    let holder = postgres.holds("billing-a", "42").await;
    let terminal = Terminal::running(120, 24, &top(&postgres, &["--allow-kill"])).await;
    terminal.until_shows(&["billing-a"]).await;
    postgres.kill().await;
    let screen = terminal.until_shows(&["LOST ", " old: "]).await;
    assert!(screen.contains("billing-a"), "{screen}");
    terminal.press("K");
    terminal.until_shows(&["this picture is old"]).await;
    drop(holder);
    postgres.start_again().await;
    terminal.press("r");
    terminal.until_without(&["LOST", "billing-a"]).await;
    let _next = postgres.holds("billing-b", "42").await;
    terminal.until_shows(&["billing-b"]).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_with_the_reason() {
    require!(Postgres, Tmux);
    let mut postgres = Postgres::start().await;
    postgres.kill().await;
    let terminal = Terminal::running(120, 24, &top(&postgres, &[])).await;
    terminal.until_shows(&["NOT SEEN YET", "onnection refused"]).await;
    postgres.start_again().await;
    terminal.press("r");
    terminal.until_shows(&["no advisory lock is held or awaited"]).await;
}

#[tokio::test]
async fn an_exporter_on_this_machine_lends_its_memory_and_the_first_lines_say_so() {
    require!(Postgres, Tmux);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).registry(REGISTRY).start().await;
    let holder = postgres.holds("pod-a", "42").await;
    exporter.scrape_fresh().await;
    holder.run("SET application_name = 'pod-b'").await;
    let command = top(&postgres, &["--exporter", &exporter.url()]);
    let terminal = Terminal::running(120, 24, &command).await;
    // Our own connection never saw the first name, and has no registry.
    let with = format!("own connection, with the memory of the exporter at {}", exporter.url());
    terminal.until_shows(&[&with, "nightly-billing", "pod-b (was pod-a)"]).await;
}

#[tokio::test]
async fn a_pipe_gets_every_row_whole_and_without_an_escape() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let (_files, registry) = registry();
    let long = "x".repeat(63);
    let _holder = postgres.holds(&long, "42").await;
    let waiter = postgres.waits("billing-b", "42").await;
    let pid = waiter.session.pid();
    let rows = ["--no-header", "--columns", "lock,key,application,waiters"];
    let outcome = run(top(&postgres, &[&["--registry.file", &registry][..], &rows].concat())).await;
    assert_eq!(outcome.stdout, format!("nightly-billing  42  {long}  1\n"));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));

    let sessions = ["--view", "sessions", "--sort", "role", "--columns", "role,pid,lock"];
    let outcome = run(top(&postgres, &[&sessions[..], &["--filter", "billing"]].concat())).await;
    // As wide as the pid or the heading, whichever is wider.
    let columns = pid.to_string().len().max(3);
    let expected =
        format!("ROLE    {:>columns$}  LOCK\nwaiter  {pid:>columns$}  unregistered\n", "PID");
    assert_eq!(outcome.stdout, expected);

    let outcome = run(top(&postgres, &["--once", "--view", "tree"])).await;
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(lines[0].contains(&long) && lines[1].starts_with(&format!("└─ {pid} billing-b")));
    assert!(!outcome.stdout.contains('\x1b'));
}

#[tokio::test]
async fn a_name_that_is_rewritten_and_counted_with_others_is_shown_whole() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .config("limits: { applications: 1 }")
        .config("applications: [{ match: '^(svc-[a-z]+)-.*$', name: '$1' }]")
        .start()
        .await;
    let _billing = postgres.holds("svc-billing-7f3a9c-4711", "1").await;
    exporter.scrape_fresh().await.sample("pg_advisory_lock_holders").is(1.0);
    let _reports = postgres.holds("svc-reports-5d08e2-4712", "2").await;
    let scrape = exporter.scrape_fresh().await;
    let holders = scrape.sample("pg_advisory_lock_holders");
    holders.clone().with("application_name", "svc-billing").with("key", "1").is(1.0);
    holders.with("application_name", "other").with("key", "2").is(1.0);

    let url = exporter.url();
    let rows = ["--no-header", "--columns", "key,application", "--sort", "key"];
    let from = run(locks(&[&["top", "--once", "--from", &url][..], &rows].concat())).await;
    for outcome in [from, run(top(&postgres, &[&["--once"][..], &rows].concat())).await] {
        let expected = "1  svc-billing-7f3a9c-4711\n2  svc-reports-5d08e2-4712\n";
        assert_eq!(outcome.stdout, expected, "{}", outcome.stderr);
    }
}

#[tokio::test]
async fn json_is_the_snapshot_and_one_object_a_line_with_an_interval() {
    require!(Postgres, Jq);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("billing-a", "42").await;
    let dsn = postgres.dsn("postgres");
    let locks = env!("CARGO_BIN_EXE_locks");
    let shell = |script: &str| {
        let mut command = Command::new("bash");
        command.args(["-o", "pipefail", "-c", script]);
        command
    };
    let script = format!(
        "'{locks}' top --json --exporter none --dsn '{dsn}' | jq -r '.schema, \
         .servers[0].locks[0].key.text, .servers[0].locks[0].holders[0].application_name'"
    );
    let outcome = run(shell(&script)).await;
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "1\n42\nbilling-a\n"));
    // The reader that has seen enough ends it, quietly.
    let script = format!(
        "'{locks}' top --json --interval 50ms --exporter none --dsn '{dsn}' | head -n 3 | jq .schema"
    );
    let outcome = run(shell(&script)).await;
    assert_eq!(outcome.stdout, "1\n1\n1\n");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
}

#[tokio::test]
async fn json_of_a_server_that_is_lost_has_nothing_old_in_it() {
    require!(Postgres);
    let mut postgres = Postgres::start().await;
    let holder = postgres.holds("billing-a", "42").await;
    let files = Files::new();
    // Each look is a line.
    let command = top(&postgres, &["--json"]);
    let mut process = Process::start(command, &files.path("told"), "TERM");
    let is_told = |process: &Process, up: bool, locks: Option<usize>| {
        let log = process.log();
        let last = log.lines().next_back().and_then(|line| serde_json::from_str(line).ok());
        let server = last.map(|mut told: Value| told["servers"][0].take()).unwrap_or_default();
        server["up"] == up
            && server["error"].is_null() == up
            && server["locks"].as_array().map(Vec::len) == locks
    };
    process.until_ready(async |process| is_told(process, true, Some(1))).await;
    drop(holder);
    postgres.kill().await;
    process.until_ready(async |process| is_told(process, false, None)).await;
    postgres.start_again().await;
    process.until_ready(async |process| is_told(process, true, Some(0))).await;
}

#[tokio::test]
async fn exit_codes_tell_a_mistake_from_a_server_that_is_down() {
    require!(Postgres);
    let mut postgres = Postgres::start().await;
    for (arguments, said) in [
        (&["--columns", "lok"][..], "the Locks view has no column \"lok\"; it has server, lock"),
        (&["--sort", "pid"], "the Locks view has no column \"pid\""),
        (&["--view", "tree", "--sort", "pid"], "it has none: its lines are sentences"),
        (&["--allow-kill"], "there is no terminal to ask on"),
        (&["--allow-kill", "--once"], "there is no terminal to ask on"),
        (&["--exporter", "db-1"], "an address begins with http://"),
    ] {
        let outcome = run(top(&postgres, arguments)).await;
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(said), "{arguments:?}: {}", outcome.stderr);
        assert_eq!(outcome.stdout, "");
    }
    let outcome = run(locks(&["top", "--interval", "0s"])).await;
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("between two looks is some time"), "{}", outcome.stderr);
    for flag in ["--allow-kill", "--show-queries"] {
        let outcome = run(locks(&["top", "--from", "http://127.0.0.1:1", flag])).await;
        assert_eq!(outcome.code, Some(2), "{flag}");
    }
    let outcome = run(locks(&["top", "--once", "--from", "http://127.0.0.1:1"])).await;
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("cannot connect"), "{}", outcome.stderr);
    postgres.kill().await;
    let outcome = run(top(&postgres, &["--once"])).await;
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("onnection refused"), "{}", outcome.stderr);
}

#[tokio::test]
async fn colours_are_left_out_where_nobody_wants_them() {
    const RED: &str = "\x1b[38;5;1m";
    require!(Postgres, Tmux);
    let postgres = Postgres::start().await;
    let (_files, registry) = registry();
    let _holder = postgres.holds("billing-a", "42").await;
    let _waiter = postgres.waits("billing-b", "42").await;
    let arguments = ["--registry.file", &registry];
    let terminal = Terminal::running(80, 24, &top(&postgres, &arguments)).await;
    terminal.until_shows(&["CRITICAL stuck"]).await;
    assert!(terminal.colored_screen().contains(RED));
    let arguments = ["--registry.file", &registry, "--color", "never"];
    let terminal = Terminal::running(80, 24, &top(&postgres, &arguments)).await;
    terminal.until_shows(&["CRITICAL stuck"]).await;
    assert!(!terminal.colored_screen().contains(RED));
}
