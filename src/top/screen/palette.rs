//! The colours, all of them. Without colours there are bold and reversed letters; what is urgent says
//! so in words in any case.

use ratatui::style::{Color, Modifier, Style};

use crate::table::column::Tone;

/// Which there are.
pub struct Palette {
    is_colored: bool,
}

impl Palette {
    /// With colours or without.
    pub const fn new(is_colored: bool) -> Self {
        Self { is_colored }
    }

    /// How urgent something is.
    pub const fn tone(&self, tone: Tone) -> Style {
        let style = Style::new();
        match (tone, self.is_colored) {
            (Tone::Plain, _) | (Tone::Dim, false) => style,
            (Tone::Dim, true) => style.fg(Color::DarkGray),
            (Tone::Warning, true) => style.fg(Color::Yellow),
            (Tone::Warning, false) => style,
            (Tone::Critical, true) => style.fg(Color::Red).add_modifier(Modifier::BOLD),
            (Tone::Critical, false) => style.add_modifier(Modifier::BOLD),
        }
    }

    /// What stands above columns.
    pub const fn heading(&self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.is_colored { style.fg(Color::Cyan) } else { style }
    }

    /// The selected row.
    pub const fn selected(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}
