//! Table of the tokens of the HTTP API, which the collectors of a store share.

use crate::backend::Connection;
use crate::error::Context;
use crate::row::from_row;
use crate::value::Value;
use crate::{StoreError, StoreUrl};

/// Stored token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredToken {
    pub id: String,
    pub digest: String,
    pub uid: u32,
    pub name: Option<String>,
    pub scope: String,
    /// Microseconds since the epoch.
    pub created_us: i64,
    /// Time from which the token is not accepted any more, in microseconds since the epoch.
    pub expires_us: i64,
    /// A time at which it was used, in microseconds since the epoch; none if it was not.
    pub used_us: Option<i64>,
}

const COLUMNS: &str = "token_id, digest, uid, name, scope, created, expires, used";

from_row!(StoredToken {
    id,
    digest,
    uid,
    name,
    scope,
    created_us: TimeUs,
    expires_us: TimeUs,
    used_us: TimeUs,
});

/// Connection to the tokens. After an error its state is unknown, and it must be dropped.
#[derive(Debug)]
pub struct TokenTable(Box<dyn Connection>);

impl TokenTable {
    /// Connects to a store of this version, and changes nothing.
    pub fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        Ok(Self(url.open_current_version()?.connection))
    }

    pub fn find(&mut self, id: &str) -> Result<Option<StoredToken>, StoreError> {
        let select = format!("SELECT {COLUMNS} FROM api_token WHERE token_id = $1");
        self.0.select_first(&select, &[id.into()]).context("read a token")
    }

    /// Returns the tokens of a user, or of all users, the oldest first.
    pub fn list(&mut self, uid: Option<u32>) -> Result<Vec<StoredToken>, StoreError> {
        select(&mut *self.0, uid, None)
    }

    /// Stores a token, and deletes those that expired before `forget_us`. Returns false if its user already
    /// has `limit` tokens that have not expired.
    pub fn create(&mut self, token: &StoredToken, limit: usize, forget_us: i64) -> Result<bool, StoreError> {
        const ACTION: &str = "store a token";
        let connection = &mut *self.0;
        connection.begin().context(ACTION)?;
        let forget = [Value::Time(forget_us)];
        // By a clock that jumped ahead no token expires for good.
        connection
            .execute(
                "DELETE FROM api_token WHERE expires < least($1, (SELECT accepted FROM clock_check))",
                &forget,
            )
            .context(ACTION)?;
        let of_user = select(connection, Some(token.uid), None)?;
        let valid = of_user.iter().filter(|other| other.expires_us > token.created_us).count();
        if valid < limit {
            let insert = "INSERT INTO api_token (token_id, digest, uid, name, scope, created, expires)
                 VALUES ($1, $2, $3, CAST($4 AS text), $5, $6, $7)";
            let parameters = [
                token.id.as_str().into(),
                token.digest.as_str().into(),
                i64::from(token.uid).into(),
                token.name.as_deref().into(),
                token.scope.as_str().into(),
                Value::Time(token.created_us),
                Value::Time(token.expires_us),
            ];
            connection.execute(insert, &parameters).context(ACTION)?;
        }
        connection.commit().context(ACTION)?;
        Ok(valid < limit)
    }

    /// Deletes and returns the tokens of a user, or of all users; with an id, only that one.
    pub fn revoke(&mut self, uid: Option<u32>, id: Option<&str>) -> Result<Vec<StoredToken>, StoreError> {
        const ACTION: &str = "revoke tokens";
        let connection = &mut *self.0;
        connection.begin().context(ACTION)?;
        let revoked = select(connection, uid, id)?;
        for token in &revoked {
            let delete = "DELETE FROM api_token WHERE token_id = $1";
            connection.execute(delete, &[token.id.as_str().into()]).context(ACTION)?;
        }
        connection.commit().context(ACTION)?;
        Ok(revoked)
    }

    pub fn record_use(&mut self, id: &str, used_us: i64) -> Result<(), StoreError> {
        const ACTION: &str = "record the use of a token";
        let update = "UPDATE api_token SET used = $2 WHERE token_id = $1";
        self.0.begin().context(ACTION)?;
        self.0.execute(update, &[id.into(), Value::Time(used_us)]).context(ACTION)?;
        self.0.commit().context(ACTION)
    }
}

fn select(
    connection: &mut dyn Connection,
    uid: Option<u32>,
    id: Option<&str>,
) -> Result<Vec<StoredToken>, StoreError> {
    let select = format!(
        "SELECT {COLUMNS} FROM api_token WHERE uid = coalesce(CAST($1 AS bigint), uid)
             AND token_id = coalesce(CAST($2 AS text), token_id) ORDER BY created, token_id"
    );
    connection.select(&select, &[uid.map(i64::from).into(), id.into()]).context("read tokens")
}
