-- Operations: pushes and acks that were accepted and are carried out later, because the database was busy or
-- away, or because others of their lane are waiting.
--
-- A lane is a partition's pushes, or its acks. Operations of a lane are carried out in the order of `place`,
-- which is given out under the partition's row lock; a partition whose `spilled` is not 0 takes no push that
-- does not join its lane. So order is the same whatever way a message took.
--
-- A drain holds a lane by a row lock for one transaction, in which operations take effect and are marked as
-- done. So an operation takes effect once, and a drain that dies leaves nothing to be reclaimed.

ALTER TABLE partitions
    ADD COLUMN spilled      int NOT NULL DEFAULT 0,    -- operations waiting in its lane of pushes
    ADD COLUMN spilled_acks int NOT NULL DEFAULT 0;    -- and in its lane of acks

CREATE TABLE operations (
    id              uuid PRIMARY KEY,
    place           bigint GENERATED ALWAYS AS IDENTITY,
    kind            text NOT NULL CHECK (kind IN ('push', 'ack')),
    queue_id        bigint NOT NULL REFERENCES queues ON DELETE CASCADE,
    partition_id    bigint NOT NULL,
    reason          text NOT NULL,                     -- maintaining_order, system_busy or database_down
    priority        smallint NOT NULL,                 -- 1 is the most urgent
    status          text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'completed', 'failed')),
    accepted_at     timestamptz NOT NULL,
    finished_at     timestamptz,
    attempts        int NOT NULL DEFAULT 0,            -- failed ones
    error           text,
    holds           boolean NOT NULL DEFAULT false,    -- failed, and its lane waits for an operator
    items           int NOT NULL,                      -- messages or acks; the arrays have as many elements
    bytes           bigint NOT NULL DEFAULT 0,         -- of its payloads
    transaction_ids text[],
    message_ids     uuid[],                            -- of a push
    trace_ids       uuid[],
    payloads        bytea[],                           -- NULL once it is done
    group_ids       bigint[],                          -- of an ack
    lease_ids       uuid[],
    lease_ends      timestamptz[],                     -- when they would have run out
    statuses        text[],
    errors          text[],
    result          jsonb
);
ALTER TABLE operations ALTER COLUMN payloads SET STORAGE EXTERNAL, ALTER COLUMN payloads SET STATISTICS 0,
    ALTER COLUMN message_ids SET STATISTICS 0, ALTER COLUMN transaction_ids SET STATISTICS 0;
CREATE INDEX operations_waiting ON operations (partition_id, kind, place) WHERE status = 'pending';
CREATE INDEX operations_failed ON operations (id) WHERE status = 'failed';
CREATE INDEX operations_finished ON operations (finished_at) WHERE status = 'completed';

-- Lanes with something waiting, the most urgent first: `due` is when the oldest was accepted plus a second per
-- step of priority, so an urgent one goes first and a patient one is never passed over for good.
CREATE TABLE lanes (
    partition_id bigint NOT NULL,
    kind         text NOT NULL,
    due          timestamptz NOT NULL,
    not_before   timestamptz NOT NULL,                 -- later after a failure; infinity: held for an operator
    PRIMARY KEY (partition_id, kind)
) WITH (fillfactor = 50);
CREATE INDEX lanes_due ON lanes (kind, due);

-- How many operations were accepted and how many are off the lanes, so that the depth is a subtraction.
CREATE TABLE operation_tallies (
    kind     text NOT NULL,
    slot     smallint NOT NULL,
    accepted bigint NOT NULL DEFAULT 0,
    finished bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, slot)
) WITH (fillfactor = 50);

-- How far each broker's journal was taken over into operations: in the same transaction, so none comes twice.
CREATE TABLE journals (
    id       uuid PRIMARY KEY,
    position bigint NOT NULL,
    taken_at timestamptz NOT NULL DEFAULT now()
);
