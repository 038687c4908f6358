-- Version 8 for SQLite: the tokens of the HTTP API.

-- As in PostgreSQL.
CREATE TABLE api_token (
    token_id text PRIMARY KEY,
    digest text NOT NULL,
    uid INTEGER NOT NULL,
    name text,
    scope text NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    used INTEGER
);

CREATE INDEX api_token_uid ON api_token (uid);
