//! The page at `/`, for people who open the exporter's address in a browser.
//!
//! It owns the HTML and its escaping, needs no script, and is legible on light and dark screens. It
//! knows no request: text in, text out; `server` sends it.

/// Renders the landing page. `telemetry_path` is what the operator configured, so it is escaped like
/// any other text.
pub(super) fn render_page(telemetry_path: &str) -> String {
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
</body>
</html>
"#
    )
}

/// Escapes text for an element or a quoted attribute.
fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
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
        let page = render_page("/metrics");
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
    fn a_configured_path_cannot_leave_its_attribute() {
        let page = render_page("/\"><script>alert('&')</script>");
        assert!(page.contains("/&quot;&gt;&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;"));
        assert!(!page.contains("<script"));
    }
}
