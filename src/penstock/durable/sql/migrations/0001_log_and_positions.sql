-- The durable queue.
--
-- A queue has partitions; a partition is an append-only log with a gap-free offset. What one push batch
-- writes to one partition is one row of `log`, a segment: arrays of equal length, first_offset to
-- last_offset. Offsets are given out under the partition's row lock, so commit order, offset order and
-- push order are the same, and depth is subtraction.
--
-- A consumer group has one position per partition: its cursor (everything below is finished), the lease
-- in force, what was finished out of order, and `ready_at`, the one moment that decides when the
-- position may be popped next: the head message's time while waiting, the lease's end while leased, the
-- retry's time after a failure, NULL when there is nothing to take. Nobody sweeps: an expired lease is
-- simply a position whose ready_at has passed.
--
-- `log` and `message_keys` are kept in chunks that are dropped whole.

CREATE TABLE environments (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization text NOT NULL,
    project      text NOT NULL,
    name         text NOT NULL,
    UNIQUE (organization, project, name)
);

CREATE TABLE queues (
    id                     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    environment_id         bigint NOT NULL REFERENCES environments,
    name                   text NOT NULL,
    namespace              text NOT NULL DEFAULT '',
    task                   text NOT NULL DEFAULT '',
    lease_ms               bigint,                        -- NULL: the broker's default
    retry_limit            int NOT NULL DEFAULT 3,
    retry_delay_ms         bigint NOT NULL DEFAULT 0,
    dead_after_limit       boolean NOT NULL DEFAULT true, -- false: retry for ever
    keep_dead              boolean NOT NULL DEFAULT true, -- false: what dies is discarded
    priority               int NOT NULL DEFAULT 0,
    delay_ms               bigint NOT NULL DEFAULT 0,     -- a message is held back this long
    window_ms              bigint NOT NULL DEFAULT 0,     -- a partition is held back this long after a push
    ttl_ms                 bigint NOT NULL DEFAULT 0,     -- 0: messages do not expire
    max_wait_ms            bigint NOT NULL DEFAULT 0,     -- likewise; the smaller of the two counts
    max_size               bigint NOT NULL DEFAULT 0,     -- 0: no limit on waiting messages
    max_partitions         int NOT NULL DEFAULT 0,        -- 0: no limit
    retention_enabled      boolean NOT NULL DEFAULT false,
    retention_ms           bigint NOT NULL DEFAULT 0,     -- 0: kept, consumed or not
    completed_retention_ms bigint NOT NULL DEFAULT 0,     -- 0: kept after every group has finished them
    encrypted              boolean NOT NULL DEFAULT false,
    created_at             timestamptz NOT NULL DEFAULT now(),
    UNIQUE (environment_id, name)
);

CREATE TABLE partitions (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id     bigint NOT NULL REFERENCES queues ON DELETE CASCADE,
    name         text NOT NULL,
    low_offset   bigint NOT NULL DEFAULT 0,   -- the first offset still kept
    next_offset  bigint NOT NULL DEFAULT 0,   -- the offset the next message gets
    pushed_at    timestamptz,                 -- when the last one came
    created_at   timestamptz NOT NULL DEFAULT now(),
    UNIQUE (queue_id, name)
) WITH (fillfactor = 50);

CREATE TABLE groups (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id     bigint NOT NULL REFERENCES queues ON DELETE CASCADE,
    name         text NOT NULL,
    subscription text NOT NULL DEFAULT 'all',   -- where it started: all, new, or a moment
    created_at   timestamptz NOT NULL DEFAULT now(),
    UNIQUE (queue_id, name)
);

CREATE TABLE positions (
    partition_id     bigint NOT NULL REFERENCES partitions ON DELETE CASCADE,
    group_id         bigint NOT NULL REFERENCES groups ON DELETE CASCADE,
    cursor           bigint NOT NULL DEFAULT 0,
    ready_at         timestamptz,
    lease_id         uuid,
    leased_at        timestamptz,
    lease_expires_at timestamptz,
    lease_from       bigint,
    lease_to         bigint,                               -- exclusive
    done             int8multirange NOT NULL DEFAULT '{}', -- finished beyond the cursor
    returned         int8multirange NOT NULL DEFAULT '{}', -- given back within the lease in force
    attempts         jsonb NOT NULL DEFAULT '{}',          -- failed attempts by offset
    careful_until    bigint NOT NULL DEFAULT 0,            -- below this, one message per lease
    PRIMARY KEY (partition_id, group_id)
) WITH (fillfactor = 50);

CREATE INDEX positions_ready ON positions (group_id, ready_at) WHERE ready_at IS NOT NULL;

CREATE TABLE chunks (
    id         int PRIMARY KEY,
    opened_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE log (
    chunk           int NOT NULL,
    partition_id    bigint NOT NULL,
    first_offset    bigint NOT NULL,
    last_offset     bigint NOT NULL,
    created_at      timestamptz NOT NULL,
    message_ids     uuid[] NOT NULL,
    transaction_ids text[],   -- NULL: each message's transaction id is its message id
    trace_ids       uuid[],   -- NULL: no message of the segment has one
    payloads        bytea[] NOT NULL
) PARTITION BY LIST (chunk);

-- Only transaction ids that clients chose are kept here: an id made by the broker cannot repeat.
CREATE TABLE message_keys (
    chunk           int NOT NULL,
    partition_id    bigint NOT NULL,
    key             uuid NOT NULL,   -- md5 of the transaction id
    message_offset  bigint NOT NULL
) PARTITION BY LIST (chunk);

-- Compressing a segment costs PostgreSQL more than all else it does with it, and consumers read it soon.
ALTER TABLE log ALTER COLUMN payloads SET STORAGE EXTERNAL, ALTER COLUMN message_ids SET STORAGE EXTERNAL,
                ALTER COLUMN transaction_ids SET STORAGE EXTERNAL, ALTER COLUMN trace_ids SET STORAGE EXTERNAL;

INSERT INTO chunks (id) VALUES (1);
-- A segment of up to 8 kB stays in one place.
CREATE TABLE log_1 PARTITION OF log FOR VALUES IN (1) WITH (toast_tuple_target = 8160);
CREATE TABLE message_keys_1 PARTITION OF message_keys FOR VALUES IN (1);
CREATE INDEX log_segments ON log (partition_id, first_offset);
CREATE INDEX message_keys_lookup ON message_keys (partition_id, key);

-- Running totals: pushed per queue (group_id 0), dropped by retention (group_id -1) and finished per group.
-- One row per slot, and a backend always writes the same slot, so writers hardly ever wait for each other;
-- readers add the slots up.
CREATE TABLE tallies (
    queue_id  bigint NOT NULL REFERENCES queues ON DELETE CASCADE,
    group_id  bigint NOT NULL,
    slot      smallint NOT NULL,
    messages  bigint NOT NULL,
    PRIMARY KEY (queue_id, group_id, slot)
) WITH (fillfactor = 50);

CREATE TABLE dead_letters (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id       bigint NOT NULL REFERENCES queues ON DELETE CASCADE,
    partition_id   bigint NOT NULL,
    group_id       bigint NOT NULL,
    message_offset bigint NOT NULL,
    message_id     uuid NOT NULL,
    transaction_id text NOT NULL,
    trace_id       uuid,
    payload        bytea NOT NULL,
    error          text,
    attempts       int NOT NULL,
    created_at     timestamptz NOT NULL,
    failed_at      timestamptz NOT NULL,
    UNIQUE (partition_id, group_id, message_offset)
);
CREATE INDEX dead_letters_browse ON dead_letters (queue_id, group_id, failed_at);
