//! A terminal that lives for one test: tmux draws what a program writes, and types what a test
//! types. A shell stands between them, as on any terminal, so that programs can be stopped, go on
//! and end there. Nothing of the user's own surroundings comes in, and no other tmux is touched.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use tempfile::TempDir;

use super::process::{Outcome, Process, run, send_signal};
use super::{DEADLINE, PAUSE, Tool};

/// A line to itself, without colours that would be in the way of programs, and with the clipboard
/// that programs ask for.
const CONFIGURATION: &str = "\
    set-option -g status off\n\
    set-option -g default-terminal screen-256color\n\
    set-option -g set-clipboard on\n\
    set-option -s escape-time 0\n";

/// The session, of which there is one.
const SESSION: &str = "terminal";

/// A terminal of one's own, with a shell in it.
pub struct Terminal {
    // Dropped in this order: tmux ends, and all that runs in it, before its folder goes.
    server: Process,
    tty: String,
    home: TempDir,
}

impl Terminal {
    /// Opens a terminal of this size and waits for the prompt of its shell.
    pub async fn open(columns: u16, rows: u16) -> Terminal {
        let home = tempfile::Builder::new().prefix("locks-").tempdir().expect("a folder");
        let configuration = home.path().join("tmux.conf");
        fs::write(&configuration, CONFIGURATION).expect("the folder is ours");
        let mut command = tmux(home.path());
        // In the foreground it is a child of ours, and ends with the test.
        command.arg("-D").arg("-f").arg(configuration);
        let mut server = Process::start(command, &home.path().join("tmux.log"), "TERM");
        let socket = home.path().join("socket");
        server
            .until_ready(async |_| {
                socket.exists() && {
                    let mut command = tmux(home.path());
                    command.args(["-N", "show-options", "-g"]);
                    run(command).await.code == Some(0)
                }
            })
            .await;
        let mut terminal = Terminal { server, tty: String::new(), home };
        let size = (columns.to_string(), rows.to_string());
        terminal
            .tmux(&["new-session", "-d", "-s", SESSION, "-x", &size.0, "-y", &size.1, "sh -i"])
            .await;
        terminal.tty = terminal.describe("#{pane_tty}").await;
        terminal.exit_status().await;
        terminal
    }

    /// Starts a program from the prompt of the shell. It has the terminal when this returns.
    pub async fn start(&self, command: Command) {
        let _ = fs::remove_file(self.pid_file());
        // From a file: on the screen a long command would be in the way.
        fs::write(self.home.path().join("start"), render_script(&command))
            .expect("the folder is ours");
        self.type_text("sh ./start").await;
        self.press("Enter").await;
        super::eventually("the program is started", async || {
            assert!(self.find_process_id().is_some(), "there is no process id");
        })
        .await;
    }

    /// The process id of the program that was started last.
    pub fn process_id(&self) -> u32 {
        self.find_process_id().expect("a program was started")
    }

    /// Sends that program a signal by its short name, as `TERM`.
    pub fn signal(&self, signal: &str) {
        send_signal(signal, self.process_id());
    }

    /// Waits for the prompt and returns with what the last program ended, as the shell has it: 128
    /// and the number of a signal for one that was killed or stopped.
    pub async fn exit_status(&self) -> i32 {
        let waiting = tokio::time::timeout(DEADLINE, async {
            loop {
                let row: usize = self.describe("#{cursor_y}").await.parse().expect("a row");
                let screen = self.screen().await;
                let line = screen.lines().nth(row).unwrap_or_default();
                // A program may have left something before it on the line.
                let prompt = line.strip_suffix("]$").and_then(|line| line.rsplit_once('['));
                if let Some(status) = prompt.and_then(|(_, status)| status.parse().ok()) {
                    return status;
                }
                tokio::time::sleep(PAUSE).await;
            }
        })
        .await;
        match waiting {
            Ok(status) => status,
            Err(_) => panic!("no prompt after {DEADLINE:?}:\n{}", frame(&self.screen().await)),
        }
    }

    /// Presses keys, each by tmux's name for it: `K`, `Enter`, `Escape`, `Up`, `PgDn`, `C-z`.
    pub async fn press(&self, keys: &str) {
        let mut arguments = vec!["send-keys", "-t", SESSION];
        arguments.extend(keys.split(' '));
        self.tmux(&arguments).await;
    }

    /// Types a text as it is.
    pub async fn type_text(&self, text: &str) {
        self.tmux(&["send-keys", "-t", SESSION, "-l", "--", text]).await;
    }

    /// What is on the screen now, a line a row, without the blanks at their ends.
    pub async fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", SESSION]).await
    }

    /// The same with colours, as escape sequences.
    pub async fn screen_with_escapes(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e", "-t", SESSION]).await
    }

    /// Waits until the screen is such, and returns it. `what` finishes the sentence "did not come
    /// to be: …"; the screen follows it.
    pub async fn eventually(&self, what: &str, is_such: impl Fn(&str) -> bool) -> String {
        let waiting = tokio::time::timeout(DEADLINE, async {
            loop {
                let screen = self.screen().await;
                if is_such(&screen) {
                    return screen;
                }
                tokio::time::sleep(PAUSE).await;
            }
        })
        .await;
        match waiting {
            Ok(screen) => screen,
            Err(_) => panic!(
                "did not come to be: {what}, within {DEADLINE:?}; at last the screen was\n{}",
                frame(&self.screen().await)
            ),
        }
    }

    /// Changes the size, of which programs are told.
    pub async fn resize(&self, columns: u16, rows: u16) {
        let size = (columns.to_string(), rows.to_string());
        self.tmux(&["resize-window", "-t", SESSION, "-x", &size.0, "-y", &size.1]).await;
    }

    /// How the terminal is set now, for comparing it before and after a program.
    pub async fn settings(&self) -> Settings {
        let mut stty = Command::new("sh");
        stty.args(["-c", "stty -g <\"$0\"", &self.tty]);
        let stty = run(stty).await;
        assert_eq!(stty.code, Some(0), "cannot ask {}: {}", self.tty, stty.stderr);
        let flags = "alternate screen #{alternate_on}, cursor #{cursor_flag}, mouse \
                     #{mouse_any_flag}, keypad #{keypad_flag}, cursor keys \
                     #{keypad_cursor_flag}, insert #{insert_flag}, wrap #{wrap_flag}, origin \
                     #{origin_flag}, scroll from #{scroll_region_upper} to #{scroll_region_lower}";
        Settings { stty: stty.stdout.trim().to_owned(), modes: self.describe(flags).await }
    }

    /// What a program put into the clipboard last, by OSC 52.
    pub async fn clipboard(&self) -> Option<String> {
        let outcome = self.try_tmux(&["show-buffer"]).await;
        (outcome.code == Some(0)).then_some(outcome.stdout)
    }

    async fn describe(&self, format: &str) -> String {
        let text = self.tmux(&["display-message", "-p", "-t", SESSION, format]).await;
        text.trim_end().to_owned()
    }

    async fn tmux(&self, arguments: &[&str]) -> String {
        let outcome = self.try_tmux(arguments).await;
        assert_eq!(
            outcome.code,
            Some(0),
            "tmux {arguments:?}: {}; its log: {}",
            outcome.stderr,
            self.server.log()
        );
        outcome.stdout
    }

    async fn try_tmux(&self, arguments: &[&str]) -> Outcome {
        let mut command = tmux(self.home.path());
        // It must not start a server of which nobody knows.
        command.arg("-N").args(arguments);
        run(command).await
    }

    fn pid_file(&self) -> PathBuf {
        self.home.path().join("pid")
    }

    fn find_process_id(&self) -> Option<u32> {
        fs::read_to_string(self.pid_file()).ok()?.trim().parse().ok()
    }
}

impl Drop for Terminal {
    #[expect(
        clippy::print_stderr,
        reason = "the screen belongs into the report of the failed test"
    )]
    fn drop(&mut self) {
        if thread::panicking() {
            let mut command = tmux(self.home.path());
            command.args(["-N", "capture-pane", "-p", "-t", SESSION]);
            if let Ok(screen) = command.output() {
                eprintln!("--- the screen:\n{}", frame(&String::from_utf8_lossy(&screen.stdout)));
            }
        }
    }
}

/// What a program has to leave as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// As `stty -g` writes them.
    pub stty: String,
    /// What the terminal itself was told, in words.
    pub modes: String,
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.modes, self.stty)
    }
}

/// tmux as a server or a client of it, in surroundings that hold nothing of the user's own.
fn tmux(home: &Path) -> Command {
    let mut command = Command::new(Tool::Tmux.path());
    command.current_dir(home).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", home).env("SHELL", "/bin/sh").env("LANG", "C.UTF-8");
    // The prompt tells how the last program ended.
    command.env("PS1", "[$?]$ ").env("HISTFILE", "/dev/null");
    command.arg("-u").arg("-S").arg(home.join("socket"));
    command
}

/// What the shell reads to become the command, after it has written down its process id.
fn render_script(command: &Command) -> String {
    let quote = |text: &OsStr| {
        let text = text.to_str().expect("tests use plain text");
        format!("'{}'", text.replace('\'', "'\\''"))
    };
    let mut script = String::from("unset PS1 HISTFILE\n");
    for (name, value) in command.get_envs() {
        let name = name.to_str().expect("tests use plain text");
        match value {
            Some(value) => script.push_str(&format!("export {name}={}\n", quote(value))),
            None => script.push_str(&format!("unset {name}\n")),
        }
    }
    script.push_str("echo $$ >pid.unfinished && mv pid.unfinished pid\nexec");
    for text in iter::once(command.get_program()).chain(command.get_args()) {
        script.push_str(&format!(" {}", quote(text)));
    }
    script.push('\n');
    script
}

fn frame(screen: &str) -> String {
    let lines: Vec<String> = screen.lines().map(|line| format!("│{line}")).collect();
    lines.join("\n")
}
