//! The page at `/`: what is wrong now, for a browser and whoever has nothing else.

use crate::support::{Exporter, Postgres, eventually, require};

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
    let remedy = format!("Remedy: SELECT pg_terminate_backend({});", holder.pid());
    eventually("the holder is stuck", async || {
        let page = page().await;
        assert!(page.contains("<strong>critical stuck</strong>: nightly, key 42 in app"), "{page}");
        assert!(page.contains("(&lt;b&gt;pod-a&lt;/b&gt;)") && page.contains(&remedy), "{page}");
    })
    .await;

    postgres.stop().await;
    eventually("nothing old is shown", async || {
        let page = page().await;
        assert!(page.contains("<p>Cannot tell: ") && !page.contains("stuck"), "{page}");
        let stranger = exporter.get("/", &[("X-Forwarded-For", "203.0.113.9")]).await;
        let stranger = stranger.text();
        assert!(stranger.contains("<p>Cannot tell: unreachable.</p>"), "{stranger}");
    })
    .await;
}
