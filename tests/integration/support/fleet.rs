//! The simulated applications of `examples/fleet.rs`, played inside the test against its servers.

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{PgBouncer, Postgres};

#[path = "../../../examples/fleet.rs"]
#[expect(dead_code, reason = "the example's `main` is for the terminal")]
mod example;

/// Applications at work. Dropping it drops them where they stand.
pub struct Fleet {
    end: oneshot::Sender<()>,
    playing: JoinHandle<anyhow::Result<()>>,
}

impl Fleet {
    /// Sends the applications to a server, and some of them through a pooler before it.
    pub fn start(postgres: &Postgres, pooler: Option<&PgBouncer>) -> Fleet {
        let options = example::Options {
            dsn: postgres.dsn("postgres"),
            pooler: pooler.map(|pooler| pooler.dsn("app")),
            seconds: None,
        };
        let (end, ended) = oneshot::channel();
        let playing = tokio::spawn(example::run(options, async {
            // A fleet that is dropped ends like one that is told to.
            let _ = ended.await;
            Ok(())
        }));
        Fleet { end, playing }
    }

    /// Sends the applications home and waits until they are.
    pub async fn end(self) {
        let _ = self.end.send(());
        let outcome = self.playing.await.expect("the fleet does not panic");
        outcome.expect("the fleet ends well");
    }
}
