//! Dashboards as pictures, drawn by `tests/browser/preview.mjs` from the answers to their queries.
//! It knows neither what a dashboard asks for nor what the answers should be.

use std::path::Path;

use serde::Deserialize;

use super::browser::script;
use super::process::run;

/// A drawn dashboard.
pub struct Preview {
    /// Its panels, from top to bottom. Rows are none.
    pub panels: Vec<DrawnPanel>,
}

/// What became of a panel.
#[derive(Debug, Deserialize)]
pub struct DrawnPanel {
    /// Its number in the dashboard.
    pub id: u32,
    /// Its title, with the variables' values in it.
    pub title: String,
    /// Its type, as `stat`.
    pub kind: String,
    /// How many series and tables it got.
    pub series: usize,
    /// Whether it shows data: it does not if there are none, or on an error.
    pub drawn: bool,
    /// Why it could not be drawn.
    pub error: Option<String>,
    /// What can be read in it, but for what is in the plots themselves.
    pub text: String,
}

impl Preview {
    /// Draws the answers in a file into a PNG file. A panel that cannot be drawn says why in its
    /// place.
    pub async fn draw(results: &Path, picture: &Path, options: &[&str]) -> Preview {
        let mut command = script("preview.mjs");
        command.arg(results).arg(picture).args(options);
        let outcome = run(command).await;
        let parse = |line| {
            serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{error}: {line}\n{}", outcome.stderr))
        };
        let panels: Vec<DrawnPanel> = outcome.stdout.lines().map(parse).collect();
        let is_whole = panels.iter().all(|panel| panel.error.is_none());
        assert_eq!(outcome.code == Some(0), is_whole, "{}", outcome.stderr);
        Preview { panels }
    }

    /// The only panel of this title.
    pub fn panel(&self, title: &str) -> &DrawnPanel {
        let mut titled = self.panels.iter().filter(|panel| panel.title == title);
        match (titled.next(), titled.next()) {
            (Some(panel), None) => panel,
            _ => panic!("not one panel {title}: {:#?}", self.panels),
        }
    }
}
