//! Ports for servers that must be told theirs. Asking the system for a free port and giving it
//! back is a race, above all across a restart, when any outgoing connection may take it. So a port
//! comes from below the range of outgoing connections and is reserved by a locked file, which all
//! test processes of one user honour.

use std::env;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::process;

use super::process::own_uid;

const PORTS: Range<u16> = 20_000..30_000;

/// A port on loopback that is ours until dropped.
pub struct Port {
    number: u16,
    /// The lock goes with the handle, also when the process dies.
    _reservation: File,
}

impl Port {
    /// Reserves a port that nobody listens on.
    pub fn reserve() -> Port {
        let folder = env::temp_dir().join(format!("locks-test-ports-{}", own_uid()));
        fs::create_dir_all(&folder).expect("a folder for port reservations can be made");
        // Processes begin at different places, so that they rarely meet.
        let skipped = usize::try_from(process::id()).unwrap_or_default() * 37 % PORTS.len();
        PORTS
            .cycle()
            .skip(skipped)
            .take(PORTS.len())
            .find_map(|number| {
                let reservation = File::create(folder.join(number.to_string())).ok()?;
                reservation.try_lock().ok()?;
                TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
                Some(Port { number, _reservation: reservation })
            })
            .expect("some port is free")
    }

    /// The number.
    pub fn number(&self) -> u16 {
        self.number
    }
}
