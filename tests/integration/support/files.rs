//! A folder with files of one test. It goes away with its value.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

/// Files that a test writes by name.
pub struct Files(TempDir);

impl Files {
    /// An empty folder.
    pub fn new() -> Files {
        Files(tempfile::tempdir().expect("a folder can be made"))
    }

    /// Where a file of this name is, or would be.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and tells where it is.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("the folder is ours");
        path.display().to_string()
    }
}
