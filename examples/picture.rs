//! A screen of a terminal, as text with escape codes, to a picture (SVG). The one in the README is
//! made with it, of a view of the demonstration:
//!
//! ```text
//! tmux new-session -d -x 118 -y 32 -s top 'locks top --dsn …' && sleep 20
//! tmux capture-pane -t top -ep | cargo run --example picture > docs/top.svg
//! ```

use std::io::{self, Read as _, Write as _};

use anstyle_svg::Term;

fn main() -> io::Result<()> {
    let mut screen = String::new();
    io::stdin().read_to_string(&mut screen)?;
    let picture = Term::new().render_svg(screen.trim_end());
    io::stdout().write_all(picture.as_bytes())
}
