-- Annotations: events that charts of queues mark, such as a deploy, a pause or a change of a limit.

CREATE TABLE annotations (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    environment_id bigint NOT NULL REFERENCES environments,
    at             timestamptz NOT NULL,
    end_at         timestamptz CHECK (end_at >= at),                -- NULL: a moment
    last_at        timestamptz NOT NULL GENERATED ALWAYS AS (coalesce(end_at, at)) STORED,
    kind           text NOT NULL,                                   -- deploy, pause, limit, …
    queue          text,                                            -- NULL: the whole environment
    text           text NOT NULL,
    subject        text NOT NULL,                                   -- the caller: token:NAME, user:SUBJECT, local
    link           text,
    key            text                                             -- of the caller: a repeated request adds nothing
);
CREATE INDEX annotations_by_environment ON annotations (environment_id, id);
CREATE INDEX annotations_by_time ON annotations (environment_id, last_at);
CREATE INDEX annotations_expiry ON annotations (last_at);
CREATE UNIQUE INDEX annotations_key ON annotations (environment_id, key) WHERE key IS NOT NULL;

-- This function has more parameters now.
DROP FUNCTION IF EXISTS lagging_positions_v1(text, text, text, timestamptz, int, int);
