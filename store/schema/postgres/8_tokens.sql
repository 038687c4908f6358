-- Version 8 for PostgreSQL and TimescaleDB: the tokens of the HTTP API. Mirrors sqlite/8_tokens.sql.

-- A token is deleted when it is revoked. `digest`: the SHA-256 digest of its secret, which is not stored. `uid`: its user.
-- `scope`: `read`, `control` or `admin`. `used`: a time at which it was accepted, at most some minutes before the last one.
CREATE TABLE api_token (
    token_id text PRIMARY KEY,
    digest text NOT NULL,
    uid int8 NOT NULL,
    name text,
    scope text NOT NULL,
    created timestamptz NOT NULL,
    expires timestamptz NOT NULL,
    used timestamptz
);

CREATE INDEX api_token_uid ON api_token (uid);
