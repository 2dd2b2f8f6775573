-- How the log is stored and let go of: the life of a chunk, and storage parameters of the tables that hurt
-- first when dead rows stay.

-- Where each chunk stands:
--   spare     its tables are attached; it is announced once those in `waits_for` have ended
--   announced every session is told to plan anew; it is opened once those in `waits_for` have ended
--   open      the newest row of `chunks`: pushes go here
--   closed    no push will come any more, once those in `waits_for` have ended
--   counted   `spans` says what it holds
--   emptying  what is still kept moves to the next chunk, block by block
--   doomed    a whole pass found nothing that is kept; it is dropped once those in `waits_for` have ended
-- `waits_for` are virtual transactions, as pg_locks names them; NULL: not looked up yet.
CREATE TABLE chunk_stages (
    chunk      int PRIMARY KEY,
    stage      text NOT NULL
               CHECK (stage IN ('spare', 'announced', 'open', 'closed', 'counted', 'emptying', 'doomed')),
    waits_for  text[],
    part       text NOT NULL DEFAULT 'log' CHECK (part IN ('log', 'message_keys')),
    next_block bigint NOT NULL DEFAULT 0,        -- where counting or emptying goes on, in `part`
    moved      bigint NOT NULL DEFAULT 0,        -- rows moved by the pass under way
    has_moved  boolean NOT NULL DEFAULT false,   -- any pass moved something
    changed_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO chunk_stages (chunk, stage) SELECT id, 'open' FROM chunks;

-- What a closed chunk holds of each partition. Within a partition chunks follow each other like offsets do,
-- and what is moved goes to the next chunk; so it is one range.
CREATE TABLE spans (
    chunk        int NOT NULL,
    partition_id bigint NOT NULL,
    first_offset bigint NOT NULL,
    last_offset  bigint NOT NULL,
    bytes        bigint NOT NULL,
    PRIMARY KEY (chunk, partition_id)
);

-- Which transaction id was next at which moment: tells since when a transaction id is held. One row per round
-- of maintenance.
CREATE TABLE xid_clock (
    at       timestamptz PRIMARY KEY,
    next_xid xid8 NOT NULL
);

-- Small tables in which every row changes all the time: clean often, never wait in between, and never take the
-- lock that giving back empty pages at the end needs.
ALTER TABLE positions SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 1000, vacuum_truncate = off);
ALTER TABLE partitions SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 1000, vacuum_truncate = off);
ALTER TABLE tallies SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 1000, vacuum_truncate = off);

-- Later chunks are made with these by prepare_chunk_v1. Rows are only added and go with their table, so there
-- is nothing to vacuum; and statistics about the inside of arrays cost far more than a plan by offset needs.
ALTER TABLE log_1 SET (autovacuum_vacuum_insert_threshold = -1, toast.autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE message_keys_1 SET (autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE log_1
    ALTER COLUMN message_ids SET STATISTICS 0, ALTER COLUMN transaction_ids SET STATISTICS 0,
    ALTER COLUMN trace_ids SET STATISTICS 0, ALTER COLUMN payloads SET STATISTICS 0;
ALTER TABLE log
    ALTER COLUMN message_ids SET STATISTICS 0, ALTER COLUMN transaction_ids SET STATISTICS 0,
    ALTER COLUMN trace_ids SET STATISTICS 0, ALTER COLUMN payloads SET STATISTICS 0;
