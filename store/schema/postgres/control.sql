-- What collectors share: who runs, requests of users to agents, and the tokens of the HTTP API.

-- The running collectors. `collector_id`: one run of a program. `heard`: the time of the database at which it
-- last wrote this row.
CREATE TABLE collector (
    collector_id text PRIMARY KEY,
    host text NOT NULL,
    version text NOT NULL,
    started timestamptz NOT NULL,
    heard timestamptz NOT NULL
);

-- Requests to agents. `request_id`: the collector's name of it, so that it is stored once. `collector_id`:
-- the collector that took it. `is_lasting`: agents that connect until `expires` receive it. `is_replaced`: a
-- later request has the same effect.
CREATE TABLE control_request (
    number int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request_id text NOT NULL UNIQUE,
    collector_id text NOT NULL,
    job_id text NOT NULL,
    uid int8 NOT NULL,
    line text NOT NULL,
    is_lasting boolean NOT NULL,
    is_replaced boolean NOT NULL DEFAULT false,
    at timestamptz NOT NULL,
    created timestamptz NOT NULL,
    expires timestamptz NOT NULL
);
CREATE INDEX control_request_by_job ON control_request (job_id);
CREATE INDEX control_request_by_expiry ON control_request (expires);

-- The sessions that shall answer, and those that have. `collector_id`: the collector that forwards the
-- request to it. `answer`: until the user has it. `answered`: the time of a final answer; such a session does
-- not receive the request again.
CREATE TABLE control_answer (
    number int8 NOT NULL,
    session_id text NOT NULL,
    node text NOT NULL,
    collector_id text,
    answer text,
    answered timestamptz,
    PRIMARY KEY (number, session_id)
);

-- Tokens of the HTTP API. A token is deleted when it is revoked. `digest`: the SHA-256 digest of its secret,
-- which is not stored. `uid`: its user. `scope`: `read`, `read-all`, `control` or `admin`. `used`: a time at which it was
-- accepted, at most some minutes before the last one.
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

-- The managers of accounts, by the names of their roles: those of the collectors' configuration. They see the
-- jobs of these accounts.
CREATE TABLE account_manager (
    account text NOT NULL,
    manager text NOT NULL,
    PRIMARY KEY (manager, account)
);

CREATE INDEX api_token_uid ON api_token (uid);
