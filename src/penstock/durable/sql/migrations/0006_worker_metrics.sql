-- What broker processes measure of themselves, a row per process and minute.
--
-- A process replaces its row of the running minute every few seconds, so writing one twice changes nothing. Only
-- sums, counts, minima and maxima are kept; whoever reads derives averages from them, so rows of any number of
-- processes and minutes can be added up. `covered_from` to `covered_to` is the time a row speaks for: a process that
-- started or was killed within a minute covers a part of it, and rates are over what is covered.
--
-- `started_at` is in the key because a container starts again under the same name with the same pid.

CREATE TABLE worker_metrics (
    bucket_at        timestamptz NOT NULL,   -- the minute
    hostname         text NOT NULL,
    worker           int NOT NULL,           -- which of the processes behind one port
    pid              int NOT NULL,
    started_at       timestamptz NOT NULL,
    covered_from     timestamptz NOT NULL,
    covered_to       timestamptz NOT NULL,

    -- Requests that were answered, and the messages they moved.
    push_requests         bigint NOT NULL,
    push_messages         bigint NOT NULL,
    pop_requests          bigint NOT NULL,
    pop_messages          bigint NOT NULL,
    ack_requests          bigint NOT NULL,
    ack_messages          bigint NOT NULL,
    transaction_requests  bigint NOT NULL,
    transaction_messages  bigint NOT NULL,   -- pushes and acks in transactions; they count above too
    database_errors       bigint NOT NULL,
    dead_letters          bigint NOT NULL,
    cpu_s                 double precision NOT NULL,

    -- How long popped messages had waited.
    lag_count        bigint NOT NULL,
    lag_sum_ms       bigint NOT NULL,
    lag_max_ms       bigint NOT NULL,
    lag_digest       bytea,

    -- How late the event loop came, ten times a second.
    late_count       bigint NOT NULL,
    late_sum_ms      double precision NOT NULL,
    late_max_ms      double precision NOT NULL,

    -- Looked at once a second.
    samples                 int NOT NULL,
    busy_connections_sum    bigint NOT NULL,
    busy_connections_min    bigint NOT NULL,
    busy_connections_max    bigint NOT NULL,
    free_connections_sum    bigint NOT NULL,
    free_connections_min    bigint NOT NULL,
    free_connections_max    bigint NOT NULL,
    connection_waiters_sum  bigint NOT NULL,
    connection_waiters_min  bigint NOT NULL,
    connection_waiters_max  bigint NOT NULL,
    pending_requests_sum    bigint NOT NULL,
    pending_requests_min    bigint NOT NULL,
    pending_requests_max    bigint NOT NULL,
    parked_pops_sum         bigint NOT NULL,
    parked_pops_min         bigint NOT NULL,
    parked_pops_max         bigint NOT NULL,
    spilled_sum             bigint NOT NULL,   -- operations that wait in lanes, in the whole cluster
    spilled_min             bigint NOT NULL,
    spilled_max             bigint NOT NULL,
    resident_bytes_sum      bigint NOT NULL,
    resident_bytes_min      bigint NOT NULL,
    resident_bytes_max      bigint NOT NULL,
    pending                 jsonb NOT NULL,    -- operation: {"sum", "max"} of requests that wait for their batch
    PRIMARY KEY (bucket_at, hostname, worker, pid, started_at)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);   -- the newest rows are replaced again and again

CREATE TABLE queue_lag_metrics (
    bucket_at      timestamptz NOT NULL,
    hostname       text NOT NULL,
    worker         int NOT NULL,
    pid            int NOT NULL,
    started_at     timestamptz NOT NULL,
    organization   text NOT NULL,
    project        text NOT NULL,
    environment    text NOT NULL,
    queue          text NOT NULL,
    group_name     text NOT NULL,   -- empty: the queue as a whole
    push_messages  bigint NOT NULL,
    pop_messages   bigint NOT NULL,
    completed      bigint NOT NULL,
    failed         bigint NOT NULL,
    dead_letters   bigint NOT NULL,
    expired        bigint NOT NULL,
    lag_count      bigint NOT NULL,
    lag_sum_ms     bigint NOT NULL,
    lag_max_ms     bigint NOT NULL,
    lag_digest     bytea,
    PRIMARY KEY (bucket_at, hostname, worker, pid, started_at, organization, project, environment, queue, group_name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);   -- the newest rows are replaced again and again
CREATE INDEX queue_lag_metrics_by_queue
    ON queue_lag_metrics (organization, project, environment, queue, bucket_at);

-- What comparisons of totals and positions with the log have found.
CREATE TABLE reconciliations (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    began_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at    timestamptz,                      -- NULL: under way
    at_queue_id bigint NOT NULL DEFAULT 0,        -- how far it has come
    queues      bigint NOT NULL DEFAULT 0,
    partitions  bigint NOT NULL DEFAULT 0,
    positions   bigint NOT NULL DEFAULT 0,
    drift       bigint NOT NULL DEFAULT 0,        -- messages by which totals were wrong
    orphans     bigint NOT NULL DEFAULT 0,        -- rows without an owner that were removed
    findings    jsonb NOT NULL DEFAULT '[]'
);
