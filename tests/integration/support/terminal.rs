//! A terminal as people use one: tmux with one window, a shell in it, keys that are pressed and a
//! screen that is read. It knows nothing of the programs that run in it.

use std::ffi::OsStr;
use std::fs::File;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::process::send_signal;
use super::{Tool, eventually};

/// A terminal of one's own. Dropping it ends whatever runs in it.
pub struct Terminal {
    socket: PathBuf,
    _home: TempDir,
}

/// How a terminal is set, which a program has to leave as it was.
#[derive(Debug, PartialEq, Eq)]
pub struct Settings {
    stty: String,
    is_alternate: String,
    has_cursor: String,
}

impl Terminal {
    /// A terminal of this size with a shell that waits for a command.
    pub async fn start(columns: u16, rows: u16) -> Terminal {
        let home = tempfile::tempdir().expect("a folder can be made");
        let terminal = Terminal { socket: home.path().join("tmux"), _home: home };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        // The prompt tells how the command before it ended. The shell has job control.
        let shell = "env -i PATH=\"$PATH\" TERM=tmux-256color LANG=C.UTF-8 PS1='[$?] ready> ' \
                     bash --norc --noprofile";
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &columns,
            "-y",
            &rows,
            shell,
        ]);
        terminal.tmux(&["set-option", "-g", "escape-time", "0"]);
        terminal.until_shows(&["[0] ready>"]).await;
        terminal
    }

    /// The same, with a command that was started in it.
    pub async fn running(columns: u16, rows: u16, command: &Command) -> Terminal {
        let terminal = Terminal::start(columns, rows).await;
        terminal.run(command);
        terminal
    }

    /// Starts a command, as one who types it. Of its surroundings it gets what was set for it alone.
    pub fn run(&self, command: &Command) {
        let quote = |word: &OsStr| {
            let word = word.to_string_lossy().replace('\'', "'\\''");
            format!("'{word}'")
        };
        let variables = command.get_envs().filter_map(|(name, value)| {
            Some(format!("{}={}", name.to_string_lossy(), quote(value?)))
        });
        let words = iter::once(command.get_program()).chain(command.get_args()).map(quote);
        let line: Vec<String> = variables.chain(words).collect();
        self.type_text(&format!("clear; {}", line.join(" ")));
        self.press("Enter");
    }

    /// Presses a key by its name in tmux: `K`, `Enter`, `C-c`, `Down`.
    pub fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Types a text.
    pub fn type_text(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The same with its escape codes.
    pub fn colored_screen(&self) -> String {
        self.tmux(&["capture-pane", "-e", "-p"])
    }

    /// The text that a program put into the clipboard last.
    pub fn clipboard(&self) -> String {
        self.tmux(&["show-buffer"])
    }

    /// Lets programs put texts into the clipboard.
    pub fn allow_clipboard(&self) {
        self.tmux(&["set-option", "-s", "set-clipboard", "on"]);
    }

    /// Makes the window another size.
    pub fn resize(&self, columns: u16, rows: u16) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.tmux(&["resize-window", "-x", &columns, "-y", &rows]);
    }

    /// Waits until all of these are on the screen, and returns it.
    pub async fn until_shows(&self, texts: &[&str]) -> String {
        eventually(&format!("{texts:?} on the screen"), async || {
            let screen = self.screen();
            for text in texts {
                assert!(screen.contains(text), "no {text:?} on\n{screen}");
            }
            screen
        })
        .await
    }

    /// Waits until none of these is on the screen, and returns it.
    pub async fn until_without(&self, texts: &[&str]) -> String {
        eventually(&format!("none of {texts:?} on the screen"), async || {
            let screen = self.screen();
            for text in texts {
                assert!(!screen.contains(text), "{text:?} is on\n{screen}");
            }
            screen
        })
        .await
    }

    /// Waits until the shell is back, and returns how the command ended.
    pub async fn until_ended(&self) -> i32 {
        eventually("the shell is back", async || {
            let screen = self.screen();
            let prompt = screen.lines().rev().find(|line| !line.trim().is_empty());
            let code = prompt
                .and_then(|line| line.strip_prefix('['))
                .and_then(|rest| rest.trim_end().strip_suffix("] ready>"))
                .and_then(|code| code.parse().ok());
            code.unwrap_or_else(|| panic!("no prompt on\n{screen}"))
        })
        .await
    }

    /// Sends a signal to the program that the shell waits for.
    pub fn signal(&self, signal: &str) {
        let shell = self.format("#{pane_pid}");
        let parent = |stat: &str| {
            // The name of a program may hold anything; what follows its bracket does not.
            let rest = stat.rsplit_once(')')?.1;
            rest.split_whitespace().nth(1).map(str::to_owned)
        };
        let processes = std::fs::read_dir("/proc").expect("there are processes");
        let child = processes.flatten().find(|process| {
            let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
            parent(&stat).as_deref() == Some(&shell)
        });
        let child = child.expect("the shell runs a program").file_name();
        let id = child.to_string_lossy().parse().expect("its folder is its number");
        send_signal(signal, id);
    }

    /// How it is set at the moment.
    pub fn settings(&self) -> Settings {
        let tty = self.format("#{pane_tty}");
        let stty = Command::new("stty")
            .arg("-g")
            .stdin(File::open(Path::new(&tty)).expect("the terminal is ours"))
            .output()
            .expect("stty is there");
        Settings {
            stty: String::from_utf8(stty.stdout).expect("settings are text"),
            is_alternate: self.format("#{alternate_on}"),
            has_cursor: self.format("#{cursor_flag}"),
        }
    }

    fn format(&self, format: &str) -> String {
        self.tmux(&["display-message", "-p", format]).trim().to_owned()
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = Command::new(Tool::Tmux.path())
            .arg("-S")
            .arg(&self.socket)
            .args(arguments)
            .env_remove("TMUX")
            .output()
            .expect("tmux can be run");
        assert!(
            output.status.success(),
            "tmux {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new(Tool::Tmux.path())
            .arg("-S")
            .arg(&self.socket)
            .arg("kill-server")
            .stderr(Stdio::null())
            .status();
    }
}
