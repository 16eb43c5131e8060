//! The man page: one page with every command, for packagers and for `man -l -`.
//!
//! Pure. It is made of what the command line knows of itself, so that nothing is told twice; what is
//! added here is the order of a man page. It holds ASCII only, which every roff reads without being
//! told an encoding.

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use super::Cli;

/// What divides the text after the options of a command from its examples.
const EXAMPLES: &str = "Examples:\n";

/// The whole page.
pub fn render() -> String {
    let mut root = Cli::command().mut_subcommands(without_common_flags);
    root.build();
    let mut page = Page::default();
    page.opening(&root);
    for command in leaves(&root) {
        page.command(command);
    }
    page.into_text()
}

/// Help and version are told once, of the program.
fn without_common_flags(command: Command) -> Command {
    command.disable_help_flag(true).disable_version_flag(true).mut_subcommands(without_common_flags)
}

/// The commands that do something, in the order of the help.
fn leaves(command: &Command) -> Vec<&Command> {
    let inner = command
        .get_subcommands()
        .flat_map(|inner| if inner.has_subcommands() { leaves(inner) } else { vec![inner] });
    inner.collect()
}

fn full_name(command: &Command) -> &str {
    command.get_bin_name().unwrap_or_else(|| command.get_name())
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn opening(&mut self, root: &Command) {
        let version = format!("locks {}", root.get_version().unwrap_or_default());
        let about = about(root);
        let mut roff = Roff::new();
        // The date is blank: an empty argument would be written as none.
        roff.control("TH", ["LOCKS", "1", " ", &version, "User Commands"]);
        roff.control("SH", ["NAME"]);
        // What `whatis` tells is no sentence.
        let mut rest = about.chars();
        let first: String = rest.next().into_iter().flat_map(char::to_lowercase).collect();
        roff.text([roman(format!("locks - {first}{}", rest.as_str()))]);
        roff.control("SH", ["SYNOPSIS"]);
        for command in leaves(root) {
            roff.text(synopsis(command));
            roff.control("br", []);
        }
        roff.control("SH", ["DESCRIPTION"]);
        roff.text([roman(format!("{about}."))]);
        roff.control("SH", ["COMMANDS"]);
        for command in leaves(root) {
            roff.control("TP", []);
            roff.text([bold(full_name(command))]);
            roff.text([roman(about_in_full(command))]);
        }
        self.push(&roff);
        self.options(root);
    }

    fn command(&mut self, command: &Command) {
        let mut roff = Roff::new();
        roff.control("SH", [full_name(command).to_uppercase().as_str()]);
        roff.text(synopsis(command));
        roff.control("PP", []);
        roff.text([roman(about_in_full(command))]);
        let after = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        let (notes, examples) = after.split_once(EXAMPLES).unwrap_or((&after, ""));
        for paragraph in notes.split("\n\n").filter(|text| !text.trim().is_empty()) {
            roff.control("PP", []);
            roff.text([roman(paragraph.trim())]);
        }
        self.push(&roff);
        self.options(command);
        self.examples(examples);
    }

    /// Every flag and argument, under headings as in the help.
    fn options(&mut self, command: &Command) {
        let mut options = Vec::new();
        // A vector takes every byte.
        let _ = Man::new(command.clone()).render_options_section(&mut options);
        let options = String::from_utf8_lossy(&options);
        let is_part = full_name(command) != "locks";
        for line in without_preamble(&options) {
            // Sections of a command are parts of its section of the page.
            match line.strip_prefix(".SH ").filter(|_| is_part) {
                Some(heading) => self.text.push_str(&format!(".SS {heading}\n")),
                None => self.text.push_str(&format!("{line}\n")),
            }
        }
    }

    /// What each is for, with its lines below it as they are typed.
    fn examples(&mut self, examples: &str) {
        if examples.trim().is_empty() {
            return;
        }
        let mut roff = Roff::new();
        roff.control("SS", ["EXAMPLES"]);
        for line in examples.lines().filter(|line| !line.trim().is_empty()) {
            match line.strip_prefix("    ") {
                Some(typed) => {
                    roff.control("RS", ["4"]);
                    roff.control("nf", []);
                    roff.text([bold(typed)]);
                    roff.control("fi", []);
                    roff.control("RE", []);
                }
                None => {
                    roff.control("PP", []);
                    roff.text([roman(line.trim())]);
                }
            }
        }
        self.push(&roff);
    }

    fn push(&mut self, roff: &Roff) {
        let text = roff.render();
        if self.text.is_empty() {
            self.text = text;
            return;
        }
        for line in without_preamble(&text) {
            self.text.push_str(&format!("{line}\n"));
        }
    }

    fn into_text(self) -> String {
        let mut text = String::with_capacity(self.text.len());
        for c in self.text.chars() {
            if c.is_ascii() {
                text.push(c);
            } else {
                text.push_str(&format!("\\[u{:04X}]", u32::from(c)));
            }
        }
        text
    }
}

/// Lines without what each piece of roff defines for itself at its beginning.
fn without_preamble(text: &str) -> impl Iterator<Item = &str> {
    text.lines().skip_while(|line| line.starts_with(".ie ") || line.starts_with(".el "))
}

/// How a command is typed, in short.
fn synopsis(command: &Command) -> Vec<Inline> {
    let name = full_name(command);
    let usage = command.clone().render_usage().to_string();
    let arguments = usage.split_once(name).map_or("", |(_, arguments)| arguments);
    vec![bold(name), roman(arguments)]
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn about_in_full(command: &Command) -> String {
    format!("{}.", about(command).trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_commands(command: &Command) -> Vec<&Command> {
        let inner = command.get_subcommands().flat_map(all_commands);
        std::iter::once(command).chain(inner).collect()
    }

    #[test]
    fn the_page_names_every_command_every_flag_and_every_variable() {
        let page = render().replace("\\-", "-");
        let mut root = Cli::command();
        root.build();
        for command in all_commands(&root) {
            assert!(page.contains(full_name(command)), "{}", full_name(command));
            for argument in command.get_arguments() {
                let long = argument.get_long().map(|long| format!("\\fB--{long}\\fR"));
                let value = argument.get_value_names().unwrap_or_default().join(" ");
                let written = long.unwrap_or(value);
                assert!(page.contains(&written), "{} {written}", full_name(command));
                if let Some(variable) = argument.get_env() {
                    let variable = variable.to_string_lossy();
                    assert!(page.contains(&format!("\\fB{variable}\\fR")), "{variable}");
                }
            }
        }
    }

    #[test]
    fn each_command_has_a_section_with_its_own_parts() {
        let page = render();
        let sections: Vec<&str> =
            page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        let expected = [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "COMMANDS",
            "OPTIONS",
            "\"LOCKS SERVE\"",
            "\"LOCKS TOP\"",
            "\"LOCKS CHECK\"",
            "\"LOCKS EXPLAIN\"",
            "\"LOCKS REGISTRY CHECK\"",
            "\"LOCKS REGISTRY LIST\"",
            "\"LOCKS REGISTRY SUGGEST\"",
            "\"LOCKS COMPLETIONS\"",
            "\"LOCKS MAN\"",
        ];
        assert_eq!(sections, expected);
        let top = page.split(".SH ").find(|section| section.starts_with("\"LOCKS TOP\"")).unwrap();
        let parts: Vec<&str> = top.lines().filter_map(|line| line.strip_prefix(".SS ")).collect();
        assert_eq!(
            parts,
            ["\"WHERE TO CONNECT\"", "FILES", "VIEW", "ACTING", "SCRIPTS", "EXAMPLES"]
        );
        assert!(top.contains("\\fBlocks top \\-\\-once\\fR"), "{top}");
    }

    #[test]
    fn the_page_is_ascii_with_one_title_and_one_apostrophe() {
        let page = render();
        assert!(page.is_ascii());
        assert!(page.contains("\\[u2265] 12s"), "{page}");
        assert_eq!(page.matches(".ds Aq").count(), 2, "{page}");
        let version = env!("CARGO_PKG_VERSION");
        let title = format!(".TH LOCKS 1 \" \" \"locks {version}\" \"User Commands\"\n");
        assert!(page.contains(&title), "{page}");
    }
}
