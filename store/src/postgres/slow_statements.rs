//! Statements that the server does not answer for long: the log says what they wait for, and on whom. A
//! collector that is frozen in a COPY and in their way is disconnected: the server waits for its rows for
//! ever.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Client;
use tracing::{info, warn};

use super::connect::{Access, Settings, connect};
use crate::StoreError;
use crate::error::{Context, DatabaseError};

/// Time without an answer after which a statement is logged. It doubles each time.
const FIRST: Duration = Duration::from_secs(10);

const LONGEST: Duration = Duration::from_secs(640);

const QUESTION: Duration = Duration::from_secs(5);

const SHOWN_CHARACTERS: usize = 100;

/// Event for which a connection waits, and the connections that block it.
const WAITS: &str = "SELECT coalesce(wait_event_type || ': ' || wait_event, 'its own work'),
         (SELECT string_agg(format('process %s of user %s%s', other.pid, other.usename,
                                   ' since ' || to_char(other.xact_start, 'YYYY-MM-DD HH24:MI:SS TZ')), ', ')
          FROM pg_stat_activity AS other WHERE other.pid = ANY (pg_blocking_pids(own.pid)))
     FROM pg_stat_activity AS own WHERE pid = $1";

/// Ends the connections of COPYs that block connection `$1` and are in a state of `$2`. Returns the state of
/// each COPY of the same user that does so and waits for its client, and whether it was ended.
const END_COPIES: &str =
    "SELECT state, CASE WHEN state = ANY ($2) THEN pg_terminate_backend(pid) ELSE false END
     FROM (SELECT other.pid,
                  format('process %s of user %s: COPY since %s, %s bytes',
                         other.pid, other.usename, other.query_start, copy.bytes_processed) AS state
           FROM pg_stat_activity AS own
           JOIN pg_stat_activity AS other ON other.usesysid = own.usesysid
           JOIN pg_stat_progress_copy AS copy ON copy.pid = other.pid
           WHERE own.pid = $1 AND other.pid = ANY (pg_blocking_pids($1))
               AND other.wait_event = 'ClientRead') AS copies";

pub(super) struct Watched {
    settings: Settings,
    pid: i32,
}

/// Leaves out the settings, which contain a password.
impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl Watched {
    /// Asks the server for the process of the connection.
    pub(super) async fn of(settings: &Settings, client: &Client) -> Result<Self, StoreError> {
        let row =
            client.query_one("SELECT pg_backend_pid()", &[]).await.context("connect to the database")?;
        Ok(Self { settings: settings.clone(), pid: row.get(0) })
    }

    /// Waits for the answer to a statement, and logs that it is late.
    pub(super) async fn follow<T>(&self, statement: &str, answer: impl Future<Output = T>) -> T {
        let mut answer = pin!(answer);
        let (mut waited, mut pause) = (Duration::ZERO, FIRST);
        let mut copies = Vec::new();
        loop {
            let answered = timeout(pause, &mut answer).await;
            if let Ok(answered) = answered {
                if !waited.is_zero() {
                    info!("the database has answered after more than {} s", waited.as_secs());
                }
                return answered;
            }
            waited += pause;
            pause = waited.min(LONGEST);
            self.report(statement, waited).await;
            copies = self.end_frozen_copies(&copies).await;
        }
    }

    async fn report(&self, statement: &str, waited: Duration) {
        let statement: String = statement.split_whitespace().collect::<Vec<_>>().join(" ");
        let statement: String = statement.chars().take(SHOWN_CHARACTERS).collect();
        let (waits_for, blocked_by) = match timeout(QUESTION, self.waits()).await {
            Ok(Ok(Some((waits_for, blocked_by)))) => (waits_for, blocked_by),
            Ok(Ok(None)) => ("the server, which has ended the connection".to_owned(), None),
            Ok(Err(_)) | Err(_) => {
                ("the server, which does not answer other connections either".to_owned(), None)
            }
        };
        let remedy = if blocked_by.is_some() {
            "end the other transaction, in the database with SELECT pg_terminate_backend(PROCESS)"
        } else {
            "none is needed if it ends; else examine the server"
        };
        let blocked_by = blocked_by.as_deref().unwrap_or("no other connection");
        warn!(
            error = %format_args!("a statement has waited for {} s", waited.as_secs()),
            remedy,
            %waits_for,
            blocked_by,
            %statement,
            "cannot use the database meanwhile"
        );
    }

    /// Ends the COPYs that block the connection and are in the same state as `before`. Returns the states of
    /// the others.
    async fn end_frozen_copies(&self, before: &[String]) -> Vec<String> {
        let copies = timeout(QUESTION, self.end_copies(before)).await.map(Result::unwrap_or_default);
        let (ended, others): (Vec<_>, Vec<_>) =
            copies.unwrap_or_default().into_iter().partition(|(_, is_ended)| *is_ended);
        for (copy, _) in ended {
            warn!(
                error = "it has sent nothing since the report before: its collector is frozen",
                remedy = "stop that collector, or let it continue: it repeats what was not committed",
                %copy,
                "cannot wait for another collector any longer, and ended its connection"
            );
        }
        others.into_iter().map(|(copy, _)| copy).collect()
    }

    async fn end_copies(&self, before: &[String]) -> Result<Vec<(String, bool)>, StoreError> {
        let client = connect(&self.settings, Access::Write).await?;
        let rows = client.query(END_COPIES, &[&self.pid, &before]).await;
        let rows = rows.context("end the connection of a frozen collector")?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Returns the event for which the connection waits, and who blocks it; none if it is gone.
    async fn waits(&self) -> Result<Option<(String, Option<String>)>, StoreError> {
        let client = connect(&self.settings, Access::Write).await?;
        let row = client.query_opt(WAITS, &[&self.pid]).await.context("read the activity of the database")?;
        Ok(row.map(|row| (row.get(0), row.get(1))))
    }
}

/// Waits for the answer to a statement on a connection, which may be watched.
pub(super) async fn wait<T, E: Into<DatabaseError>>(
    watched: Option<&Watched>,
    statement: &str,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, DatabaseError> {
    let answered = match watched {
        Some(watched) => watched.follow(statement, answer).await,
        None => answer.await,
    };
    answered.map_err(Into::into)
}
