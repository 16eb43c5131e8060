//! The state file: what every server's [`Memory`] holds, kept over a restart.
//!
//! An edge: it reads the file at the start and writes it when something in it changed, at most every
//! ten seconds and once more at the end. What the memories mean is not its business; it takes them
//! from the views and gives them to the pollers, each under the server's name and system identifier,
//! since another cluster under the same name has another past.
//!
//! A write goes to a temporary file beside it, to the disk, and then takes its place: whoever is
//! killed in the middle of it leaves the file as it was. A file of somebody else is never replaced.
//! One of ours that is broken is, and the exporter starts without it. A folder that cannot be written
//! to is one line in the log when it begins and one when it ends.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::memory::Memory;
use crate::servers::Views;
use crate::view::View;

/// Between two writes.
const WRITE_EVERY: Duration = Duration::from_secs(10);

/// Until the first write: what is known after the first polls is worth keeping at once.
const FIRST_WRITE: Duration = Duration::from_secs(1);

/// What stands in front of every file of ours.
const FORMAT: &str = "pg-locks-exporter state";
const VERSION: u32 = 1;

/// A file of ours has a few kilobytes, and a few megabytes with as many keys as a registry may have.
const LARGEST: u64 = 64 << 20;

/// The file at `--state.file`.
#[derive(Clone, Debug)]
pub struct StateFile {
    /// What an earlier process knew. Apart from the keeper, which is busy for as long as a write takes.
    recalled: Arc<BTreeMap<Arc<str>, Section>>,
    keeper: Arc<Mutex<Keeper>>,
}

/// What a state file says of one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// The `server` label.
    pub server: Arc<str>,
    /// Tells its cluster from another of that name.
    pub system_identifier: Arc<str>,
    /// What is remembered of it.
    #[serde(flatten)]
    pub memory: Memory,
}

/// Why the path cannot be a state file: the user's mistake.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// A folder, a pipe or a device.
    #[error(
        "the state file {} is not a regular file: name a file, which is made if it is not there",
        path.display()
    )]
    NotAFile {
        /// As it was given.
        path: PathBuf,
    },
    /// Whoever needs this file would lose it.
    #[error(
        "the state file {} holds something else than the state of this program and would be \
         replaced: name another file, or remove this one",
        path.display()
    )]
    Foreign {
        /// As it was given.
        path: PathBuf,
    },
}

/// What is wrong with a file that is ours.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("it is larger than {} MiB", LARGEST >> 20)]
    TooLarge,
    #[error("a newer program wrote it, in version {0}, and this one knows version {VERSION}")]
    Newer(u32),
    #[error("it is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: String,
    version: u32,
    servers: Vec<Section>,
}

#[derive(Debug)]
struct Keeper {
    path: PathBuf,
    /// What it holds of another may be lost, so it is left alone.
    is_unread: bool,
    sections: BTreeMap<Arc<str>, Section>,
    /// What stands in the file.
    written: Option<String>,
    has_written: bool,
    /// The last write failed.
    is_failing: bool,
}

impl Section {
    /// What is known of a server now, once it has told who it is.
    pub fn of(view: &View) -> Option<Self> {
        Some(Self {
            server: view.server.clone(),
            system_identifier: view.facts.system_identifier.clone()?,
            memory: Memory::clone(view.memory.as_ref()?),
        })
    }
}

impl StateFile {
    /// Reads the file. One that is not there yet is made later; one that is broken or cannot be read
    /// is told in the log.
    pub fn load(path: PathBuf) -> Result<Self, StateFileError> {
        // A link stays, and what it leads to is replaced.
        let path = fs::canonicalize(&path).unwrap_or(path);
        let mut keeper = Keeper {
            path: path.clone(),
            is_unread: false,
            sections: BTreeMap::new(),
            written: None,
            has_written: false,
            is_failing: false,
        };
        match read(&path)? {
            Ok(None) => {}
            Ok(Some(text)) => match parse(&text) {
                Ok(sections) => {
                    tracing::info!(
                        path = %path.display(),
                        servers = sections.len(),
                        "read the state file"
                    );
                    keeper.sections = sections;
                    keeper.written = Some(text);
                }
                Err(fault @ Fault::Newer(_)) => {
                    keeper.is_unread = true;
                    tracing::warn!(
                        path = %path.display(),
                        %fault,
                        "cannot use the state file: going on without what was seen before the start, \
                         and leaving the file alone; name another file, or remove this one"
                    );
                }
                Err(fault) => tracing::warn!(
                    path = %path.display(),
                    %fault,
                    "cannot use the state file: going on without what was seen before the start; it \
                     is replaced by the next write, so copy it now if it matters"
                ),
            },
            Err(error) => {
                keeper.is_unread = true;
                tracing::warn!(
                    path = %path.display(),
                    %error,
                    "cannot read the state file: going on without what was seen before the start, and \
                     leaving the file alone; make it readable and restart"
                );
            }
        }
        let recalled = Arc::new(keeper.sections.clone());
        Ok(Self { recalled, keeper: Arc::new(Mutex::new(keeper)) })
    }

    /// What the file said of a server when it was read.
    pub fn section(&self, server: &str) -> Option<Section> {
        self.recalled.get(server).cloned()
    }

    /// Writes what the views tell, now and then. Never returns.
    pub async fn keep(&self, views: &watch::Receiver<Views>) -> Infallible {
        let mut pause = FIRST_WRITE;
        loop {
            sleep(pause).await;
            if self.save(views).await {
                pause = WRITE_EVERY;
            }
        }
    }

    /// Writes what the views tell, if that is something new. Returns whether anything was ever
    /// tried, or never will be.
    pub async fn save(&self, views: &watch::Receiver<Views>) -> bool {
        let (keeper, views) = (self.keeper.clone(), views.borrow().clone());
        let saving = spawn_blocking(move || {
            // One at a time, each with the newest views, so that an old write never comes last.
            let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
            let views: Vec<Arc<View>> = views.iter().map(|view| view.borrow().clone()).collect();
            keeper.observe(views.iter().map(|view| &**view));
            keeper.save()
        });
        match saving.await {
            Ok(has_written) => has_written,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

impl Keeper {
    /// Takes over what is known now. What an earlier process knew of a server stays until the server
    /// has told who it is; servers that are not watched any more are forgotten.
    fn observe<'a>(&mut self, views: impl Iterator<Item = &'a View>) {
        let mut before = std::mem::take(&mut self.sections);
        self.sections = views
            .filter_map(|view| {
                let section = Section::of(view).or_else(|| before.remove(&view.server))?;
                Some((view.server.clone(), section))
            })
            .collect();
    }

    /// Writes what is new. Returns whether anything was ever tried, or never will be.
    fn save(&mut self) -> bool {
        if self.is_unread {
            return true;
        }
        if self.sections.is_empty() {
            return self.has_written;
        }
        let text = render(self.sections.values());
        if self.written.as_ref() == Some(&text) {
            return self.has_written;
        }
        self.has_written = true;
        match write(&self.path, &text) {
            Ok(()) => {
                self.written = Some(text);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(path = %self.path.display(), "writing the state file again");
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(
                        path = %self.path.display(),
                        %error,
                        "cannot write the state file, trying again: a restart would forget what was \
                         seen since; let this user make files in its folder"
                    );
                }
            }
        }
        true
    }
}

/// `None` for a file that is not there or empty.
fn read(path: &Path) -> Result<io::Result<Option<String>>, StateFileError> {
    let text = match read_text(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok(None)),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            return Err(StateFileError::NotAFile { path: path.to_owned() });
        }
        Err(error) => return Ok(Err(error)),
    };
    // A file system that lost power may leave zeros.
    if text.chars().all(|c| c.is_whitespace() || c == '\0') {
        return Ok(Ok(None));
    }
    if !is_ours(&text) {
        return Err(StateFileError::Foreign { path: path.to_owned() });
    }
    Ok(Ok(Some(text)))
}

fn read_text(path: &Path) -> io::Result<String> {
    // To open a pipe might never end.
    if !fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether this program wrote it, whoever wrote or damaged it since.
fn is_ours(text: &str) -> bool {
    const HEAD: usize = 100;
    let head: String = text.chars().take(HEAD).collect();
    head.trim_start().starts_with('{') && head.contains(FORMAT)
}

fn parse(text: &str) -> Result<BTreeMap<Arc<str>, Section>, Fault> {
    #[derive(Deserialize)]
    struct Head {
        version: u32,
    }
    if text.len() as u64 > LARGEST {
        return Err(Fault::TooLarge);
    }
    let Head { version } = serde_json::from_str(text)?;
    if version > VERSION {
        return Err(Fault::Newer(version));
    }
    let document: Document = serde_json::from_str(text)?;
    Ok(document.servers.into_iter().map(|section| (section.server.clone(), section)).collect())
}

fn render<'a>(sections: impl Iterator<Item = &'a Section>) -> String {
    let document = Document {
        format: FORMAT.to_owned(),
        version: VERSION,
        servers: sections.cloned().collect(),
    };
    // Strings and numbers in plain structs: nothing in it could fail to serialize.
    serde_json::to_string(&document).unwrap_or_default() + "\n"
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let temporary = temporary_beside(path);
    let written = write_new(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    // Not every file system can; the file is whole without it.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Names of applications are for its owner alone. What a killed process left is replaced, and a
/// link that somebody put there is not followed.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".locks-tmp");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::memory::LastHeld;
    use crate::sample::Facts;
    use crate::series::LockSeries;
    use crate::timestamp::Timestamp;

    fn folder() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        (folder, path)
    }

    /// A server that told who it is, with one key that was seen held at this second.
    fn view(server: &str, cluster: Option<&str>, seconds: i64) -> View {
        let series = LockSeries { datname: "app".into(), lock: "nightly".into(), key: "42".into() };
        let at = Timestamp::from_unix_micros(seconds * 1_000_000);
        let memory = Memory { last_held: vec![LastHeld { series, at }], ..Memory::default() };
        let facts = Facts { system_identifier: cluster.map(Arc::from), ..Facts::default() };
        let memory = Some(Arc::new(memory));
        View { server: server.into(), facts, memory, ..View::default() }
    }

    impl StateFile {
        fn save_now(&self, views: &[View]) -> bool {
            let mut keeper = self.keeper.lock().unwrap();
            keeper.observe(views.iter());
            keeper.save()
        }

        fn is_failing(&self) -> bool {
            self.keeper.lock().unwrap().is_failing
        }
    }

    #[test]
    fn what_is_written_is_read_back_by_the_next_process() {
        let (_folder, path) = folder();
        let state = StateFile::load(path.clone()).unwrap();
        assert_eq!(state.section("orders"), None);
        let orders = view("orders", Some("71"), 5);
        state.save_now(&[orders.clone(), view("silent", None, 6)]);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let next = StateFile::load(path.clone()).unwrap();
        let section = next.section("orders").unwrap();
        assert_eq!(&*section.system_identifier, "71");
        assert_eq!(Some(&section.memory), orders.memory.as_deref());
        assert_eq!(next.section("silent"), None, "nobody knows which cluster that was");
    }

    #[test]
    fn the_past_of_a_server_that_is_down_is_kept_and_of_one_not_watched_forgotten() {
        let (_folder, path) = folder();
        let state = StateFile::load(path.clone()).unwrap();
        state.save_now(&[
            view("a", Some("71"), 5),
            view("b", Some("72"), 5),
            view("c", Some("73"), 5),
        ]);
        let next = StateFile::load(path.clone()).unwrap();
        let before = next.section("b");
        next.save_now(&[view("a", Some("71"), 9), view("b", None, 0)]);
        let last = StateFile::load(path).unwrap();
        assert_eq!(last.section("b"), before);
        assert_ne!(last.section("a"), next.section("a"));
        assert_eq!(last.section("c"), None);
    }

    #[test]
    fn nothing_is_written_where_nothing_is_new() {
        let (_folder, path) = folder();
        let state = StateFile::load(path.clone()).unwrap();
        assert!(!state.save_now(&[view("a", None, 1)]), "nothing is known yet");
        assert!(!path.exists());
        assert!(state.save_now(&[view("a", Some("71"), 1)]));
        fs::remove_file(&path).unwrap();
        state.save_now(&[view("a", Some("71"), 1)]);
        assert!(!path.exists());
        state.save_now(&[view("a", Some("71"), 2)]);
        assert!(path.exists());
    }

    #[test]
    fn what_is_not_ours_is_the_users_mistake_and_stays_as_it_is() {
        let (folder, path) = folder();
        for text in ["locks: []\n", "{\"schema\":1}", "null", "x"] {
            fs::write(&path, text).unwrap();
            let error = StateFile::load(path.clone()).unwrap_err().to_string();
            assert!(error.contains("state.json holds something else"), "{text}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let error = StateFile::load(folder.path().to_owned()).unwrap_err().to_string();
        assert!(error.contains("is not a regular file: name a file"), "{error}");
    }

    #[test]
    fn a_file_of_ours_that_is_broken_is_replaced() {
        let (_folder, path) = folder();
        let state = StateFile::load(path.clone()).unwrap();
        state.save_now(&[view("a", Some("71"), 1)]);
        let whole = fs::read_to_string(&path).unwrap();
        let cut = &whole[..whole.len() / 2];
        for text in [cut, "", "\0\0\0\0", "\n"] {
            fs::write(&path, text).unwrap();
            let state = StateFile::load(path.clone()).unwrap();
            assert_eq!(state.section("a"), None, "{text:?}");
            state.save_now(&[view("a", Some("71"), 1)]);
            assert_eq!(fs::read_to_string(&path).unwrap(), whole);
        }
    }

    #[test]
    fn a_file_of_a_newer_program_is_left_alone() {
        let (_folder, path) = folder();
        StateFile::load(path.clone()).unwrap().save_now(&[view("a", Some("71"), 1)]);
        let whole = fs::read_to_string(&path).unwrap();
        let newer = whole.replace("\"version\":1", "\"version\":9");
        fs::write(&path, &newer).unwrap();
        let state = StateFile::load(path.clone()).unwrap();
        assert_eq!(state.section("a"), None);
        state.save_now(&[view("a", Some("71"), 2)]);
        assert_eq!(fs::read_to_string(&path).unwrap(), newer);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, is_ours: bool) {
            let (_folder, path) = folder();
            let head = if is_ours { "{\"format\":\"pg-locks-exporter state\"," } else { "" };
            fs::write(&path, [head.as_bytes(), &bytes].concat()).unwrap();
            prop_assert!(StateFile::load(path).is_ok() || !is_ours);
        }
    }

    #[test]
    fn fields_of_a_newer_program_are_no_fault() {
        let (_folder, path) = folder();
        let text = format!(
            "{{\"format\":\"{FORMAT}\",\"version\":1,\"more\":0,\"servers\":[{{\"server\":\"a\",\
             \"system_identifier\":\"71\",\"poolers\":[1]}}]}}"
        );
        fs::write(&path, text).unwrap();
        let section = StateFile::load(path).unwrap().section("a").unwrap();
        assert_eq!(section.memory, Memory::default());
    }

    #[test]
    fn a_write_that_fails_leaves_the_file_and_is_tried_again() {
        let (folder, path) = folder();
        let state = StateFile::load(path.clone()).unwrap();
        state.save_now(&[view("a", Some("71"), 1)]);
        let before = fs::read_to_string(&path).unwrap();
        // In the way of the temporary file, also of a root's.
        let obstacle = folder.path().join(".state.json.locks-tmp");
        fs::create_dir_all(obstacle.join("full")).unwrap();
        state.save_now(&[view("a", Some("71"), 2)]);
        assert!(state.is_failing());
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
        fs::remove_dir_all(&obstacle).unwrap();
        state.save_now(&[view("a", Some("71"), 2)]);
        assert!(!state.is_failing());
        assert_ne!(fs::read_to_string(&path).unwrap(), before);
    }

    #[test]
    fn what_a_killed_process_left_is_replaced_and_a_link_stays_a_link() {
        let (folder, path) = folder();
        fs::write(folder.path().join(".real.json.locks-tmp"), "half a fi").unwrap();
        symlink(folder.path().join("real.json"), &path).unwrap();
        fs::write(folder.path().join("real.json"), "").unwrap();
        let state = StateFile::load(path.clone()).unwrap();
        state.save_now(&[view("a", Some("71"), 1)]);
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
        assert!(StateFile::load(path).unwrap().section("a").is_some());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
    }
}
