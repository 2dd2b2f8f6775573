-- Access control: environments with quotas, tokens, sessions of people, and the audit log.

ALTER TABLE environments
    ADD COLUMN created_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    ADD COLUMN quotas                jsonb NOT NULL DEFAULT '{}',   -- by the name of the quota; absent: no limit
    ADD COLUMN deletion_requested_at timestamptz,                   -- NULL: the environment is in use
    ADD COLUMN deletion_progress     jsonb NOT NULL DEFAULT '{}';   -- the current step and what was deleted

-- Requests without a token are in this environment.
INSERT INTO environments (organization, project, name) VALUES ('default', 'default', 'default') ON CONFLICT DO NOTHING;

CREATE TABLE access_tokens (
    id                uuid PRIMARY KEY,
    number            int GENERATED ALWAYS AS IDENTITY UNIQUE,      -- part of the id of every lease taken with the token
    environment_id    bigint NOT NULL REFERENCES environments,
    name              text NOT NULL,
    scopes            text[] NOT NULL,
    queues            text[],                                       -- patterns; NULL: every queue
    groups            text[],                                       -- patterns; NULL: every consumer group
    is_platform_admin boolean NOT NULL DEFAULT false,
    quotas            jsonb NOT NULL DEFAULT '{}',
    created_by        text NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at        timestamptz,
    revoked_at        timestamptz,
    last_used_at      timestamptz
);
CREATE UNIQUE INDEX access_tokens_name ON access_tokens (environment_id, name) WHERE revoked_at IS NULL;

-- Rotation adds a secret and lets the previous one expire, so a token has several for a while.
CREATE TABLE access_token_secrets (
    hash       bytea PRIMARY KEY,                                   -- SHA-256; the secret itself is not stored
    token_id   uuid NOT NULL REFERENCES access_tokens ON DELETE CASCADE,
    prefix     text NOT NULL,                                       -- the first characters, to recognise it by
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz
);
CREATE INDEX access_token_secrets_of_token ON access_token_secrets (token_id);

-- A person, or the bearer of a token, who logged in to the console.
CREATE TABLE access_sessions (
    hash         bytea PRIMARY KEY,                                 -- SHA-256 of the cookie
    subject      text NOT NULL,                                     -- user:SUBJECT of the identity provider, or token:NAME
    display_name text NOT NULL,                                     -- for people to read
    token_id     uuid REFERENCES access_tokens ON DELETE CASCADE,   -- NULL: logged in through OpenID Connect
    groups       text[] NOT NULL,                                   -- of the person at the login; the settings give them roles
    csrf_token   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at   timestamptz NOT NULL
);
CREATE INDEX access_sessions_expiry ON access_sessions (expires_at);

-- One row. Every change of tokens, sessions and environments raises the version, and brokers read them again.
CREATE TABLE access_version (
    id      boolean PRIMARY KEY DEFAULT true CHECK (id),
    version bigint NOT NULL
);
INSERT INTO access_version (version) VALUES (1);

CREATE TABLE audit_entries (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    recorded_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    environment_id bigint,                                          -- no foreign key: entries outlive environments
    environment    text NOT NULL,                                   -- organization/project/environment; empty: unknown
    subject        text NOT NULL,                                   -- who: token:NAME, user:SUBJECT, local; empty: unknown
    token_id       uuid,
    address        text NOT NULL,                                   -- of the client
    action         text NOT NULL,                                   -- method and path template of the route
    object         jsonb NOT NULL DEFAULT '{}',                     -- what the call was for, by the names of the parameters
    status         smallint NOT NULL,                               -- of the response
    denied         boolean NOT NULL,                                -- whether the caller was refused
    before         jsonb,
    after          jsonb,
    request_id     text NOT NULL
);
CREATE INDEX audit_entries_by_environment ON audit_entries (environment_id, recorded_at, id);
CREATE INDEX audit_entries_by_time ON audit_entries (recorded_at, id);
CREATE INDEX audit_entries_by_request ON audit_entries (request_id);

-- The audit log is append-only. Retention alone deletes: prune_audit_entries_v1 sets this parameter while it runs.
CREATE FUNCTION refuse_audit_change_v1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('penstock.audit_retention', true) = 'on' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'The audit log is append-only: % is refused. PENSTOCK_AUDIT_DAYS sets its retention.', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE TRIGGER audit_entries_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change_v1();

-- Functions that have other parameters now, or are not needed any more.
DROP FUNCTION IF EXISTS operation_statistics_v1();
DROP FUNCTION IF EXISTS has_queues_v1(text, text, text);
