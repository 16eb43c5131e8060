//! Connection services: parameters under a name, in a file of libpq's.
//!
//! It reads the user's file and then the system's, as libpq does, and knows no parameter's meaning.
//! Errors name the file and the line, never a value.

use std::io;
use std::path::{Path, PathBuf};

use super::parameter::known_key;
use super::text::Parameters;
use super::{DsnError, Environment, home};

/// Where Debian's libpq and that of most others look for the system's file. Which one a libpq was
/// built with cannot be known here.
const SYSTEM_FOLDERS: [&str; 4] = [
    "/etc/postgresql-common",
    "/etc/postgresql",
    "/etc/sysconfig/pgsql",
    "/usr/local/etc/postgresql",
];

/// The parameters of a service, of each the first that is set. The user's file goes before the
/// system's, and the system's is looked at only when the user's does not have the service.
pub(super) fn fetch(service: &str, environment: Environment<'_>) -> Result<Parameters, DsnError> {
    let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
    let named = variable("PGSERVICEFILE").map(PathBuf::from);
    let users = match &named {
        Some(path) => Some(path.clone()),
        None => home(environment).map(|home| home.join(".pg_service.conf")),
    };
    let system: Vec<PathBuf> = match variable("PGSYSCONFDIR") {
        Some(folder) => vec![Path::new(&folder).join("pg_service.conf")],
        None => SYSTEM_FOLDERS.map(|folder| Path::new(folder).join("pg_service.conf")).into(),
    };
    for path in users.into_iter().chain(system) {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            // A file that nobody named need not be there.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && named.as_ref() != Some(&path) =>
            {
                continue;
            }
            Err(source) => return Err(DsnError::ServiceFile { path, source }),
        };
        let parsed = parse_service(&text, service);
        if let Some(found) = parsed.map_err(|(line, fault)| fault.at(path, line))? {
            return Ok(found);
        }
    }
    Err(DsnError::NoService)
}

/// Why a line of a service file is none.
#[derive(Debug)]
enum Fault {
    Syntax,
    Nested,
    Unsupported(&'static str),
}

impl Fault {
    fn at(self, path: PathBuf, line: usize) -> DsnError {
        match self {
            Self::Syntax => DsnError::ServiceSyntax { path, line },
            Self::Nested => DsnError::NestedService { path, line },
            Self::Unsupported(name) => DsnError::Unsupported(name),
        }
    }
}

/// The section of that name, if there is one, and the number of a line that cannot be read in it.
fn parse_service(text: &str, service: &str) -> Result<Option<Parameters>, (usize, Fault)> {
    let mut found: Option<Parameters> = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_matches(|c: char| c.is_ascii_whitespace());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            if found.is_some() {
                break;
            }
            if header.strip_prefix(service).is_some_and(|rest| rest.starts_with(']')) {
                found = Some(Parameters::new());
            }
            continue;
        }
        let Some(parameters) = &mut found else { continue };
        let fault = |fault| (index + 1, fault);
        let (key, value) = line.split_once('=').ok_or(fault(Fault::Syntax))?;
        let key = known_key(key)
            .map_err(|refused| fault(refused.map_or(Fault::Syntax, Fault::Unsupported)))?;
        if key == "service" {
            return Err(fault(Fault::Nested));
        }
        parameters.entry(key).or_insert_with(|| value.to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# services of the team
[other]
host=elsewhere
[orders]
  host=db-1
port=6432
port=1
password=a b=c#d
[orders]
host=never reached
";

    #[test]
    fn a_section_is_read_until_the_next_and_the_first_of_a_key_counts() {
        let parameters = parse_service(FILE, "orders").unwrap().unwrap();
        let expected = [("host", "db-1"), ("password", "a b=c#d"), ("port", "6432")];
        let found: Vec<_> = parameters.iter().map(|(key, value)| (*key, value.as_str())).collect();
        assert_eq!(found, expected);
        assert!(parse_service(FILE, "order").unwrap().is_none());
    }

    #[test]
    fn a_line_that_is_no_parameter_is_told_by_its_number() {
        for line in ["host", "host = h", "S3cr3t=x", "ldap://x"] {
            let (number, fault) = parse_service(&format!("[a]\n{line}\n"), "a").unwrap_err();
            assert_eq!(number, 2, "{line}");
            let shown = fault.at("/etc/f".into(), number).to_string();
            assert!(!shown.contains("S3cr3t"), "{shown}");
        }
        assert!(parse_service("[a]\nhost\n", "b").unwrap().is_none(), "of another section");
        let (_, fault) = parse_service("[a]\nservice=b\n", "a").unwrap_err();
        assert!(matches!(fault, Fault::Nested));
    }
}
