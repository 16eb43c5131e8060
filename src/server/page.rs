//! The page at `/`, for people who open the exporter's address in a browser.
//!
//! It owns the HTML and its escaping, needs no script, and is legible on light and dark screens. It
//! knows no request: text in, text out; `server` sends it.

use std::fmt::Write as _;

/// How a server stands.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Its name.
    pub server: String,
    /// Why the last poll says nothing of now; `None` where it does.
    pub blind: Option<String>,
    /// What is wrong there, the worst first.
    pub findings: Vec<Told>,
    /// Findings beside these.
    pub left_out: usize,
}

/// A finding, in words.
#[derive(Clone, Debug)]
pub struct Told {
    /// `critical` or `warning`.
    pub severity: &'static str,
    /// Its kind, as metrics call it.
    pub finding: &'static str,
    /// Which lock: its name, key and database.
    pub lock: String,
    /// What was seen.
    pub text: String,
    /// What may be done.
    pub remedy: String,
}

/// Renders the landing page. Names come from clients and `telemetry_path` is what the operator
/// configured, so all of it is escaped.
pub(super) fn render_page(telemetry_path: &str, standings: &[Standing]) -> String {
    let findings: String = standings.iter().map(render_standing).collect();
    let version = escape_html(env!("CARGO_PKG_VERSION"));
    let description = escape_html(env!("CARGO_PKG_DESCRIPTION"));
    let telemetry_path = escape_html(telemetry_path);
    format!(
        r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="UTF-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>pg-locks-exporter</title>
<style>
body {{ font-family: system-ui, sans-serif; line-height: 1.5; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
</style>
</head>
<body>
<h1>pg-locks-exporter</h1>
<p>{description}.</p>
<p>Version {version}</p>
<ul>
<li><a href="{telemetry_path}">Metrics</a></li>
<li><a href="/api/v1/locks">Locks as JSON</a></li>
<li><a href="/api/v1/events">Events as JSON</a></li>
<li><a href="/-/healthy">Healthy</a></li>
<li><a href="/-/ready">Ready</a></li>
</ul>
<h2>What is wrong now</h2>
{findings}</body>
</html>
"#
    )
}

fn render_standing(standing: &Standing) -> String {
    let Standing { server, blind, findings, left_out } = standing;
    let mut html = format!("<h3>{}</h3>\n", escape_html(server));
    // Writing to a string does not fail.
    let _ = match blind {
        Some(reason) => writeln!(html, "<p>Cannot tell: {}.</p>", escape_html(reason)),
        None if findings.is_empty() => writeln!(html, "<p>Nothing was found.</p>"),
        None => Ok(()),
    };
    for Told { severity, finding, lock, text, remedy } in findings {
        let _ = writeln!(
            html,
            "<p><strong>{severity} {finding}</strong>: {}<br>{}<br>Remedy: {}</p>",
            escape_html(lock),
            escape_html(text),
            escape_html(remedy)
        );
    }
    if *left_out > 0 {
        let _ = writeln!(html, "<p>And {left_out} more: see the JSON.</p>");
    }
    html
}

/// Escapes text for an element or a quoted attribute. Control characters, which a database may have in
/// its name, are shown and not sent.
fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if c.is_control() => escaped.extend(c.escape_default()),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_the_program_its_version_and_every_path() {
        let page = render_page("/metrics", &[]);
        for expected in [
            "<h1>pg-locks-exporter</h1>",
            concat!("Version ", env!("CARGO_PKG_VERSION")),
            r#"href="/metrics""#,
            r#"href="/api/v1/locks""#,
            r#"href="/api/v1/events""#,
            r#"href="/-/healthy""#,
            r#"href="/-/ready""#,
        ] {
            assert!(page.contains(expected), "{expected} is missing in {page}");
        }
    }

    #[test]
    fn what_is_wrong_stands_with_its_server_whatever_a_client_calls_itself() {
        let told = Told {
            severity: "critical",
            finding: "stuck",
            lock: "nightly, key 42 in app\u{1b}[2J".to_owned(),
            text: "session 7 (<img src=x>) has been idle".to_owned(),
            remedy: "SELECT pg_terminate_backend(7)".to_owned(),
        };
        let standing = |server: &str| Standing { server: server.to_owned(), ..Standing::default() };
        let page = render_page(
            "/metrics",
            &[
                Standing { findings: vec![told], left_out: 3, ..standing("orders & more") },
                Standing { blind: Some("connection refused".to_owned()), ..standing("down") },
                standing("calm"),
            ],
        );
        for expected in [
            "<h3>orders &amp; more</h3>\n<p><strong>critical stuck</strong>: nightly, key 42 in app\\u{1b}[2J<br>\
             session 7 (&lt;img src=x&gt;) has been idle<br>Remedy: SELECT pg_terminate_backend(7)",
            "<p>And 3 more: see the JSON.</p>",
            "<h3>down</h3>\n<p>Cannot tell: connection refused.</p>",
            "<h3>calm</h3>\n<p>Nothing was found.</p>",
        ] {
            assert!(page.contains(expected), "{expected} is missing in {page}");
        }
    }

    #[test]
    fn a_configured_path_cannot_leave_its_attribute() {
        let page = render_page("/\"><script>alert('&')</script>", &[]);
        assert!(page.contains("/&quot;&gt;&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;"));
        assert!(!page.contains("<script"));
    }
}
