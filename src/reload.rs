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

pub mod config;

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
use crate::registry::{Registry, RegistryError};
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
    max_keys: usize,
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
    /// Reads the files for the first time, now and later bounded to `max_keys` computed keys. A
    /// fault is the caller's to tell; conflicts are logged.
    pub fn load(paths: Vec<PathBuf>, max_keys: usize) -> Result<Self, RegistryError> {
        let registry = Arc::new(Registry::empty());
        let loaded = Loaded { registry, read_at: local_now(), is_current: false };
        let mut files = Self {
            paths,
            max_keys,
            loaded: watch::Sender::new(loaded),
            hasher: RandomState::new(),
            contents: BTreeMap::new(),
            compared: None,
            unsettled: None,
            fault: None,
        };
        files.contents = files.fetch_contents();
        let registry = Registry::load(&files.paths, max_keys)?;
        log_conflicts(&registry, &Registry::empty());
        files.publish(registry);
        Ok(files)
    }

    /// The registry in use, now and after each reading.
    pub fn subscribe(&self) -> watch::Receiver<Loaded> {
        self.loaded.subscribe()
    }

    /// Watches the files, and reads them when they changed, when `hangup` says so or when `paths` says
    /// that they are others. Never returns.
    pub async fn run(
        mut self,
        mut hangup: Signal,
        mut paths: watch::Receiver<Vec<PathBuf>>,
    ) -> Infallible {
        let mut pause = LOOK_EVERY;
        loop {
            let is_asked = tokio::select! {
                // In this order, so that a change for which somebody asks is told once.
                biased;
                Some(()) = hangup.recv() => true,
                Ok(()) = paths.changed() => true,
                () = sleep(pause) => false,
            };
            self.paths.clone_from(&paths.borrow_and_update());
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
        let stamps: BTreeMap<PathBuf, Stamp> = self
            .watched()
            .into_iter()
            .map(|path| {
                let stamp = stamp(&path);
                (path, stamp)
            })
            .collect();
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
                self.publish(registry);
                let registry = &self.loaded.borrow().registry;
                log_reload(&before, registry, self.paths.len());
                log_conflicts(registry, &before);
            }
            Err(error) => self.refuse(&error, cause),
        }
    }

    fn fetch_registry(&self) -> Result<Registry, ReloadError> {
        let is_pipe = |path: &&PathBuf| self.contents.get(*path) == Some(&Content::NotAFile);
        if let Some(path) = self.paths.iter().find(is_pipe) {
            return Err(ReloadError::NotAFile { path: path.clone() });
        }
        Ok(Registry::load(&self.paths, self.max_keys)?)
    }

    fn publish(&mut self, registry: Registry) {
        self.fault = None;
        let registry = Arc::new(registry);
        self.loaded.send_replace(Loaded { registry, read_at: local_now(), is_current: true });
        // A new registry may be made of other files.
        let mut contents = std::mem::take(&mut self.contents);
        self.contents = self
            .watched()
            .into_iter()
            .map(|path| {
                let content = contents.remove(&path).unwrap_or_else(|| self.fetch_content(&path));
                (path, content)
            })
            .collect();
    }

    /// Keeps the registry in use.
    fn refuse(&mut self, error: &ReloadError, cause: Cause) {
        self.loaded.send_if_modified(|loaded| std::mem::replace(&mut loaded.is_current, false));
        let fault = format!("{error:?}");
        if cause != Cause::Failed || self.fault.as_ref() != Some(&fault) {
            tracing::error!(
                in_use_since = %self.loaded.borrow().read_at,
                error = error as &(dyn Error + 'static),
                "cannot reload the registry; going on with the one that was read before"
            );
        }
        self.fault = Some(fault);
    }

    /// All that the registry in use is made of, files of values included. Those that a broken one
    /// would need are not known; for them it is tried again at every look.
    fn watched(&self) -> Vec<PathBuf> {
        let registry = &self.loaded.borrow().registry;
        self.paths.iter().chain(registry.watched_files()).cloned().collect()
    }

    fn fetch_contents(&self) -> BTreeMap<PathBuf, Content> {
        self.watched()
            .into_iter()
            .map(|path| {
                let content = self.fetch_content(&path);
                (path, content)
            })
            .collect()
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

fn log_conflicts(registry: &Registry, before: &Registry) {
    let (shown, more) = new_of(registry.collisions(), before.collisions());
    for collision in shown {
        tracing::warn!(%collision, "values of one name hash alike");
    }
    if more > 0 {
        tracing::warn!(more, "more values hash alike; `locks registry check` tells all");
    }
    let (shown, more) = new_of(registry.conflicts(), before.conflicts());
    for conflict in shown {
        tracing::warn!(%conflict, "a key of the registry has several names; its label shows all");
    }
    if more > 0 {
        tracing::warn!(
            more,
            "more keys of the registry have several names; `locks registry check` tells all"
        );
    }
}

/// The first of those that were not told before, and how many more there are: ranges that overlap
/// have as many conflicts as they have pairs.
fn new_of<'a, T: Ord>(now: &'a [T], told: &[T]) -> (Vec<&'a T>, usize) {
    let told: BTreeSet<&T> = told.iter().collect();
    let mut shown: Vec<&T> = now.iter().filter(|it| !told.contains(it)).collect();
    let more = shown.len().saturating_sub(LISTED);
    shown.truncate(LISTED);
    (shown, more)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::sync::Mutex;

    use tempfile::TempDir;

    use super::*;
    use crate::registry::{Conflict, MAX_KEYS, Source};

    const JOBS: &str = "locks: [{ name: jobs, key: 1 }]\n";
    const MAILS: &str = "locks: [{ name: mails, key: 1 }]\n";
    const BROKEN: &str = "locks: [{ name: jobs, key: 1.5 }]\n";

    #[test]
    fn conflicts_are_told_once_and_not_by_the_thousand() {
        let ranges = |last: u32| {
            let entries = (0..last)
                .map(|n| format!("- {{ name: n{n}, key: {{ range: [{n}, 9{n:02}] }} }}\n"));
            let text = format!("presets: none\nlocks:\n{}", entries.collect::<String>());
            Registry::parse(&[Source { name: "a.yaml".into(), text }]).unwrap()
        };
        let (few, many) = (ranges(3), ranges(30));
        let (shown, more) = new_of(few.conflicts(), &[]);
        assert_eq!((shown.len(), more), (3, 0));
        let (shown, more) = new_of(many.conflicts(), few.conflicts());
        assert_eq!((shown.len(), more), (LISTED, 30 * 29 / 2 - 3 - LISTED));
        assert!(shown.iter().all(|conflict| !few.conflicts().contains(conflict)));
        assert_eq!(new_of(few.conflicts(), few.conflicts()).0, Vec::<&Conflict>::new());
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A registry of one file, as it is after the looks that follow the start.
    struct Watched {
        folder: TempDir,
        files: RegistryFiles,
        loaded: watch::Receiver<Loaded>,
    }

    impl Watched {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("registry.yaml"), JOBS).unwrap();
            Self::start(folder)
        }

        fn start(folder: TempDir) -> Self {
            let files =
                RegistryFiles::load(vec![folder.path().join("registry.yaml")], MAX_KEYS).unwrap();
            let loaded = files.subscribe();
            let mut watched = Self { folder, files, loaded };
            watched.settle();
            assert!(!watched.is_news(), "nothing changed since the start");
            watched
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn write(&self, text: &str) {
            fs::write(self.path("registry.yaml"), text).unwrap();
        }

        /// Looks until nothing is about to change.
        fn settle(&mut self) {
            while self.files.look() == SETTLE {}
        }

        /// Whether anything was published since this was asked last.
        fn is_news(&mut self) -> bool {
            let is_news = self.loaded.has_changed().unwrap();
            self.loaded.mark_unchanged();
            is_news
        }

        /// The name in use, and whether it is what the file says.
        fn state(&self) -> (String, bool) {
            let loaded = self.loaded.borrow();
            (loaded.registry.locks()[0].name.to_string(), loaded.is_current)
        }
    }

    #[test]
    fn a_change_is_read_once_two_looks_found_it_alike() {
        let mut watched = Watched::new();
        watched.write("locks: []  # half");
        assert_eq!(watched.files.look(), SETTLE);
        watched.write(MAILS);
        assert_eq!(watched.files.look(), SETTLE, "it is still being written");
        assert_eq!(watched.state(), ("jobs".into(), true));
        assert_eq!(watched.files.look(), LOOK_EVERY);
        assert_eq!(watched.state(), ("mails".into(), true));
    }

    #[test]
    fn a_touch_and_the_same_text_in_a_new_file_are_no_change() {
        let mut watched = Watched::new();
        let file = File::options().write(true).open(watched.path("registry.yaml")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(watched.files.look(), SETTLE, "it is looked at more closely");
        watched.settle();
        fs::write(watched.path("new"), JOBS).unwrap();
        fs::rename(watched.path("new"), watched.path("registry.yaml")).unwrap();
        assert_eq!(watched.files.look(), SETTLE);
        watched.settle();
        assert!(!watched.is_news());
    }

    #[test]
    fn a_file_that_is_gone_for_a_moment_is_not_missed() {
        let mut watched = Watched::new();
        fs::rename(watched.path("registry.yaml"), watched.path("registry.yaml~")).unwrap();
        assert_eq!(watched.files.look(), SETTLE);
        watched.write(JOBS);
        watched.settle();
        assert!(!watched.is_news());
    }

    #[test]
    fn a_file_that_stays_away_is_a_fault_until_it_is_back() {
        let mut watched = Watched::new();
        fs::remove_file(watched.path("registry.yaml")).unwrap();
        watched.settle();
        assert_eq!(watched.state(), ("jobs".into(), false));
        assert!(watched.is_news());
        watched.settle();
        assert!(!watched.is_news());
        watched.write(JOBS);
        watched.settle();
        assert_eq!(watched.state(), ("jobs".into(), true));
    }

    #[test]
    fn a_broken_file_leaves_the_registry_in_use_until_it_is_mended() {
        let mut watched = Watched::new();
        let read_at = watched.loaded.borrow().read_at;
        watched.write(BROKEN);
        watched.settle();
        assert_eq!(watched.state(), ("jobs".into(), false));
        assert_eq!(watched.loaded.borrow().read_at, read_at);
        watched.write(MAILS);
        watched.settle();
        assert_eq!(watched.state(), ("mails".into(), true));
    }

    #[test]
    fn a_fault_is_told_once_and_again_when_the_file_changes_or_somebody_asks() {
        let mut watched = Watched::new();
        let told = |looks: &mut dyn FnMut()| {
            let log = Log::default();
            let writer = log.clone();
            let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
            tracing::subscriber::with_default(subscriber.finish(), looks);
            let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
            log.matches("cannot reload the registry").count()
        };
        let broken_once = told(&mut || {
            watched.write(BROKEN);
            (0..5).for_each(|_| watched.settle());
        });
        assert_eq!(broken_once, 1);
        let broken_anew = told(&mut || {
            watched.write(&format!("{BROKEN}# mended?"));
            (0..5).for_each(|_| watched.settle());
        });
        assert_eq!(broken_anew, 1);
        let asked = told(&mut || {
            watched.files.reload_now();
            (0..5).for_each(|_| watched.settle());
        });
        assert_eq!(asked, 1);
    }

    #[test]
    fn what_failed_is_tried_again_though_the_files_say_the_same() {
        let mut watched = Watched::new();
        watched.write(BROKEN);
        watched.settle();
        watched.write(MAILS);
        // As if the file had been whole all the while, and only its reading had failed.
        let contents = watched.files.fetch_contents();
        watched.files.contents = contents;
        watched.settle();
        assert_eq!(watched.state(), ("mails".into(), true));
    }

    #[test]
    fn a_config_map_that_swaps_its_link_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (version, text) in [("..1", JOBS), ("..2", MAILS)] {
            fs::create_dir(path(version)).unwrap();
            fs::write(path(version).join("registry.yaml"), text).unwrap();
        }
        symlink("..1", path("..data")).unwrap();
        symlink("..data/registry.yaml", path("registry.yaml")).unwrap();
        let mut watched = Watched::start(folder);
        symlink("..2", watched.path("..data_tmp")).unwrap();
        fs::rename(watched.path("..data_tmp"), watched.path("..data")).unwrap();
        fs::remove_dir_all(watched.path("..1")).unwrap();
        watched.settle();
        assert_eq!(watched.state(), ("mails".into(), true));
    }

    #[test]
    fn files_of_values_belong_to_the_registry() {
        let mut watched = Watched::new();
        watched.write(
            "locks: [{ name: jobs, key: { hashtext: 'job:{job}' }, values: { job: { file: jobs } } }]",
        );
        watched.settle();
        assert!(!watched.state().1, "they are not there yet");
        fs::write(watched.path("jobs"), "nightly\n").unwrap();
        watched.settle();
        assert!(watched.state().1, "what failed is tried again");
        watched.settle();
        watched.is_news();
        fs::write(watched.path("jobs"), "nightly\nhourly\n").unwrap();
        watched.settle();
        assert!(watched.is_news());
        fs::remove_file(watched.path("jobs")).unwrap();
        watched.settle();
        assert!(!watched.state().1);
    }

    #[test]
    fn who_asks_is_answered_at_once_and_once() {
        let mut watched = Watched::new();
        watched.files.reload_now();
        assert!(watched.is_news(), "the same text is read again");
        assert_eq!(watched.files.look(), SETTLE, "it was not seen to be settled");
        watched.write(MAILS);
        watched.files.reload_now();
        assert_eq!(watched.state(), ("mails".into(), true));
        assert!(watched.is_news());
        watched.settle();
        assert!(!watched.is_news(), "the look after it finds nothing new");
    }

    #[test]
    fn what_is_no_file_any_more_is_not_opened() {
        let mut watched = Watched::new();
        fs::remove_file(watched.path("registry.yaml")).unwrap();
        let _socket = UnixListener::bind(watched.path("registry.yaml")).unwrap();
        watched.files.reload_now();
        assert_eq!(watched.state(), ("jobs".into(), false));
        let error = watched.files.fetch_registry().unwrap_err();
        assert!(matches!(error, ReloadError::NotAFile { .. }), "{error}");
    }

    #[test]
    fn no_files_are_never_a_change() {
        let mut files = RegistryFiles::load(Vec::new(), MAX_KEYS).unwrap();
        let loaded = files.subscribe();
        while files.look() == SETTLE {}
        assert!(!loaded.has_changed().unwrap());
        files.reload_now();
        assert!(loaded.borrow().is_current);
    }
}
