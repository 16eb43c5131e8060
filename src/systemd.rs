//! What systemd is told of this process: that it is ready, alive, and stopping.
//!
//! An edge: it writes to the socket in `NOTIFY_SOCKET`, and does nothing where there is none. The
//! sockets that systemd may pass are [`server`](crate::server)'s.

use std::convert::Infallible;
use std::future::pending;

use sd_notify::NotifyState;
use tokio::time::sleep;

/// Whoever asks from now on is answered.
pub fn notify_ready() {
    notify(NotifyState::Ready);
}

/// No new connection is accepted from now on.
pub fn notify_stopping() {
    notify(NotifyState::Stopping);
}

/// Tells as often as systemd wants to hear it (`WatchdogSec=`) that the thread which polls and
/// serves is not stuck. Never returns.
pub async fn keep_alive() -> Infallible {
    let Some(patience) = sd_notify::watchdog_enabled() else { return pending().await };
    loop {
        notify(NotifyState::Watchdog);
        sleep(patience / 2).await;
    }
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot tell systemd how this process is");
    }
}
