//! The configuration file while the program runs: watched, and read again when it says something else
//! or SIGHUP asks.
//!
//! An edge: it reads a file and hears a signal. What is read goes to whoever applies it; a file that is
//! broken changes nothing, and the log says so once, with the place of the mistake. As with the
//! registry's files, what two looks in a row found alike is settled.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::PathBuf;
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
    /// What it said at the last reading.
    read: Text,
    /// What the last look found, where that was something else.
    unsettled: Option<Text>,
    /// The fault that the log told last, while it lasts.
    fault: Option<String>,
}

/// A file's content, or why there is none.
type Text = Result<String, io::ErrorKind>;

impl ConfigFile {
    /// For a file that was read just now without a fault.
    pub fn new(path: PathBuf, load: Load) -> Self {
        let reading = Reading { is_current: true, read_at: local_now() };
        let read = fetch(&path);
        Self {
            path,
            load,
            reading: watch::Sender::new(reading),
            read,
            unsettled: None,
            fault: None,
        }
    }

    /// How the last reading went, now and after each.
    pub fn subscribe(&self) -> watch::Receiver<Reading> {
        self.reading.subscribe()
    }

    /// Watches the file and sends what it says, when it says something else. Never returns.
    pub async fn run(mut self, mut hangup: Signal, changes: mpsc::Sender<Config>) -> Infallible {
        // A pipe was read at the start, and nothing more comes out of it.
        if !fs::metadata(&self.path).is_ok_and(|file| file.is_file()) {
            return std::future::pending().await;
        }
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
        match (self.load)() {
            Ok(config) => {
                self.fault = None;
                self.reading.send_replace(Reading { is_current: true, read_at: local_now() });
                Some(config)
            }
            Err(error) => {
                self.refuse(&error, is_news);
                None
            }
        }
    }

    /// Keeps what is in use.
    fn refuse(&mut self, error: &ConfigError, is_news: bool) {
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

fn fetch(path: &PathBuf) -> Text {
    fs::read_to_string(path).map_err(|error| error.kind())
}
