//! A clock that is lent to a process and jumps as it is told.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use tempfile::NamedTempFile;

use super::Tool;

/// A clock of the test's own, right at first. It needs `Tool::Faketime`.
pub struct Clock(NamedTempFile);

impl Clock {
    /// A clock that is right.
    pub fn new() -> Clock {
        let file = NamedTempFile::new().expect("a file can be made");
        // The server is another user's.
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644)).expect("it is ours");
        let clock = Clock(file);
        clock.set(0);
        clock
    }

    /// So many seconds after the right time from now on, for whoever has it.
    pub fn set(&self, seconds: i64) {
        fs::write(self.0.path(), format!("{seconds:+}s\n")).expect("it is ours");
    }

    /// What a process is started with to have it. The runtime's own timers are made of the clock
    /// that only runs on, and no jump of the other one moves them.
    pub fn variables(&self) -> [(&'static str, String); 4] {
        [
            ("LD_PRELOAD", Tool::Faketime.path().display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.0.path().display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }

    /// Gives it to the process that the command will be.
    pub fn lend_to(&self, command: &mut Command) {
        command.envs(self.variables());
    }
}
