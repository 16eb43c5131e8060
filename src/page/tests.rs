//! Pages of pictures written by hand, read as text between tags. What they look like is looked at in a
//! browser.

use serde_json::{Value, json};

use super::card::{Part, parts, remedies};
use super::*;
use crate::table::testing::{finding, held, holder, parse_server, server, waiter, with};

fn page_of(servers: Vec<Server>, query: &str) -> String {
    let site = Site {
        telemetry_path: "/metrics",
        details: true,
        now: Timestamp::from_unix_micros(1_796_100_000_000_000),
    };
    render_page(&Snapshot { servers }, &Query::parse(Some(query)), site)
}

fn page(locks: &Value, query: &str) -> String {
    page_of(vec![server("main", locks)], query)
}

/// What a reader sees, a line for each piece.
fn text(page: &str) -> String {
    let body = page.split_once("<body>").unwrap().1.split("<script>").next().unwrap();
    let mut text = String::new();
    for piece in body.split('<') {
        let shown = piece.split_once('>').map_or(piece, |(_, shown)| shown).trim();
        if !shown.is_empty() {
            text.push_str(shown);
            text.push('\n');
        }
    }
    text
}

fn stuck() -> Value {
    with(
        held(42, Some("nightly-billing"), holder(7, "billing-b", 312.0)),
        &json!({
            "waiters": [with(waiter(8, "billing-a", 4.0),
                             &json!({ "blocked_by": [{ "pid": 7, "kind": "hard", "certain": true }] }))],
            "findings": [finding("waiting_too_long", "warning", &[8]),
                         finding("stuck", "critical", &[7])],
            "owner": "billing", "runbook": "https://wiki.example.com/billing",
            "description": "Bills of the night",
        }),
    )
}

/// Locks of as many sessions, each with its own name.
fn many(count: u32, one: impl FnMut(u32) -> Value) -> Value {
    (0..count).map(one).collect()
}

#[test]
fn the_worst_lock_is_told_in_one_card_with_holder_findings_remedy_owner_and_runbook() {
    let locks = json!([held(1, None, holder(3, "calm", 5.0)), stuck()]);
    let page = page(&locks, "");
    let text = text(&page);
    for expected in [
        "1 critical, 1 warning\n",
        "critical\nnightly-billing\nkey 42 in app\nheld ≥ 5m12s by billing-b, idle; 1 session waits, the \
         longest 4.0s\nstuck\n",
        "https://wiki.example.com/billing\n",
        "7 billing-b\n",
        "8 billing-a\nwaits 4.0s for nightly-billing (",
        "Bills of the night\n",
        "1 to 2 of 2\n",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
    assert!(page.contains("<title>1 critical, 1 warning · locks</title>"), "{page}");
    // The card leads to the row, and the row says everything.
    let id = page.split("<a href=\"#lock-").nth(1).unwrap().split('"').next().unwrap();
    assert!(
        page.contains(&format!("<details id=\"lock-{id}\" class=\"lock critical\">")),
        "{page}"
    );
}

#[test]
fn whatever_others_call_themselves_stays_text() {
    let names = [
        "<img src=x onerror=alert(1)>",
        "\"><script>alert(1)</script>",
        "' onmouseover='alert(1)",
        "&lt;b&gt; a\u{1b}[2J\nb\0 \u{202e}gnillib",
        "{{ 7*7 }}{% raw %}",
        "javascript:alert(1)",
    ];
    for name in names {
        let holder = with(
            holder(7, name, 3.0),
            &json!({
                "first_application_name": format!("{name}1"), "usename": name, "wait_event": name,
                "scope_evidence": name, "state": name,
            }),
        );
        let one = with(
            held(42, Some(name), holder),
            &json!({
                "datname": name, "owner": name, "runbook": name, "description": name,
                "display_name": name, "waiters": [waiter(8, name, 4.0)],
                "candidates": [{ "lock": name, "reason": name }],
                "findings": [{ "finding": name, "severity": "critical", "text": name,
                               "remedy": format!("SELECT pg_terminate_backend(7); {name}"), "pids": [7] }],
            }),
        );
        let prepared = json!({
            "server": name, "up": true, "role": name, "version": name,
            "locks": [one],
            "not_judged": [{ "finding": name, "in_part": true, "reason": name }],
            "roots": [{ "prepared": { "gid": name }, "blocks": 1 }],
        });
        let servers = vec![
            parse_server(&prepared),
            parse_server(&json!({ "server": name, "up": false, "error": name })),
        ];
        let encoded: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
        for query in
            [String::new(), format!("filter={encoded}"), format!("flat=1&filter=!{encoded}")]
        {
            let page = page_of(servers.clone(), &query);
            let body = page.split_once("<body>").unwrap().1;
            assert_eq!(body.matches("<script").count(), 1, "{name}: {body}");
            assert!(!body.contains("<img") && !body.contains(" onmouseover='"), "{name}: {body}");
            assert!(!body.contains("href=\"javascript:"), "{name}: {body}");
            let is_sent = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!body.contains(is_sent), "{name:?}: {body}");
            assert_eq!(tags(&page), Ok(()), "{name}");
        }
    }
}

/// Whether every element ends, in the order in which they began.
fn tags(page: &str) -> Result<(), String> {
    const VOID: [&str; 4] = ["meta", "link", "input", "br"];
    let mut open: Vec<&str> = Vec::new();
    let marked = page.replace(STYLE, "").replace(SCRIPT, "");
    for piece in marked.split('<').skip(1) {
        let Some((tag, _)) = piece.split_once('>') else { return Err(format!("cut: {piece}")) };
        let name = tag.split_whitespace().next().unwrap_or_default();
        match name.strip_prefix('/') {
            Some(name) if open.last() == Some(&name) => _ = open.pop(),
            Some(name) => return Err(format!("{name} ends within {open:?}")),
            None if name.starts_with('!') || VOID.contains(&name) => {}
            None => open.push(name),
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("open at the end: {open:?}")) }
}

#[test]
fn every_list_of_the_tree_ends_however_deep_it_is_and_however_many_servers_there_are() {
    let chain = |length: u32| -> Value {
        many(length, |number| {
            let behind =
                json!({ "blocked_by": [{ "pid": 100 + number, "kind": "hard", "certain": true }] });
            let pid = i32::try_from(number).unwrap();
            with(
                held(number, None, holder(100 + pid, "a", 3.0)),
                &json!({ "waiters": [with(waiter(101 + pid, "a", 1.0), &behind)] }),
            )
        })
    };
    for length in [1, 2, 13, 40, 200] {
        let one = page(&chain(length), "");
        assert_eq!(tags(&one), Ok(()), "{length}");
        let servers = vec![server("a", &chain(length)), server("b", &chain(3))];
        assert_eq!(tags(&page_of(servers, "")), Ok(()), "{length}");
    }
    let deep = page(&chain(200), "");
    assert!(text(&deep).contains("and 142 more"), "{}", text(&deep));
}

#[test]
fn a_page_of_a_thousand_locks_is_below_a_hundred_kilobytes_whatever_they_are() {
    let long = "\"".repeat(63);
    let worst = |number: u32| {
        let pid = i32::try_from(number).unwrap() + 1;
        let name = format!("{}{number}", "\"".repeat(58));
        let waiters: Vec<Value> = (0..30).map(|w| waiter(pid * 100 + w, &name, 9.0)).collect();
        with(
            held(
                number,
                Some(&name),
                with(holder(pid, &name, 9.0), &json!({ "first_application_name": long })),
            ),
            &json!({
                "datname": long, "waiters": waiters, "description": "&".repeat(500), "owner": long,
                "runbook": format!("https://wiki.example.com/{long}"),
                "findings": [finding("stuck", "critical", &[pid]), finding("held_too_long", "warning", &[pid])],
            }),
        )
    };
    let kinds: [(&str, Value); 3] = [
        ("of one session", many(1000, |number| held(number, None, holder(7, "queue", 3.0)))),
        (
            "of as many sessions",
            many(1000, |number| {
                held(
                    number,
                    None,
                    holder(i32::try_from(number).unwrap() + 1, &format!("pod-{number}"), 3.0),
                )
            }),
        ),
        ("with names that are long once they are escaped", many(1000, worst)),
    ];
    for (what, locks) in &kinds {
        for query in ["", "flat=1", "flat=1&from=501", "from=951"] {
            let page = page(locks, query);
            assert!(page.len() < 100_000, "{what}, {query}: {} bytes", page.len());
            assert_eq!(tags(&page), Ok(()), "{what}, {query}");
        }
    }
    let text = text(&page(&kinds[1].1, ""));
    assert!(text.contains("1 to 50 of 1000\nNext\n"), "{text}");
}

#[test]
fn pages_lead_to_each_other_and_keep_the_filter() {
    let locks = many(120, |number| {
        held(
            number,
            Some("import"),
            holder(i32::try_from(number).unwrap() + 1, &format!("pod-{number}"), 3.0),
        )
    });
    let first = page(&locks, "filter=pod-+!nobody");
    assert!(
        first.contains("<a rel=\"next\" href=\"/?filter=pod-+%21nobody&#38;from=51\">"),
        "{first}"
    );
    assert!(!first.contains("rel=\"prev\""), "{first}");
    let second = page(&locks, "from=51");
    assert!(text(&second).contains("51 to 100 of 120"), "{second}");
    assert!(second.contains("<a rel=\"prev\" href=\"/\">"), "{second}");
    for past_the_end in ["from=121", "from=99999999999999999999", "from=115"] {
        let last = text(&page(&locks, past_the_end));
        assert!(last.contains("of 120"), "{past_the_end}: {last}");
    }
    assert!(text(&page(&locks, "filter=elsewhere")).contains("No lock matches the filter."));
}

#[test]
fn keys_that_say_the_same_are_one_row_until_each_is_asked_for() {
    let said = json!({ "findings": [finding("holder_idle_in_transaction", "warning", &[7])] });
    let locks = many(300, |number| with(held(number, None, holder(7, "queue", 3.0)), &said));
    let folded = page(&locks, "");
    let shown = text(&folded);
    assert!(shown.contains("unregistered\n300 keys in app\n"), "{shown}");
    assert!(shown.contains("This is said of each of 300 keys, here of the first."), "{shown}");
    assert!(shown.contains("and 290 more"), "{shown}");
    assert!(folded.contains("<a href=\"/?flat=1\">Show each key</a>"), "{folded}");
    let flat = page(&locks, "flat=1");
    assert!(text(&flat).contains("1 to 50 of 300"), "{flat}");
    assert!(flat.contains("<a href=\"/\">Fold keys that say the same</a>"), "{flat}");
}

#[test]
fn a_server_that_cannot_be_seen_is_told_before_anything_else() {
    let down = |name: &str| parse_server(&json!({ "server": name, "up": false, "error": "login" }));
    let shown = text(&page_of(vec![down("orders")], ""));
    assert!(shown.contains("locks\nCANNOT SEE\n"), "{shown}");
    assert!(shown.contains("orders\nCANNOT SEE: login\n"), "{shown}");
    assert!(shown.contains("Nothing was found where it could be looked.\n"), "{shown}");
    assert!(!shown.contains("Nobody waits.\n") && !shown.contains("no findings"), "{shown}");

    let both = text(&page_of(vec![server("main", &json!([stuck()])), down("orders")], ""));
    assert!(both.contains("CANNOT SEE 1 of 2 servers, 1 critical, 1 warning\n"), "{both}");
    assert!(both.contains("key 42 in app on main\n"), "{both}");

    // Of very many servers it is not those out of sight that are left out.
    let names = (0..100).map(|number| format!("shard-{number}"));
    let mut servers: Vec<Server> = names.map(|name| server(&name, &json!([]))).collect();
    servers.push(down("orders"));
    let first = text(&page_of(servers, ""));
    assert!(first.contains("Servers\norders\nCANNOT SEE: login\nshard-0\n"), "{first}");
    assert!(first.contains("more: see the\n"), "{first}");

    let calm = text(&page(&json!([]), ""));
    for expected in [
        "no findings\n",
        "Nothing was found.\n",
        "Nobody waits.\n",
        "No advisory lock is held or awaited.\n",
    ] {
        assert!(calm.contains(expected), "{expected} is not in {calm}");
    }
}

#[test]
fn what_could_not_be_judged_and_what_makes_the_picture_less_is_told() {
    let picture = json!({
        "server": "main", "up": true, "locks": [], "pooled_connection": true, "registry_conflicts": 2,
        "looked_at": { "privileges": "state of other sessions is hidden" },
        "lock_table": { "entries": 80, "capacity": 100 },
        "not_judged": [{ "finding": "missed", "in_part": false, "reason": "it takes a day" }],
    });
    let shown = text(&page_of(vec![parse_server(&picture)], ""));
    for expected in [
        "the state of others is hidden: GRANT pg_read_all_stats TO this role\n",
        "seen through a pooler: connect to the server itself\n",
        "lock table 80/100 (80 %)\n",
        "2 keys have several names in the registry\n",
        "1 rule could not be judged\nmissed: it takes a day\n",
    ] {
        assert!(shown.contains(expected), "{expected} is not in {shown}");
    }
}

#[test]
fn the_page_leads_to_all_that_the_exporter_answers_and_stays_whole_whatever_its_paths_are() {
    let site = Site {
        telemetry_path: "/\"><script>alert('&')</script>",
        details: false,
        now: Timestamp::from_unix_micros(0),
    };
    let page = render_page(&Snapshot::default(), &Query::default(), site);
    for expected in [
        "<h1>locks</h1>",
        concat!("pg-locks-exporter ", env!("CARGO_PKG_VERSION")),
        "href=\"/&#34;&#62;&#60;script&#62;alert(&#39;&#38;&#39;)&#60;/script&#62;\"",
        "href=\"/api/v1/locks\"",
        "href=\"/api/v1/events\"",
        "href=\"/-/healthy\"",
        "href=\"/-/ready\"",
        "--web.show-details",
    ] {
        assert!(page.contains(expected), "{expected} is missing in {page}");
    }
}

#[test]
fn a_runbook_is_a_link_only_where_it_leads_to_a_page() {
    for (runbook, is_link) in [
        ("https://wiki.example.com/a?b=1&c=2", true),
        ("http://wiki.example.com/", true),
        ("javascript:alert(1)", false),
        ("data:text/html,hi", false),
        ("room 4, behind the printer", false),
    ] {
        let page = page(&json!([with(stuck(), &json!({ "runbook": runbook }))]), "");
        assert_eq!(page.contains("rel=\"noreferrer\""), is_link, "{runbook}: {page}");
    }
}

#[test]
fn a_statement_is_told_from_the_words_around_it() {
    let shown = |text: &str| -> Vec<String> {
        let shown = |part: Part<'_>| {
            if part.is_statement { format!("[{}]", part.text) } else { part.text.to_owned() }
        };
        parts(text).into_iter().map(shown).collect()
    };
    for (remedy, expected) in [
        (
            "SELECT pg_terminate_backend(7); or: SELECT pg_cancel_backend(8); it fails",
            &[
                "[SELECT pg_terminate_backend(7);]",
                " or: ",
                "[SELECT pg_cancel_backend(8);]",
                " it fails",
            ][..],
        ),
        (
            "COMMIT PREPARED 'a''; b' or ROLLBACK PREPARED E'\\\\''x' in it",
            &["[COMMIT PREPARED 'a''; b']", " or ", "[ROLLBACK PREPARED E'\\\\''x']", " in it"],
        ),
        (
            "COMMIT PREPARED or ROLLBACK PREPARED in its database",
            &["COMMIT PREPARED or ROLLBACK PREPARED in its database"],
        ),
        ("ROLLBACK PREPARED 'never ends", &["ROLLBACK PREPARED 'never ends"]),
        ("größe SELECT pg_cancel_backend(", &["größe SELECT pg_cancel_backend("]),
        ("", &[]),
    ] {
        assert_eq!(shown(remedy), expected, "{remedy}");
    }
}

#[test]
fn a_remedy_that_another_begins_with_is_said_once() {
    let told = |all: &[&'static str]| remedies(all.iter().copied());
    assert_eq!(told(&["end it", "end it; or wait"]), ["end it; or wait"]);
    assert_eq!(told(&["end it; or wait", "end it", "end it; or wait"]), ["end it; or wait"]);
    assert_eq!(told(&["end it", "wait"]), ["end it", "wait"]);
}

#[test]
fn the_policy_allows_the_pages_own_style_and_script_and_nothing_else() {
    let page = page(&json!([]), "");
    for text in [STYLE, SCRIPT] {
        let digest = BASE64_STANDARD.encode(Sha256::digest(text));
        assert!(CONTENT_SECURITY_POLICY.contains(&digest));
        assert!(page.contains(&format!(">{text}</")), "it has to be there byte for byte");
    }
    assert!(!CONTENT_SECURITY_POLICY.contains("unsafe"), "{}", *CONTENT_SECURITY_POLICY);
    assert!(!page.contains(" style=") && !page.contains(" onclick="), "{page}");
}
