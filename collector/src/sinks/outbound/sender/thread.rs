//! Thread in which the shards run.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use polymeter_service::clock::Clock;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;

use super::sender_state::Shared;
use super::shard::Shard;
use crate::sinks::outbound::config::OutboundConfig;
use crate::sinks::outbound::counters::Counters;
use crate::sinks::outbound::spool::Log;
use crate::thread::spawn;

#[derive(Debug)]
pub(crate) struct Sender {
    /// Time since the start of the clock at which the shards must end; none while they work.
    stop: watch::Sender<Option<Duration>>,
    thread: JoinHandle<()>,
    sink: &'static str,
    clock: Clock,
}

impl Sender {
    pub(crate) fn start(
        config: Arc<OutboundConfig>,
        logs: Vec<Arc<Log>>,
        counters: Counters,
        clock: Clock,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(None);
        let sink = config.protocol.sink;
        let shared = Arc::new(Shared::new(config, counters, clock));
        let thread = spawn(sink, move || {
            runtime.block_on(async {
                let mut shards = JoinSet::new();
                for log in logs {
                    drop(shards.spawn(Shard::new(Arc::clone(&shared), log).run(stopped.clone())));
                }
                while shards.join_next().await.is_some() {}
            });
            // A name that is being resolved does not delay the end.
            runtime.shutdown_background();
        })?;
        Ok(Self { stop, thread, sink, clock })
    }

    /// Sends what can be sent within `patience`, and ends the thread. The rest stays in the spool.
    pub(crate) fn stop(self, patience: Duration) {
        self.stop.send_replace(Some(self.clock.now().since_start + patience));
        if self.thread.join().is_err() {
            warn!(error = "its thread panicked", "cannot send samples by {}", self.sink);
        }
    }
}
