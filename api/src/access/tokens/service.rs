//! Thread with the connection to the table of tokens, and the tokens that were found lately.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polymeter_service::api_token::ApiToken;
use polymeter_service::clock;
use polymeter_store::{StoreError, StoreUrl, StoredToken, TableThread, TokenTable};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::super::identity::{AccessOf, Principal, Scope};
use crate::limits;

/// Tokens of a store. Copies share one thread, which ends with the last of them.
#[derive(Clone)]
pub struct TokenService {
    table: TableThread<TokenTable>,
    known: Arc<Known>,
    /// Suspect clients look up one token at a time.
    turn: Arc<Semaphore>,
    pub(super) access: Arc<AccessOf>,
}

impl fmt::Debug for TokenService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenService").finish_non_exhaustive()
    }
}

/// Tokens that were found lately, each with the time of the look-up, by id.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<HashMap<String, (StoredToken, u64)>>);

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unverified {
    Invalid,
    Unavailable,
}

impl TokenService {
    /// `access` returns the access of a user to stored jobs.
    pub fn start(store: StoreUrl, access: Arc<AccessOf>) -> io::Result<Self> {
        let table = TableThread::start("tokens", store, TokenTable::open)?;
        Ok(Self { table, known: Arc::default(), turn: Arc::new(Semaphore::new(1)), access })
    }

    /// Runs `work` on the thread. Returns none if the store fails, or the thread has too much to do.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut TokenTable, &Known) -> Result<T, StoreError> + Send + 'static,
    ) -> Option<T> {
        let known = Arc::clone(&self.known);
        self.table.run(move |table| work(table, &known)).await
    }

    /// Returns the principal of a token. A suspect client, which has sent many wrong ones, waits for its turn
    /// if the token was not found lately: behind the same address others may have valid ones.
    pub(crate) async fn verify(&self, token: &ApiToken, is_suspect: bool) -> Result<Principal, Unverified> {
        let found = self.known.get(&token.id);
        let stored = match found {
            Some((stored, found_ns))
                if clock::monotonic_ns().saturating_sub(found_ns) < limits::TOKEN_AGE_NS =>
            {
                Some(stored)
            }
            // The secret is checked here, too, so that only its holder has a look-up in any case.
            Some((stored, _)) if token.secret.matches(&stored.digest) => self.look_up(token).await?,
            Some(_) | None if is_suspect => self.look_up_in_turn(token).await?,
            Some(_) | None => self.look_up(token).await?,
        };
        stored.and_then(|stored| principal(token, &stored)).ok_or(Unverified::Invalid)
    }

    /// Reads the token when those that came before have been read. A wrong one delays the next.
    async fn look_up_in_turn(&self, token: &ApiToken) -> Result<Option<StoredToken>, Unverified> {
        let turn = timeout(limits::TOKEN_TIMEOUT, self.turn.acquire()).await;
        // The semaphore is never closed.
        let Ok(Ok(_turn)) = turn else { return Err(Unverified::Unavailable) };
        let found = self.look_up(token).await;
        if !matches!(&found, Ok(Some(stored)) if principal(token, stored).is_some()) {
            tokio::time::sleep(limits::WRONG_TOKEN_DELAY).await;
        }
        found
    }

    async fn look_up(&self, token: &ApiToken) -> Result<Option<StoredToken>, Unverified> {
        let token = token.clone();
        let (reply, result) = oneshot::channel();
        let known = Arc::clone(&self.known);
        let task = move |table: &mut TokenTable| {
            let now_us = clock::realtime_us();
            let found = table.find(&token.id)?;
            known.update(&token.id, found.as_ref());
            let is_used = found.as_ref().is_some_and(|stored| {
                let last_us = stored.used_us.unwrap_or(i64::MIN);
                principal(&token, stored).is_some()
                    && now_us.saturating_sub(last_us) > limits::TOKEN_USE_INTERVAL_US
            });
            // The client may be gone.
            reply.send(found).ok();
            // The request does not wait for this.
            if is_used { table.record_use(&token.id, now_us) } else { Ok(()) }
        };
        if !self.table.submit(task) {
            return Err(Unverified::Unavailable);
        }
        let result = timeout(limits::TOKEN_TIMEOUT, result).await;
        result.ok().and_then(Result::ok).ok_or(Unverified::Unavailable)
    }
}

/// None unless the token has the stored secret and has not expired.
fn principal(token: &ApiToken, stored: &StoredToken) -> Option<Principal> {
    let is_valid = token.secret.matches(&stored.digest) && stored.expires_us > clock::realtime_us();
    let scope = Scope::from_name(&stored.scope)?;
    is_valid.then_some(Principal { uid: stored.uid, scope })
}

impl Known {
    fn tokens(&self) -> MutexGuard<'_, HashMap<String, (StoredToken, u64)>> {
        // It is consistent at every point where a panic could occur.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: &str) -> Option<(StoredToken, u64)> {
        self.tokens().get(id).cloned()
    }

    /// Records what the table has for an id. Only the thread calls this, so that a look-up does not bring a
    /// revoked token back.
    fn update(&self, id: &str, found: Option<&StoredToken>) {
        let mut tokens = self.tokens();
        tokens.remove(id);
        let Some(stored) = found else { return };
        if tokens.len() >= limits::KNOWN_TOKENS {
            let oldest = tokens.iter().min_by_key(|(_, (_, found_ns))| *found_ns).map(|(id, _)| id.clone());
            oldest.and_then(|id| tokens.remove(&id));
        }
        tokens.insert(id.to_owned(), (stored.clone(), clock::monotonic_ns()));
    }

    pub(super) fn forget(&self, revoked: &[StoredToken]) {
        revoked.iter().for_each(|token| self.update(&token.id, None));
    }
}
