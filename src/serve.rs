//! `locks serve`: a poller for each server, one HTTP server over what they publish.

use std::sync::Arc;

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::backoff::Backoff;
use crate::config::Config;
use crate::metrics::exposition::{Format, render_families};
use crate::metrics::{Process, collect_families};
use crate::poller::{Poller, local_now};
use crate::registry::Registry;
use crate::server::{self, Content};
use crate::timestamp::Timestamp;
use crate::view::{View, render_snapshot};

/// Polls and serves until `shutdown` is done.
///
/// # Panics
///
/// When a poller panics: half an exporter that looks whole would be worse than none.
pub async fn serve(
    config: Config,
    registry: Arc<Registry>,
    listeners: Vec<TcpListener>,
    shutdown: impl Future<Output = ()>,
) {
    let applications = Arc::new(config.applications);
    let mut pollers = JoinSet::new();
    let mut views = Vec::new();
    for server in config.servers {
        let (poller, view) = Poller::new(
            server,
            config.poll,
            registry.clone(),
            applications.clone(),
            &config.limits,
            Backoff::default(),
        );
        views.push(view);
        pollers.spawn(poller.run());
    }
    let options = server::Options {
        telemetry_path: config.web.telemetry_path,
        show_details: config.web.show_details,
        allowed_hosts: Some(config.web.allowed_hosts),
        ..server::Options::default()
    };
    for listener in &listeners {
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "listening");
        }
    }
    let site = Arc::new(Site { views, registry, registry_read_at: local_now() });
    tokio::select! {
        () = server::serve(listeners, site, options, shutdown) => {}
        Some(ended) = pollers.join_next() => match ended {
            Ok(never) => match never {},
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        },
    }
}

/// What there is to serve.
struct Site {
    views: Vec<watch::Receiver<Arc<View>>>,
    registry: Arc<Registry>,
    registry_read_at: Timestamp,
}

impl Site {
    fn views(&self) -> Vec<Arc<View>> {
        self.views.iter().map(|view| view.borrow().clone()).collect()
    }
}

impl Content for Site {
    fn metrics(&self, format: Format) -> Bytes {
        let views = self.views();
        let process = Process { registry: &self.registry, registry_read_at: self.registry_read_at };
        let families = collect_families(process, views.iter().map(|view| &**view), local_now());
        render_families(&families, format).text.into()
    }

    fn snapshot(&self, details: bool) -> Bytes {
        let views = self.views();
        render_snapshot(views.iter().map(|view| &**view), local_now(), details).into()
    }

    fn ready(&self) -> bool {
        self.views.iter().all(|view| view.borrow().polls.total > 0)
    }
}
