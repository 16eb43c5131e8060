//! The status page at `/`, in a real browser and for whoever has nothing else: what is wrong now, who
//! waits for whom, and every lock.

use std::path::PathBuf;

use crate::support::browser::{self, Page, Scheme, View};
use crate::support::{
    Browser, Exporter, Fleet, PgBouncer, PoolMode, Postgres, eventually, eventually_within, require,
};

/// Long enough for a round of every system of the fleet.
const ROUND: std::time::Duration = std::time::Duration::from_secs(60);

#[tokio::test]
async fn the_page_tells_what_is_wrong_and_when_it_cannot_tell() {
    require!(Postgres);
    let mut postgres = Postgres::start().await;
    let registry = "locks: [{ name: nightly, key: 42, databases: [app], max_wait: 1s }]";
    let exporter = Exporter::watching(&postgres.dsn("postgres")).registry(registry).start().await;
    let page = async || exporter.get("/", &[]).await.text().to_owned();
    eventually("nothing is wrong yet", async || {
        assert!(page().await.contains("<p>Nothing was found.</p>"), "{}", page().await);
    })
    .await;

    let holder = postgres.holds("<b>pod-a</b>", "42").await;
    let _waiter = postgres.waits("pod-b", "42").await;
    let remedy = format!("<code>SELECT pg_terminate_backend({});</code>", holder.pid());
    eventually("the holder is stuck", async || {
        let page = page().await;
        assert!(page.contains("<b class=\"critical\">stuck</b>"), "{page}");
        assert!(page.contains(">nightly</a>") && page.contains("key 42 in app"), "{page}");
        assert!(page.contains("&#60;b&#62;pod-a&#60;/b&#62;") && page.contains(&remedy), "{page}");
    })
    .await;

    postgres.stop().await;
    eventually("nothing old is shown", async || {
        let page = page().await;
        assert!(page.contains("CANNOT SEE: ") && !page.contains("stuck"), "{page}");
        let stranger = exporter.get("/", &[("X-Forwarded-For", "203.0.113.9")]).await;
        let stranger = stranger.text();
        assert!(stranger.contains(">CANNOT SEE: unreachable<"), "{stranger}");
    })
    .await;
}

#[tokio::test]
async fn strangers_are_not_told_parameters_roles_addresses_and_gids() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("max_prepared_transactions", 5).start().await;
    let registry = "locks: [{ name: tenant, key: { pair: [7, \"*\"] }, parameter: tenant }]";
    let exporter = Exporter::watching(&postgres.dsn("postgres")).registry(registry).start().await;
    let holder = postgres.holds("pod-a", "7, 990099").await;
    holder
        .run("BEGIN; SELECT pg_advisory_xact_lock(43); PREPARE TRANSACTION 'gid-of-someone'")
        .await;
    let private = ["tenant 990099", "user postgres", "127.0.0.1:", "gid-of-someone"];
    eventually("everything is told here", async || {
        let page = exporter.get("/", &[]).await;
        for told in private {
            assert!(page.text().contains(told), "{told}: {}", page.text());
        }
    })
    .await;
    let page = exporter.get("/", &[("X-Forwarded-For", "203.0.113.9")]).await;
    let page = page.text();
    // The server's own name is an address here.
    for hidden in ["tenant 990099", "user postgres", "client 127.0.0.1", "gid-of-someone"] {
        assert!(!page.contains(hidden), "{hidden}: {page}");
    }
    assert!(page.contains("not shown by this exporter") && page.contains("--web.show-details"));
}

/// Whether a reader who cannot see, or cannot use a mouse, is served: the rules of the web's
/// accessibility guidelines that a program can check.
async fn complaints(page: &Page<'_>) -> Vec<String> {
    let axe = browser::folder().join("node_modules/axe-core/axe.min.js");
    let axe = std::fs::read_to_string(axe).expect("it was installed");
    let run = "axe.run().then((found) => found.violations.flatMap((one) => one.nodes.map(
        (node) => `${one.id}: ${node.failureSummary} ${node.html}`)))";
    page.eval(&format!("(() => {{ {axe}; return {run}; }})()")).await
}

/// Has the page take itself anew, by its script.
async fn take_anew(page: &Page<'_>) {
    let stamp = "document.querySelector('#as-of time').dateTime";
    let before: String = page.eval(stamp).await;
    page.click("#refresh a").await;
    page.wait_for(&format!("{stamp} !== '{before}'")).await;
}

fn picture(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page");
    std::fs::create_dir_all(&folder).expect("the folder is ours");
    folder.join(name)
}

/// Statements have personal data and passwords in them. Who may see everything else does not see them.
#[tokio::test]
async fn what_a_session_runs_is_told_to_nobody() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .argument("--web.show-details")
        .argument("--log.level")
        .argument("debug")
        .config("thresholds: { idle_in_transaction: 1ms }")
        .start()
        .await;
    let holder = postgres.session("pod-a").await;
    holder.run("BEGIN; SELECT pg_advisory_xact_lock(42), 'S3cr3t-canary'").await;
    let waiter = postgres.session("pod-b").await;
    let waiting = waiter.start("SELECT pg_advisory_lock(42), 'S3cr3t-canary'");
    postgres.until_waiting(&waiter).await;
    eventually("both are told", async || {
        let page = exporter.get("/", &[]).await;
        for told in ["pod-a", "pod-b", "holder_idle_in_transaction"] {
            assert!(page.text().contains(told), "{told}: {}", page.text());
        }
    })
    .await;
    for path in ["/metrics", "/", "/api/v1/locks", "/api/v1/events", "/api/v1/targets"] {
        let response = exporter.get(path, &[]).await;
        assert_eq!(response.status, 200, "{path}");
        assert!(!response.text().contains("canary"), "{path}: {}", response.text());
    }
    assert!(!exporter.log().contains("canary"), "{}", exporter.log());
    waiting.cancel().await;
}

#[tokio::test]
async fn the_fleet_is_on_the_page_at_every_width_in_light_and_dark() {
    require!(Postgres, PgBouncer, Chromium, Node);
    let postgres = Postgres::builder().setting("max_prepared_transactions", 5).start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 2).await;
    let fleet = Fleet::start(&postgres, Some(&pooler));
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .argument("--registry.file")
        .argument("examples/fleet-registry.yaml")
        .start()
        .await;
    let browser = Browser::start().await;
    let laptop = browser.open(&exporter.url(), View::default()).await;
    // Each at some moment of its round; the page takes itself anew meanwhile.
    for (what, script) in [
        ("a lock that is stuck", "/^stuck session \\d+ /m.test(text)"),
        (
            "a lock on a pooled backend, under the name of now and the first one",
            "/^pooled_backend .*first under the name/m.test(text) && /\\(was [a-z-]+\\)/.test(text)",
        ),
        (
            "a tree at least two deep",
            "document.querySelector('.tree > ul > li > ul > li > ul > li') !== null",
        ),
        (
            "what the registry says of a lock",
            "document.body.textContent.includes('Settlement of the European region')",
        ),
    ] {
        eventually_within(ROUND, what, async || {
            let seen: bool =
                laptop.eval(&format!("((text) => {script})(document.body.innerText)")).await;
            assert!(seen, "{}", laptop.text().await);
        })
        .await;
    }
    for (width, height) in [(360, 800), (1280, 900), (3840, 2160)] {
        for scheme in [Scheme::Light, Scheme::Dark] {
            let view = View { width, height, scheme, ..View::default() };
            let page = browser.open(&exporter.url(), view).await;
            let overflow: bool =
                page.eval("document.documentElement.scrollWidth > window.innerWidth").await;
            assert!(!overflow, "at {width} pixels there is something to the right of the window");
            page.eval::<Option<bool>>(
                "document.querySelectorAll('details').forEach((one) => { one.open = true })",
            )
            .await;
            let overflow: bool =
                page.eval("document.documentElement.scrollWidth > window.innerWidth").await;
            assert!(!overflow, "at {width} pixels, unfolded");
            assert_eq!(complaints(&page).await, Vec::<String>::new(), "{width} {scheme:?}");
            page.reload().await;
            page.screenshot(&picture(&format!("{width}-{scheme:?}.png").to_lowercase())).await;
            assert_eq!(page.errors().await, Vec::<String>::new(), "{width} {scheme:?}");
            let elsewhere =
                |url: &String| !url.starts_with(&exporter.url()) && !url.starts_with("data:");
            let requests = page.requests().await;
            assert!(!requests.iter().any(elsewhere), "{requests:?}");
            page.close().await;
        }
    }
    fleet.end().await;
}

#[tokio::test]
async fn what_applications_and_locks_are_called_stays_text_in_a_browser() {
    require!(Postgres, Chromium, Node);
    let postgres = Postgres::start().await;
    let name = "<img src=x onerror=document.title='taken'>";
    let lock = "</style></script><script>document.title='taken'</script>";
    let registry = serde_json::json!({ "locks": [{
        "name": lock, "key": 42, "databases": ["app"], "max_wait": "1s",
        "description": name, "owner": lock, "runbook": "https://wiki.example.com/\"><script>document.title='taken'</script>",
    }] });
    let exporter =
        Exporter::watching(&postgres.dsn("postgres")).registry(&registry.to_string()).start().await;
    let _holder = postgres.holds(name, "42").await;
    let _waiter = postgres.waits("'\"><svg onload=document.title='taken'>", "42").await;
    let browser = Browser::start().await;
    let page = browser.open(&exporter.url(), View::default()).await;
    eventually("it is stuck", async || {
        page.reload().await;
        let text = page.text().await;
        assert!(text.contains("stuck"), "{text}");
    })
    .await;
    // Also once the page has put a new one in place of itself.
    take_anew(&page).await;
    page.eval::<Option<bool>>(
        "document.querySelectorAll('details').forEach((one) => { one.open = true })",
    )
    .await;
    let text = page.text().await;
    for shown in [name, lock, "'\"><svg onload=document.title='taken'>"] {
        assert!(text.contains(shown), "{shown} is not in {text}");
    }
    let title: String = page.eval("document.title").await;
    assert_eq!(title, "1 critical, 1 warning · locks");
    let made: u32 = page
        .eval("document.querySelectorAll('img, svg, main script, [onload], [onerror]').length")
        .await;
    assert_eq!(made, 0);
    let links: Vec<String> = page.eval("[...document.links].map((link) => link.protocol)").await;
    assert!(links.iter().all(|protocol| protocol.starts_with("http")), "{links:?}");
    assert_eq!(page.errors().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_page_takes_itself_anew_and_leaves_the_reader_where_they_are() {
    require!(Postgres, Chromium, Node);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    let _first = postgres.holds("pod-a", "4711").await;
    eventually("it is seen", async || {
        let page = exporter.get("/", &[]).await;
        assert!(page.text().contains("key 4711 in app"), "{}", page.text());
    })
    .await;
    let browser = Browser::start().await;
    let page = browser.open(&exporter.url(), View::default()).await;
    // By keys alone: past the links and the filter to the lock, which Enter unfolds.
    page.press("Tab").await;
    let skip: String = page.eval("document.activeElement.textContent").await;
    assert_eq!(skip, "Skip to what is wrong");
    let on_lock = "document.activeElement.matches('details.lock > summary')";
    for _ in 0..20 {
        if page.eval::<bool>(on_lock).await {
            break;
        }
        page.press("Tab").await;
    }
    page.press("Enter").await;
    page.wait_for("document.querySelector('details.lock').open").await;

    let _second = postgres.holds("pod-b", "4712").await;
    page.wait_for("document.body.innerText.includes('key 4712 in app')").await;
    let open = "[...document.querySelectorAll('details[open]')].map((one) => one.innerText).join()";
    let open: String = page.eval(open).await;
    assert!(open.contains("4711") && !open.contains("4712"), "{open}");
    let focused: String = page.eval("document.activeElement.innerText").await;
    assert!(focused.contains("key 4711 in app"), "{focused:?}");

    // Paused it stays as it is, and says so.
    page.click("#refresh button").await;
    page.wait_for("document.getElementById('refresh').innerText.includes('paused')").await;
    let _third = postgres.holds("pod-c", "4713").await;
    eventually("the third is seen", async || {
        take_anew(&page).await;
        let text = page.text().await;
        assert!(text.contains("key 4713 in app") && text.contains("paused"), "{text}");
    })
    .await;
    page.click("#refresh button").await;

    drop(exporter);
    page.wait_for(
        "document.getElementById('refresh').innerText.includes('NOT REFRESHED, this is old')",
    )
    .await;
    assert!(page.eval::<bool>("document.body.classList.contains('stale')").await);
}

#[tokio::test]
async fn without_scripts_everything_is_there_and_the_lists_lead_on() {
    require!(Postgres, Chromium, Node);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    let holder = postgres.session("batch").await;
    holder.run("SELECT count(pg_advisory_lock(n)) FROM generate_series(900001, 901000) n").await;
    let awaited = postgres.holds("leader", "905000").await;
    let _waiter = postgres.waits("<follower>", "905000").await;
    // Of one of them it is told that there are too many; the others say the same.
    eventually("all are seen", async || {
        let page = exporter.get("/", &[]).await;
        assert!(page.text().contains("999 keys in app"), "{}", page.text());
        assert!(page.text().contains("key 905000 in app"), "{}", page.text());
    })
    .await;
    let browser = Browser::start().await;
    let page = browser.open(&exporter.url(), View { script: false, ..View::default() }).await;
    let text = page.text().await;
    assert!(
        text.contains(&format!("{} leader", awaited.pid())) && text.contains("<follower>"),
        "{text}"
    );
    let tree = page.accessibility().await;
    for expected in [
        "heading \"Locks\" level=2",
        "heading \"Who waits for whom\" level=2",
        "banner",
        "main",
        "contentinfo",
        "searchbox \"Filter\"",
        "status",
    ] {
        assert!(tree.contains(expected), "{expected} is not in\n{tree}");
    }
    page.click("a[href='/?flat=1']").await;
    page.click("a[rel='next']").await;
    let text = page.text().await;
    assert!(text.contains("51 to 100 of 1001"), "{text}");
    let size: usize = page
        .eval("fetch(location.href).then((answer) => answer.text()).then((text) => text.length)")
        .await;
    assert!(size < 100_000, "{size}");
    page.eval::<Option<bool>>("void (document.querySelector('#filter').value = 'leader')").await;
    page.click("form button").await;
    let text = page.text().await;
    assert!(text.contains("1 to 1 of 1") && text.contains("key 905000 in app"), "{text}");
    assert_eq!(page.errors().await, Vec::<String>::new());
}
