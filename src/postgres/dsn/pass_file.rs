//! libpq's password file: a password for each of several servers, databases and roles.
//!
//! It is read again at every connect, since passwords rotate, and passed over, with a word why, when
//! others could read it too. It knows no connection.

use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::Host;

/// What a password file has for a connection.
#[derive(PartialEq, Eq)]
pub(in crate::postgres) enum PassFile {
    /// A password.
    Found(String),
    /// Nothing.
    Nothing(Lack),
}

/// Shows that there is one, and not which.
impl fmt::Debug for PassFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(_) => f.write_str("Found(..)"),
            Self::Nothing(lack) => f.debug_tuple("Nothing").field(lack).finish(),
        }
    }
}

/// Why there is no password in a password file, for who is refused for want of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::postgres) enum Lack {
    /// There is no such file.
    NoFile(PathBuf),
    /// It is there, and nobody may trust it.
    NotPrivate(PathBuf),
    /// It cannot be read, and why.
    Unreadable(PathBuf, io::ErrorKind),
    /// No line of it is about this connection.
    NoLine(PathBuf),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile(path) => write!(f, "there is no password file {}", path.display()),
            Self::NotPrivate(path) => {
                let path = path.display();
                write!(
                    f,
                    "the password file {path} is not used, since others may read it: chmod 600 {path}"
                )
            }
            Self::Unreadable(path, kind) => {
                write!(f, "the password file {} cannot be read: {kind}", path.display())
            }
            Self::NoLine(path) => {
                let path = path.display();
                write!(
                    f,
                    "the password file {path} has no line for this host, port, database and user"
                )
            }
        }
    }
}

/// Looks the password up.
pub(super) fn fetch(path: &Path, host: &Host, database: &str, user: &str) -> PassFile {
    let lack = |kind| PassFile::Nothing(Lack::Unreadable(path.to_owned(), kind));
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return PassFile::Nothing(Lack::NoFile(path.to_owned()));
        }
        Err(error) => return lack(error.kind()),
        Ok(file) if !file.is_file() => return lack(io::ErrorKind::InvalidInput),
        Ok(file) if file.permissions().mode() & 0o077 != 0 => {
            return PassFile::Nothing(Lack::NotPrivate(path.to_owned()));
        }
        Ok(_) => {}
    }
    // Lines about others may be in any encoding.
    match std::fs::read(path) {
        Err(error) => lack(error.kind()),
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            match find(&text, &host.pass_file_name(), host.port, database, user) {
                Some(password) => PassFile::Found(password),
                None => PassFile::Nothing(Lack::NoLine(path.to_owned())),
            }
        }
    }
}

/// The password of the first line that fits.
fn find(text: &str, host: &str, port: u16, database: &str, user: &str) -> Option<String> {
    let port = port.to_string();
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).find_map(|line| {
        let mut rest = line.strip_suffix('\r').unwrap_or(line);
        for wanted in [host, &port, database, user] {
            rest = match_field(rest, wanted)?;
        }
        Some(unescape(rest))
    })
}

/// What follows the field at the start of a line, if the field is `*` or this text.
fn match_field<'a>(line: &'a str, wanted: &str) -> Option<&'a str> {
    if let Some(rest) = line.strip_prefix("*:") {
        return Some(rest);
    }
    let mut wanted = wanted.chars();
    let mut chars = line.char_indices();
    while let Some((index, c)) = chars.next() {
        let c = match c {
            ':' => return wanted.next().is_none().then(|| &line[index + 1..]),
            '\\' => chars.next().map_or(c, |(_, escaped)| escaped),
            c => c,
        };
        if wanted.next() != Some(c) {
            return None;
        }
    }
    None
}

/// Without the backslashes, each of which stands before what it protects.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r"
# comment: a:1:b:c:d
db-1:5432:app:monitor:first
db-1:5432:*:monitor:any database
db\:x:1:a\\b:u:p\:q\\r
*:*:*:other:wild:with:colons
[::1]:1:d:u:never
::1:1:d:u:split
";

    #[test]
    fn the_first_line_that_fits_gives_the_password() {
        let cases = [
            (("db-1", 5432, "app", "monitor"), Some("first")),
            (("db-1", 5432, "postgres", "monitor"), Some("any database")),
            (("db-1", 5433, "app", "monitor"), None),
            (("db-10", 5432, "app", "monitor"), None),
            (("db-", 5432, "app", "monitor"), None),
            (("db:x", 1, r"a\b", "u"), Some(r"p:q\r")),
            (("whatever", 9, "x", "other"), Some("wild:with:colons")),
            (("# comment", 1, "b", "c"), None),
        ];
        for ((host, port, database, user), password) in cases {
            assert_eq!(
                find(FILE, host, port, database, user).as_deref(),
                password,
                "{host} {user}"
            );
        }
        assert_eq!(find("h:1:d:u:p\r\n", "h", 1, "d", "u").as_deref(), Some("p"));
    }

    #[test]
    fn the_debug_form_tells_no_password() {
        assert_eq!(format!("{:?}", PassFile::Found("S3cr3t-canary".to_owned())), "Found(..)");
    }

    #[test]
    fn a_file_that_others_may_read_is_passed_over_with_the_mend() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pgpass");
        let host = Host { name: "h".to_owned(), address: None, port: 1 };
        let look = || fetch(&path, &host, "d", "u");
        assert_eq!(look(), PassFile::Nothing(Lack::NoFile(path.clone())));
        std::fs::write(&path, "h:1:d:u:p\n").unwrap();
        for (mode, is_read) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let found = look();
            assert_eq!(found == PassFile::Found("p".to_owned()), is_read, "{mode:o} {found:?}");
        }
        let PassFile::Nothing(lack) = look() else { panic!("it is not private") };
        assert!(lack.to_string().ends_with(&format!("chmod 600 {}", path.display())), "{lack}");
    }
}
