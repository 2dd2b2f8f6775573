-- Dead letters at any number: what they died of, how often, counts that are folded in the background, and jobs.

-- What a letter says of its message: the group of errors it belongs to, and the lives it had before. Nothing is
-- written to the letters there are already: those get their error_key step by step, by group_dead_v1.
ALTER TABLE dead_letters
    ADD COLUMN error_key            uuid,                        -- md5 of error_pattern_v1; NULL: not looked at yet
    ADD COLUMN deaths               int NOT NULL DEFAULT 1,      -- this death included
    ADD COLUMN earlier_attempts     int NOT NULL DEFAULT 0,      -- failed attempts of its earlier lives
    ADD COLUMN first_created_at     timestamptz,                 -- NULL: it was never requeued
    ADD COLUMN first_transaction_id text;
CREATE INDEX dead_letters_by_error ON dead_letters (queue_id, group_id, error_key, failed_at)
    WHERE error_key IS NOT NULL;
ALTER TABLE dead_letters SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Where a requeued message comes from. It is found by its place when it dies again, and goes with the messages
-- that retention lets go of.
CREATE TABLE lineages (
    partition_id         bigint NOT NULL REFERENCES partitions ON DELETE CASCADE,
    message_offset       bigint NOT NULL,
    deaths               int NOT NULL,
    attempts             int NOT NULL,   -- failed ones, in all lives so far
    first_created_at     timestamptz NOT NULL,
    first_transaction_id text NOT NULL,
    PRIMARY KEY (partition_id, message_offset)
);

-- error_pattern_v1: an error without what differs from one time to the next, so that equal troubles look equal.
-- Of several lines the first that says something counts; of a Python traceback, the last.
-- The keys of letters follow from it: to change it is a migration.
CREATE FUNCTION error_pattern_v1(p_error text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    v_text text := ltrim(left(p_error, 4000), E' \t\r\n');
BEGIN
    IF strpos(v_text, 'Traceback (most recent call last)') > 0 THEN
        v_text := regexp_replace(rtrim(right(p_error, 4000), E' \t\r\n'), '^.*\n', '');
    END IF;
    v_text := left(coalesce(split_part(v_text, E'\n', 1), ''), 500);
    -- What is not there need not be looked for: that is most of the cost.
    IF strpos(v_text, '://') > 0 THEN
        v_text := regexp_replace(v_text, '\m[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"''<>)]+', '<url>', 'g');
    END IF;
    IF v_text ~ '["''`]' THEN
        v_text := regexp_replace(v_text, '(^|[^[:alnum:]_])("[^"]*"|''[^'']*''(?![[:alnum:]_])|`[^`]*`)', '\1<text>', 'g');
    END IF;
    IF v_text ~ '[0-9]' THEN
        IF strpos(v_text, '-') > 0 THEN
            v_text := regexp_replace(
                v_text, '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}', '<uuid>', 'g');
            v_text := regexp_replace(
                v_text, '\m[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.,]+)?(Z|[+-][0-9]{2}:?[0-9]{2})?', '<time>', 'g');
        END IF;
        IF v_text ~ '[0-9][.][0-9]' THEN
            v_text := regexp_replace(v_text, '\m[0-9]{1,3}(\.[0-9]{1,3}){3}(:[0-9]+)?\M', '<address>', 'g');
        END IF;
        IF v_text ~ '0[xX]|[0-9a-fA-F]{8}' THEN
            v_text := regexp_replace(
                v_text, '\m(0[xX][0-9a-fA-F]+|(?=[a-fA-F]*[0-9])(?=[0-9]*[a-fA-F])[0-9a-fA-F]{8,})\M', '<hex>', 'g');
        END IF;
        v_text := regexp_replace(v_text, '[0-9]+([.,][0-9]+)*', '<n>', 'g');
    END IF;
    IF v_text ~ '\s\s|[\t\r]' THEN
        v_text := regexp_replace(v_text, '\s+', ' ', 'g');
    END IF;
    RETURN left(btrim(v_text), 200);
END $$;

-- Whoever writes a letter, it knows its group of errors.
CREATE FUNCTION name_error_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.error_key := md5(error_pattern_v1(NEW.error))::uuid;
    RETURN NEW;
END $$;
CREATE TRIGGER dead_letters_named BEFORE INSERT ON dead_letters
    FOR EACH ROW WHEN (NEW.error_key IS NULL) EXECUTE FUNCTION name_error_v1();

-- The counts. What comes and goes is added to dead_tallies, in the transaction in which it comes and goes; nobody
-- waits for anybody. One session in the cluster folds those rows into the three tables below, so that there are few
-- of them. A count is always the folded number plus what is not folded yet, in one snapshot.
-- Letters without an error_key are counted under the nil key and the hour -infinity.
ALTER TABLE dead_tallies
    ADD COLUMN error_key uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    ADD COLUMN hour      timestamptz NOT NULL DEFAULT '-infinity';
CREATE TABLE dead_counts (
    queue_id  bigint NOT NULL,   -- no reference: the fold would wait for whoever deletes a queue
    group_id  bigint NOT NULL,
    messages  bigint NOT NULL,
    PRIMARY KEY (queue_id, group_id)
) WITH (fillfactor = 50);
CREATE TABLE dead_error_counts (
    queue_id  bigint NOT NULL,
    group_id  bigint NOT NULL,
    error_key uuid NOT NULL,
    messages  bigint NOT NULL,
    PRIMARY KEY (queue_id, group_id, error_key)
) WITH (fillfactor = 50);
CREATE TABLE dead_hours (
    queue_id  bigint NOT NULL,
    group_id  bigint NOT NULL,
    hour      timestamptz NOT NULL,   -- in which they died
    error_key uuid NOT NULL,
    messages  bigint NOT NULL,
    PRIMARY KEY (queue_id, group_id, hour, error_key)
) WITH (fillfactor = 70);
CREATE INDEX dead_error_counts_empty ON dead_error_counts (queue_id) WHERE messages = 0;
CREATE INDEX dead_hours_empty ON dead_hours (queue_id) WHERE messages = 0;
CREATE TABLE dead_errors (
    key     uuid PRIMARY KEY,
    pattern text NOT NULL
);

CREATE OR REPLACE FUNCTION count_dead_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    -- The letters of a queue that is being deleted are not counted any more.
    INSERT INTO dead_tallies (queue_id, group_id, error_key, hour, messages)
    SELECT c.queue_id, c.group_id, coalesce(c.error_key, '00000000-0000-0000-0000-000000000000'),
           CASE WHEN c.error_key IS NULL THEN '-infinity'
                ELSE date_bin('1 hour', c.failed_at, '2000-01-01T00:00:00Z') END AS hour,
           count(*) * CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END
    FROM changed c JOIN queues q ON q.id = c.queue_id
    GROUP BY c.queue_id, c.group_id, c.error_key, hour;
    RETURN NULL;
END $$;

-- How far the background work has come: letters of before this migration that were given their error_key, and the
-- slice that is recounted next.
CREATE TABLE dead_upkeep (
    grouped_to    bigint NOT NULL DEFAULT 0,   -- the id up to which letters have their key
    ungrouped_to  bigint NOT NULL,             -- the id from which on they are born with it
    at_queue_id   bigint NOT NULL DEFAULT 0,
    at_group_id   bigint NOT NULL DEFAULT 0,
    at_hour       timestamptz NOT NULL DEFAULT '-infinity',
    recounted_at  timestamptz                  -- when the last whole recount ended
);
INSERT INTO dead_upkeep (ungrouped_to) SELECT coalesce(max(id), 0) FROM dead_letters;

-- What recounts found wrong and put right. Empty, or something writes around the triggers.
CREATE TABLE dead_drifts (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id  bigint NOT NULL,
    group_id  bigint NOT NULL,
    hour      timestamptz NOT NULL,
    error_key uuid NOT NULL,
    counted   bigint NOT NULL,   -- rows there are
    tallied   bigint NOT NULL,   -- rows the count told of
    found_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Long work on dead letters: what to do with which letters, and how far it has come. A job is done chunk by chunk,
-- each a transaction that also moves the job on; whoever holds the lease does the next one, and when its process
-- dies, another goes on behind the last chunk.
CREATE TABLE jobs (
    id             uuid PRIMARY KEY,
    environment_id bigint NOT NULL REFERENCES environments,
    kind           text NOT NULL CHECK (kind IN ('requeue', 'purge')),
    state          text NOT NULL DEFAULT 'waiting'
                   CHECK (state IN ('waiting', 'running', 'done', 'cancelled', 'failed')),
    queue          text,
    group_name     text,
    partition      text,
    failed_from    timestamptz,
    failed_before  timestamptz NOT NULL,   -- not later than its start: what dies again is not taken again
    error          text,
    error_key      uuid,
    payload        text,
    letter_ids     bigint[],               -- these and no others
    run_queue      boolean NOT NULL DEFAULT false,   -- its letters are dead tasks in Redis
    task_ids       text[],                 -- these and no others of them
    at_task        text,                   -- the page of them that is next
    rate           int CHECK (rate > 0),   -- letters a second at most; NULL: as fast as leaves room for others
    total          bigint NOT NULL,
    total_is_exact boolean NOT NULL,
    looked_at      bigint NOT NULL DEFAULT 0,
    changed        bigint NOT NULL DEFAULT 0,
    at_queue_id    bigint NOT NULL DEFAULT 0,
    at_group_id    bigint NOT NULL DEFAULT 0,
    at_failed_at   timestamptz NOT NULL DEFAULT '-infinity',
    at_id          bigint NOT NULL DEFAULT 0,
    note           text,                   -- what it waits for, or why it failed
    owner          uuid,
    lease_until    timestamptz,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at     timestamptz,
    finished_at    timestamptz
) WITH (fillfactor = 50);
CREATE INDEX jobs_open ON jobs (created_at) WHERE state IN ('waiting', 'running');
CREATE INDEX jobs_recent ON jobs (environment_id, created_at DESC, id);
