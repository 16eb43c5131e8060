//! One child process with its log: started as a user who may run it, watched, signalled, and
//! ended whatever happens to the test. It does not know what the program is or when it is ready.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use super::{DEADLINE, PAUSE};

/// A running program. Dropping it ends it.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// The signal that [`Drop`] tries first.
    parting_signal: &'static str,
}

impl Process {
    /// Starts the command with everything it says appended to the file `log`.
    pub fn start(mut command: Command, log: &Path, parting_signal: &'static str) -> Process {
        let name = command.get_program().to_string_lossy().into_owned();
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .unwrap_or_else(|error| panic!("cannot open {}: {error}", log.display()));
        let also_output = output.try_clone().expect("a file can be shared");
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(also_output)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        Process { name, child, log: log.to_owned(), parting_signal }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// All that it said so far, on either stream.
    pub fn log(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// How it ended, if it did.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits until it is ready by the caller's measure; panics with its log if it ends before.
    pub async fn until_ready(&mut self, is_ready: impl AsyncFnMut(&Process) -> bool) {
        self.until_ready_within(DEADLINE, is_ready).await;
    }

    /// The same with a deadline of one's own.
    pub async fn until_ready_within(
        &mut self,
        deadline: Duration,
        mut is_ready: impl AsyncFnMut(&Process) -> bool,
    ) {
        let waiting = tokio::time::timeout(deadline, async {
            while !is_ready(self).await {
                if let Some(status) = self.exit_status() {
                    panic!(
                        "{} ended with {status} before it was ready:\n{}",
                        self.name,
                        self.log()
                    );
                }
                tokio::time::sleep(PAUSE).await;
            }
        })
        .await;
        if waiting.is_err() {
            panic!("{} is not ready after {deadline:?}:\n{}", self.name, self.log());
        }
    }

    /// Waits until it ends; panics with its log if it does not.
    pub async fn until_ended(&mut self) -> ExitStatus {
        let waiting = tokio::time::timeout(DEADLINE, async {
            loop {
                if let Some(status) = self.exit_status() {
                    return status;
                }
                tokio::time::sleep(PAUSE).await;
            }
        })
        .await;
        waiting.unwrap_or_else(|_| {
            panic!("{} still runs after {DEADLINE:?}:\n{}", self.name, self.log())
        })
    }

    /// Sends a signal by its short name, as `TERM`.
    pub fn signal(&self, signal: &str) {
        send_signal(signal, self.child.id());
    }
}

/// What a command that ends by itself left behind.
pub struct Outcome {
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// What it said on standard output.
    pub stdout: String,
    /// And on standard error.
    pub stderr: String,
}

/// Runs a command to its end while other tasks of the test go on.
pub async fn run(mut command: Command) -> Outcome {
    let output = tokio::task::spawn_blocking(move || command.output());
    let output = output.await.expect("it can be waited for").expect("the binary can be run");
    let text = |bytes| String::from_utf8(bytes).expect("it says text");
    Outcome { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Sends a signal by its short name, as `TERM`.
pub fn send_signal(signal: &str, id: u32) {
    // The shell's own `kill`: every system has it, and the standard library has none.
    let sent = Command::new("sh")
        .args(["-c", "kill -s \"$0\" \"$1\"", signal, &id.to_string()])
        .stderr(Stdio::null())
        .status();
    assert!(sent.is_ok(), "cannot run sh to signal process {id}");
}

/// Processes that neither run nor end. Dropping it lets them go on, whatever became of the test.
pub struct Frozen(Vec<u32>);

impl Frozen {
    /// Stops these processes where they stand.
    pub fn freeze(ids: &[u32]) -> Frozen {
        let frozen = Frozen(ids.to_vec());
        ids.iter().for_each(|&id| send_signal("STOP", id));
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.0.iter().for_each(|&id| send_signal("CONT", id));
    }
}

impl Drop for Process {
    #[expect(clippy::print_stderr, reason = "the log belongs into the report of the failed test")]
    fn drop(&mut self) {
        if thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(40)..];
            eprintln!("--- the end of the log of {}:\n{}\n---", self.name, tail.join("\n"));
        }
        // An unwaited child keeps its id, so the signal cannot reach a stranger.
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        self.signal(self.parting_signal);
        let pause = Duration::from_millis(5);
        for _ in 0..1000 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(pause);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whom a program that refuses to run as root runs as.
#[derive(Clone, Copy, Debug)]
pub struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// `postgres` or `nobody` when the tests run as root, else nobody else.
    pub fn unprivileged() -> Option<User> {
        static USER: OnceLock<Option<User>> = OnceLock::new();
        *USER.get_or_init(|| {
            if own_uid() != 0 {
                return None;
            }
            let accounts = fs::read_to_string("/etc/passwd").expect("there are accounts");
            let find = |name: &str| {
                accounts.lines().find_map(|line| {
                    let mut fields = line.split(':');
                    let is_wanted = fields.next() == Some(name);
                    let uid = fields.nth(1)?.parse().ok()?;
                    let gid = fields.next()?.parse().ok()?;
                    is_wanted.then_some(User { uid, gid })
                })
            };
            Some(find("postgres").or_else(|| find("nobody")).expect("there is a user nobody"))
        })
    }
}

/// A command that runs as [`User::unprivileged`] in a folder which that user may enter.
pub fn unprivileged_command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder);
    if let Some(user) = User::unprivileged() {
        command.uid(user.uid).gid(user.gid);
    }
    command
}

/// Gives a file or folder to [`User::unprivileged`].
pub fn give_away(path: &Path) {
    if let Some(user) = User::unprivileged() {
        chown(path, Some(user.uid), Some(user.gid))
            .unwrap_or_else(|error| panic!("cannot give away {}: {error}", path.display()));
    }
}

/// Who runs the tests, read from a file of ours because the standard library does not say.
pub fn own_uid() -> u32 {
    static UID: OnceLock<u32> = OnceLock::new();
    *UID.get_or_init(|| {
        let file = tempfile::tempfile().expect("a temporary file can be made");
        file.metadata().expect("a file has an owner").uid()
    })
}

/// A folder for one server, short enough for a Unix socket in it and open to the user it runs as.
pub fn make_home() -> tempfile::TempDir {
    let home = tempfile::Builder::new().prefix("locks-").tempdir().expect("a folder can be made");
    give_away(home.path());
    home
}
