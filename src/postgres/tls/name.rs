//! Whether a certificate is for a name, as libpq decides it.
//!
//! Pure: names in, an answer out. Reading them out of a certificate is the verifier's business.

use std::net::IpAddr;

/// The names in a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// Alternative names for DNS.
    pub dns: Vec<String>,
    /// Alternative addresses.
    pub addresses: Vec<IpAddr>,
    /// The common name of its subject.
    pub common: Option<String>,
}

impl Names {
    /// Whether the certificate is for this host. The common name counts only where no alternative
    /// name is of the host's kind.
    pub(super) fn include(&self, host: &str) -> bool {
        let address: Option<IpAddr> = host.parse().ok();
        let has_kind = match address {
            Some(_) => !self.addresses.is_empty(),
            None => !self.dns.is_empty(),
        };
        self.dns.iter().any(|pattern| matches_name(pattern, host))
            || address.is_some_and(|address| self.addresses.contains(&address))
            || (!has_kind && self.common.iter().any(|pattern| matches_name(pattern, host)))
    }

    /// All of them, for a person.
    pub(super) fn render(&self) -> String {
        let mut names: Vec<String> = self.dns.clone();
        names.extend(self.addresses.iter().map(IpAddr::to_string));
        if names.is_empty() {
            names.extend(self.common.clone());
        }
        names.truncate(5);
        if names.is_empty() { "no name at all".to_owned() } else { names.join(", ") }
    }
}

/// A `*` stands for one whole label, the first.
fn matches_name(pattern: &str, host: &str) -> bool {
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    let Some(suffix) =
        pattern.strip_prefix('*').filter(|suffix| suffix.len() > 1 && suffix.starts_with('.'))
    else {
        return false;
    };
    let Some(at) = host.len().checked_sub(suffix.len()) else { return false };
    at > 0
        && host.is_char_boundary(at)
        && host[at..].eq_ignore_ascii_case(suffix)
        && !host[..at].contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dns: &[&str], addresses: &[&str], common: Option<&str>) -> Names {
        Names {
            dns: dns.iter().map(|&name| name.to_owned()).collect(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            common: common.map(str::to_owned),
        }
    }

    #[test]
    fn a_star_stands_for_one_label() {
        let cases = [
            ("db.example.com", "db.example.com", true),
            ("DB.example.com", "db.EXAMPLE.com", true),
            ("*.example.com", "db.example.com", true),
            ("*.example.com", "a.db.example.com", false),
            ("*.example.com", "example.com", false),
            ("*.example.com", ".example.com", false),
            ("d*.example.com", "db.example.com", false),
            ("*", "db", false),
            ("*.", "db.", false),
            ("db", "db.example.com", false),
        ];
        for (pattern, host, matches) in cases {
            assert_eq!(matches_name(pattern, host), matches, "{pattern} {host}");
        }
    }

    #[test]
    fn the_common_name_counts_where_no_alternative_name_is_of_the_hosts_kind() {
        let cases = [
            (names(&[], &[], Some("db")), "db", true),
            (names(&["other"], &[], Some("db")), "db", false),
            (names(&[], &["10.0.0.1"], Some("db")), "db", true),
            (names(&["db"], &[], Some("10.0.0.1")), "10.0.0.1", true),
            (names(&[], &["10.0.0.2"], Some("10.0.0.1")), "10.0.0.1", false),
            (names(&[], &["10.0.0.1"], None), "10.0.0.1", true),
            (names(&["10.0.0.1"], &[], None), "10.0.0.1", true),
            (names(&[], &["::1"], None), "0:0::1", true),
        ];
        for (names, host, included) in cases {
            assert_eq!(names.include(host), included, "{names:?} {host}");
        }
    }
}
