//! The registry's files while the program runs: read at the start, watched, and read again.
//!
//! An edge: it reads files and the clock, and hears SIGHUP. What files mean is `registry`'s
//! business; the registry in use goes to the pollers and to the scrapes on a watch channel, with
//! how the last reading went. Files that are broken or gone change nothing but that: the registry
//! read before stays in use, and the log says so once.
//!
//! A change is found by looking, every two seconds, at what stands behind the paths: that works for
//! a ConfigMap, whose `..data` link is swapped, for editors that write a new file and rename it, and
//! on file systems that send no events. What two looks in a row found alike is settled: a file that
//! is being written, or is gone for a moment, is not read half done. Only other content is a change;
//! a touch is none. SIGHUP reads at once, whatever a look would find.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::error::Error;
use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::poller::local_now;
use crate::registry::{Conflict, Registry, RegistryError};
use crate::timestamp::Timestamp;

const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What has changed is looked at again after this time, and read when it stayed as it was.
const SETTLE: Duration = Duration::from_millis(500);

/// Of a long list, a line of the log shows so many.
const LISTED: usize = 10;

/// The registry in use, and how the last reading of its files went.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The last one that was read without a fault.
    pub registry: Arc<Registry>,
    /// When it was read, on our clock.
    pub read_at: Timestamp,
    /// The last reading found no fault. Else the files say something else than `registry`.
    pub is_current: bool,
}

/// The files that the registry is made of.
#[derive(Debug)]
pub struct RegistryFiles {
    /// As they were configured.
    paths: Vec<PathBuf>,
    loaded: watch::Sender<Loaded>,
    hasher: RandomState,
    /// What was behind the watched paths before the last reading.
    contents: BTreeMap<PathBuf, Content>,
    /// What the paths looked like when `contents` was last compared with the files.
    compared: Option<BTreeMap<PathBuf, Stamp>>,
    /// What the last look found, where that was a change.
    unsettled: Option<BTreeMap<PathBuf, Stamp>>,
    /// The fault that the log told last, while it lasts.
    fault: Option<String>,
}

/// Why a registry was not loaded again.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// Missing, unreadable or not in the language.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A pipe, of which nothing is left to read and which may block for ever, or a folder.
    #[error(
        "registry file {} is not a regular file, and can be read at the start only: restart to \
         apply changes, or use a regular file", path.display()
    )]
    NotAFile {
        /// As it was given.
        path: PathBuf,
    },
}

/// What makes us read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// SIGHUP: somebody waits for an answer.
    Asked,
    /// The files say something else than at the last reading.
    Changed,
    /// They say the same, and the last reading failed: it may have been something else that they
    /// need, or a file system that had a bad moment.
    Failed,
}

/// What tells one state of a file from the next without reading it, symbolic links followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stamp {
    File { device: u64, inode: u64, size: u64, modified: (i64, i64), changed: (i64, i64) },
    NotAFile,
    Unreadable(io::ErrorKind),
}

/// What a file says, as far as it matters whether it is the same as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Hash(u64),
    NotAFile,
    Unreadable(io::ErrorKind),
}

impl RegistryFiles {
    /// Reads the files for the first time. A fault is the caller's to tell; conflicts are logged.
    pub fn load(paths: Vec<PathBuf>) -> Result<Self, RegistryError> {
        let registry = Arc::new(Registry::empty());
        let loaded = Loaded { registry, read_at: local_now(), is_current: false };
        let mut files = Self {
            paths,
            loaded: watch::Sender::new(loaded),
            hasher: RandomState::new(),
            contents: BTreeMap::new(),
            compared: None,
            unsettled: None,
            fault: None,
        };
        files.contents = files.fetch_contents();
        let registry = Registry::load(&files.paths)?;
        log_conflicts(&registry, &[]);
        files.publish(registry);
        Ok(files)
    }

    /// The registry in use, now and after each reading.
    pub fn subscribe(&self) -> watch::Receiver<Loaded> {
        self.loaded.subscribe()
    }

    /// Watches the files, and reads them when they changed or when `hangup` says so. Never returns.
    pub async fn run(mut self, mut hangup: Signal) -> Infallible {
        let mut pause = LOOK_EVERY;
        loop {
            let is_asked = tokio::select! {
                // In this order, so that a change for which somebody asks is told once.
                biased;
                Some(()) = hangup.recv() => true,
                () = sleep(pause) => false,
            };
            let reading = spawn_blocking(move || {
                let pause = if is_asked { self.reload_now() } else { self.look() };
                (self, pause)
            });
            match reading.await {
                Ok(read) => (self, pause) = read,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
    }

    /// Reads, whatever there is. Returns when to look next.
    fn reload_now(&mut self) -> Duration {
        // Nothing says that this was settled: the next looks compare it once more.
        (self.compared, self.unsettled) = (None, None);
        let contents = self.fetch_contents();
        self.reload(contents, Cause::Asked);
        LOOK_EVERY
    }

    /// Looks for changes, and reads what has settled. Returns when to look next.
    fn look(&mut self) -> Duration {
        let stamps: BTreeMap<_, _> =
            self.watched().map(|path| (path.clone(), stamp(path))).collect();
        let is_changed = self.compared.as_ref() != Some(&stamps);
        if is_changed && self.unsettled.as_ref() != Some(&stamps) {
            self.unsettled = Some(stamps);
            return SETTLE;
        }
        self.unsettled = None;
        self.compared = Some(stamps);
        if is_changed {
            let contents = self.fetch_contents();
            if contents != self.contents {
                self.reload(contents, Cause::Changed);
                return LOOK_EVERY;
            }
        }
        if self.fault.is_some() {
            self.reload(self.contents.clone(), Cause::Failed);
        }
        LOOK_EVERY
    }

    /// `contents` was read before, so that what is written meanwhile is found by the next look.
    fn reload(&mut self, contents: BTreeMap<PathBuf, Content>, cause: Cause) {
        self.contents = contents;
        match self.fetch_registry() {
            Ok(registry) => {
                let before = self.loaded.borrow().registry.clone();
                log_reload(&before, &registry, self.paths.len());
                log_conflicts(&registry, before.conflicts());
                self.publish(registry);
            }
            Err(error) => self.refuse(&error, cause),
        }
    }

    fn fetch_registry(&self) -> Result<Registry, ReloadError> {
        for path in &self.paths {
            if self.contents.get(path) == Some(&Content::NotAFile) {
                return Err(ReloadError::NotAFile { path: path.clone() });
            }
        }
        Ok(Registry::load(&self.paths)?)
    }

    fn publish(&mut self, registry: Registry) {
        self.fault = None;
        let registry = Arc::new(registry);
        self.loaded.send_replace(Loaded { registry, read_at: local_now(), is_current: true });
        // A new registry may be made of other files.
        let mut contents = std::mem::take(&mut self.contents);
        self.contents = self
            .watched()
            .map(|path| {
                let known = contents.remove(path);
                (path.clone(), known.unwrap_or_else(|| self.fetch_content(path)))
            })
            .collect();
    }

    /// Keeps the registry in use.
    fn refuse(&mut self, error: &ReloadError, cause: Cause) {
        let fault = format!("{error:?}");
        if cause != Cause::Failed || self.fault.as_ref() != Some(&fault) {
            tracing::error!(
                in_use_since = %self.loaded.borrow().read_at,
                error = error as &(dyn Error + 'static),
                "cannot reload the registry; going on with the one that was read before"
            );
        }
        self.fault = Some(fault);
        self.loaded.send_if_modified(|loaded| std::mem::replace(&mut loaded.is_current, false));
    }

    /// All that the registry in use depends on. Here is the place for files that a registry names
    /// in its turn.
    fn watched(&self) -> impl Iterator<Item = &PathBuf> {
        self.paths.iter()
    }

    fn fetch_contents(&self) -> BTreeMap<PathBuf, Content> {
        self.watched().map(|path| (path.clone(), self.fetch_content(path))).collect()
    }

    fn fetch_content(&self, path: &Path) -> Content {
        // To open a pipe might never end.
        if stamp(path) == Stamp::NotAFile {
            return Content::NotAFile;
        }
        match self.fetch_hash(path) {
            Ok(hash) => Content::Hash(hash),
            Err(error) => Content::Unreadable(error.kind()),
        }
    }

    fn fetch_hash(&self, path: &Path) -> io::Result<u64> {
        let mut file = File::open(path)?;
        let mut hasher = self.hasher.build_hasher();
        let mut buffer = [0; 16 * 1024];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(hasher.finish()),
                length => hasher.write(&buffer[..length]),
            }
        }
    }
}

fn stamp(path: &Path) -> Stamp {
    let file = |file: &Metadata| Stamp::File {
        device: file.dev(),
        inode: file.ino(),
        size: file.size(),
        modified: (file.mtime(), file.mtime_nsec()),
        // Permissions are part of what can be read.
        changed: (file.ctime(), file.ctime_nsec()),
    };
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => file(&metadata),
        Ok(_) => Stamp::NotAFile,
        Err(error) => Stamp::Unreadable(error.kind()),
    }
}

fn log_reload(before: &Registry, now: &Registry, files: usize) {
    let names = |registry: &Registry| -> BTreeSet<Arc<str>> {
        registry.locks().iter().map(|lock| lock.name.clone()).collect()
    };
    let (names_before, names) = (names(before), names(now));
    let listed = |names: Vec<&Arc<str>>| {
        let shown: Vec<&str> = names.iter().take(LISTED).map(|name| &***name).collect();
        match names.len().saturating_sub(LISTED) {
            0 => shown.join(", "),
            more => format!("{} and {more} more", shown.join(", ")),
        }
    };
    tracing::info!(
        files,
        entries_before = before.entry_count(),
        entries = now.entry_count(),
        new_names = listed(names.difference(&names_before).collect()),
        gone_names = listed(names_before.difference(&names).collect()),
        "reloaded the registry"
    );
}

fn log_conflicts(registry: &Registry, told: &[Conflict]) {
    for conflict in registry.conflicts().iter().filter(|conflict| !told.contains(conflict)) {
        tracing::warn!(%conflict, "a key of the registry has several names; its label shows all");
    }
}
