//! Where poolers in transaction or statement mode connect from, as the operator lists them.
//!
//! A server cannot tell a pooler's connection from a program's own, so it has to be told. Pure: no
//! name is looked up, and what follows from an address is `finding`'s business.

use std::net::IpAddr;
use std::str::FromStr;

use crate::sample::ClientAddress;

/// The addresses of one server's poolers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Poolers(Vec<Pooler>);

/// One line of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooler {
    /// Every address that begins with these bits.
    Network {
        /// The first address.
        address: IpAddr,
        /// How many bits are given.
        bits: u32,
    },
    /// The Unix socket.
    Local,
}

/// Why a text is no pooler. It may be a piece of a connection string, so it is not quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolerError {
    /// Something else: most likely a name.
    #[error(
        "a pooler is an address as the server sees it, as in 10.0.0.7, a network, as in \
         10.0.1.0/24, or `local` for the Unix socket; names are not looked up"
    )]
    NoAddress,
    /// The number after the slash.
    #[error("a network has at most {0} bits here; write /{0} or the address alone for one pooler")]
    TooManyBits(u32),
    /// Bits that the network does not fix are set: one address, or a network, is meant.
    #[error("the network that this address is in begins at {0}; write that, or the address alone")]
    NotItsFirst(IpAddr),
}

impl Poolers {
    /// All of them.
    pub fn new(poolers: Vec<Pooler>) -> Self {
        Self(poolers)
    }

    /// Whether a client from there is one of them.
    pub fn contains(&self, client: ClientAddress) -> bool {
        self.0.iter().any(|pooler| pooler.contains(client))
    }
}

impl Pooler {
    fn contains(self, client: ClientAddress) -> bool {
        match (self, client) {
            (Self::Local, ClientAddress::Local) => true,
            (Self::Network { address, bits }, ClientAddress::Ip(ip)) => {
                network_of(ip.to_canonical(), bits) == address
            }
            (Self::Local, ClientAddress::Ip(_)) | (Self::Network { .. }, ClientAddress::Local) => {
                false
            }
        }
    }
}

impl FromStr for Pooler {
    type Err = PoolerError;

    fn from_str(text: &str) -> Result<Self, PoolerError> {
        if text == "local" {
            return Ok(Self::Local);
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| PoolerError::NoAddress)?;
        let most = width(address);
        let bits = match bits {
            Some(bits) => bits.parse().map_err(|_| PoolerError::NoAddress)?,
            None => most,
        };
        if bits > most {
            return Err(PoolerError::TooManyBits(most));
        }
        // The server shows such an address as what it stands for or as it is written.
        let (address, bits) = match address.to_canonical() {
            canonical if canonical != address && bits >= 96 => (canonical, bits - 96),
            _ => (address, bits),
        };
        match network_of(address, bits) {
            first if first == address => Ok(Self::Network { address, bits }),
            first => Err(PoolerError::NotItsFirst(first)),
        }
    }
}

const fn width(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The first address of the network that an address is in.
fn network_of(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V4(ip) => {
            let free = 32_u32.saturating_sub(bits);
            IpAddr::V4((ip.to_bits() & u32::MAX.checked_shl(free).unwrap_or(0)).into())
        }
        IpAddr::V6(ip) => {
            let free = 128_u32.saturating_sub(bits);
            IpAddr::V6((ip.to_bits() & u128::MAX.checked_shl(free).unwrap_or(0)).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(pooler: &str, client: &str) -> bool {
        let client = match client {
            "local" => ClientAddress::Local,
            address => ClientAddress::Ip(address.parse().unwrap()),
        };
        Poolers::new(vec![pooler.parse().unwrap()]).contains(client)
    }

    #[test]
    fn an_address_is_itself_and_a_network_all_that_begin_alike() {
        for (pooler, client) in [
            ("10.0.0.7", "10.0.0.7"),
            ("10.0.0.7", "::ffff:10.0.0.7"),
            ("::ffff:10.0.0.7", "10.0.0.7"),
            ("::ffff:10.0.1.0/120", "10.0.1.9"),
            ("10.0.1.0/24", "10.0.1.0"),
            ("10.0.1.0/24", "10.0.1.255"),
            ("0.0.0.0/0", "192.0.2.1"),
            ("::/0", "2001:db8::1"),
            ("2001:db8::/32", "2001:db8:7::1"),
            ("local", "local"),
        ] {
            assert!(contains(pooler, client), "{client} is in {pooler}");
        }
        for (pooler, client) in [
            ("10.0.0.7", "10.0.0.8"),
            ("10.0.1.0/24", "10.0.2.0"),
            ("2001:db8::/32", "2001:db9::1"),
            ("0.0.0.0/0", "2001:db8::1"),
            ("0.0.0.0/0", "local"),
            ("local", "127.0.0.1"),
        ] {
            assert!(!contains(pooler, client), "{client} is not in {pooler}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_mend() {
        for (text, mend) in [
            ("pgbouncer", "names are not looked up"),
            ("", "names are not looked up"),
            ("10.0.0.7:6432", "names are not looked up"),
            ("10.0.0.7/", "names are not looked up"),
            ("10.0.0.7/-1", "names are not looked up"),
            ("10.0.0.0/33", "at most 32 bits"),
            ("2001:db8::/129", "at most 128 bits"),
            ("10.0.1.9/24", "begins at 10.0.1.0;"),
        ] {
            let error = text.parse::<Pooler>().unwrap_err().to_string();
            assert!(error.contains(mend), "{text}: {error}");
        }
    }
}
