//! The configuration file while the program runs: watched, and read again when it says something else
//! or SIGHUP asks.
//!
//! An edge: it reads a file and hears a signal. What is read goes to whoever applies it; a file that is
//! broken changes nothing, and the log says so once, with the place of the mistake. As with the
//! registry's files, what two looks in a row found alike is settled.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::{LOOK_EVERY, SETTLE};
use crate::config::{Config, ConfigError};
use crate::poller::local_now;
use crate::timestamp::Timestamp;

/// Reads everything again that the command line, the environment and the file say.
pub type Load = Arc<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>;

/// How the last reading went.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// It found no fault. Else the file says something else than what is in use.
    pub is_current: bool,
    /// When what is in use was read, on our clock.
    pub read_at: Timestamp,
}

/// A configuration file.
pub struct ConfigFile {
    path: PathBuf,
    load: Load,
    reading: watch::Sender<Reading>,
    /// The servers that are watched are those of the file.
    lists_servers: bool,
    /// What it said at the last reading.
    read: Text,
    /// What the last look found, where that was something else.
    unsettled: Option<Text>,
    /// The fault that the log told last, while it lasts.
    fault: Option<String>,
}

/// A file's content, or why there is none.
type Text = Result<String, io::ErrorKind>;

/// Why what the file says now is not applied.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Half a file, or an empty one, would end what is known of every server.
    #[error(
        "{} lists no `servers` any more: list at least one, or restart to watch the one that flags and \
         environment name", .0.display()
    )]
    NoServers(PathBuf),
    /// A pipe, of which nothing is left to read and which may block for ever, or a folder.
    #[error(
        "{} is not a regular file, and can be read at the start only: restart to apply changes, or use \
         a regular file", .0.display()
    )]
    NotAFile(PathBuf),
}

impl ConfigFile {
    /// Reads the file for the first time. A fault is the caller's to tell.
    pub fn load(path: PathBuf, load: Load) -> Result<(Config, Self), ConfigError> {
        // First, so that what is written meanwhile is found by the first look.
        let read = fetch(&path);
        let config = load()?;
        let reading = Reading { is_current: true, read_at: local_now() };
        let file = Self {
            path,
            load,
            reading: watch::Sender::new(reading),
            lists_servers: config.lists_servers,
            read,
            unsettled: None,
            fault: None,
        };
        Ok((config, file))
    }

    /// How the last reading went, now and after each.
    pub fn subscribe(&self) -> watch::Receiver<Reading> {
        self.reading.subscribe()
    }

    /// Watches the file and sends what it says, when it says something else. Never returns.
    pub async fn run(mut self, mut hangup: Signal, changes: mpsc::Sender<Config>) -> Infallible {
        let mut pause = LOOK_EVERY;
        loop {
            let is_asked = tokio::select! {
                biased;
                Some(()) = hangup.recv() => true,
                () = sleep(pause) => false,
            };
            let looking = spawn_blocking(move || {
                let found = self.look(is_asked);
                (self, found)
            });
            let found = match looking.await {
                Ok((file, found)) => {
                    self = file;
                    found
                }
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            };
            pause = if self.unsettled.is_some() { SETTLE } else { LOOK_EVERY };
            if let Some(config) = found {
                // Nobody listens any more where the program ends.
                let _ = changes.send(config).await;
            }
        }
    }

    /// What is to be applied, if anything.
    fn look(&mut self, is_asked: bool) -> Option<Config> {
        let text = fetch(&self.path);
        if !is_asked {
            if text == self.read {
                self.unsettled = None;
                // It may have been another file that was missing, with a password.
                self.fault.as_ref()?;
            } else if self.unsettled.as_ref() != Some(&text) {
                self.unsettled = Some(text);
                return None;
            }
        }
        self.unsettled = None;
        let is_news = std::mem::replace(&mut self.read, text) != self.read || is_asked;
        match self.fetch_config() {
            Ok(config) => {
                self.fault = None;
                self.lists_servers = config.lists_servers;
                self.reading.send_replace(Reading { is_current: true, read_at: local_now() });
                Some(config)
            }
            Err(error) => {
                self.refuse(&error, is_news);
                None
            }
        }
    }

    fn fetch_config(&self) -> Result<Config, Fault> {
        if self.read == Err(io::ErrorKind::InvalidInput) {
            return Err(Fault::NotAFile(self.path.clone()));
        }
        let config = (self.load)()?;
        if self.lists_servers && !config.lists_servers {
            return Err(Fault::NoServers(self.path.clone()));
        }
        Ok(config)
    }

    /// Keeps what is in use.
    fn refuse(&mut self, error: &Fault, is_news: bool) {
        self.reading.send_modify(|reading| reading.is_current = false);
        let fault = error.to_string();
        if is_news || self.fault.as_ref() != Some(&fault) {
            tracing::error!(
                in_use_since = %self.reading.borrow().read_at,
                %error,
                "cannot reload the configuration; going on with the one that was read before"
            );
        }
        self.fault = Some(fault);
    }
}

/// Never opens a pipe, which might take for ever, and whose text is for whoever reads it at the start.
fn fetch(path: &Path) -> Text {
    match fs::metadata(path) {
        Ok(file) if !file.is_file() => Err(io::ErrorKind::InvalidInput),
        Ok(_) => fs::read_to_string(path).map_err(|error| error.kind()),
        Err(error) => Err(error.kind()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use clap::Parser as _;
    use tempfile::TempDir;

    use super::*;
    use crate::cli::{Cli, Command};

    const ONE: &str = "servers: [{ name: a, dsn: 'host=a user=u' }]\n";
    const TWO: &str =
        "servers: [{ name: a, dsn: 'host=a user=u' }, { name: b, dsn: 'host=b user=u' }]\n";

    /// A file as it is after the looks that follow the start.
    struct Watched {
        folder: TempDir,
        file: ConfigFile,
    }

    impl Watched {
        fn new(text: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("locks.yaml");
            fs::write(&path, text).unwrap();
            let arguments = ["locks", "serve", "--config.file", path.to_str().unwrap()];
            let Command::Serve(args) = Cli::try_parse_from(arguments).unwrap().command else {
                unreachable!("it is `serve` that was typed")
            };
            let load: Load = Arc::new(move || Config::load(&args));
            let (_, mut file) = ConfigFile::load(path, load).unwrap();
            assert!(file.look(false).is_none(), "nothing changed since the start");
            Self { folder, file }
        }

        fn write(&self, text: &str) {
            fs::write(self.folder.path().join("locks.yaml"), text).unwrap();
        }

        /// Looks twice, since what changed has to settle, and says which servers are to be watched.
        fn settle(&mut self) -> Option<Vec<String>> {
            let config = self.file.look(false).or_else(|| self.file.look(false))?;
            Some(config.servers.into_iter().map(|server| server.name).collect())
        }

        fn is_current(&self) -> bool {
            self.file.reading.borrow().is_current
        }
    }

    #[test]
    fn a_change_is_read_once_two_looks_found_it_alike() {
        let mut watched = Watched::new(ONE);
        watched.write("servers:  # half");
        assert!(watched.file.look(false).is_none());
        watched.write(TWO);
        assert!(watched.file.look(false).is_none(), "it is still being written");
        assert_eq!(watched.settle().unwrap(), ["a", "b"]);
        assert_eq!(watched.settle(), None, "nothing is news any more");
    }

    #[test]
    fn a_file_that_lists_no_servers_any_more_ends_none() {
        let mut watched = Watched::new(ONE);
        for text in ["", "servers: []\n", "poll: { interval: 2s }\n"] {
            watched.write(text);
            assert_eq!(watched.settle(), None, "{text}");
            assert!(!watched.is_current(), "{text}");
            let fault = watched.file.fault.clone().unwrap();
            assert!(
                fault.contains("locks.yaml lists no `servers` any more: list at least"),
                "{fault}"
            );
        }
        watched.write(TWO);
        assert_eq!(watched.settle().unwrap(), ["a", "b"]);
        assert!(watched.is_current());
    }

    #[test]
    fn what_is_no_file_any_more_is_not_opened() {
        let mut watched = Watched::new(ONE);
        fs::remove_file(&watched.file.path).unwrap();
        let _socket = UnixListener::bind(&watched.file.path).unwrap();
        assert!(watched.file.look(true).is_none());
        let fault = watched.file.fault.clone().unwrap();
        assert!(fault.contains("is not a regular file"), "{fault}");
    }

    #[test]
    fn a_file_that_stays_away_is_a_fault_until_it_is_back() {
        let mut watched = Watched::new(ONE);
        fs::remove_file(&watched.file.path).unwrap();
        assert_eq!(watched.settle(), None);
        assert!(!watched.is_current());
        watched.write(ONE);
        assert_eq!(watched.settle().unwrap(), ["a"]);
        assert!(watched.is_current());
    }
}
