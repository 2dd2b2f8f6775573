-- What happened to single messages besides their push: failed deliveries, lost leases, requeued dead letters. Completed
-- deliveries are not recorded: they are by far the most, and the cursor says that they happened.
-- began_at: when the delivery started, or, of a requeued dead letter, when the message died.
-- There is no reference to partitions: it would lock the row that pushes fight for. prune_traces_v1 deletes old rows.
CREATE TABLE message_events (
    partition_id   bigint NOT NULL,
    first_offset   bigint NOT NULL,
    group_id       bigint NOT NULL,
    event          text NOT NULL CHECK (event IN ('failed', 'lease_lost', 'requeued')),
    lease_id       uuid,
    offsets        int8multirange NOT NULL,   -- the messages; first_offset is the lowest
    began_at       timestamptz NOT NULL,
    happened_at    timestamptz NOT NULL,
    attempts       int,
    error          text,
    new_message_id uuid,                      -- of a requeued dead letter
    UNIQUE (partition_id, first_offset, group_id, event, lease_id)
);
CREATE INDEX message_events_by_age ON message_events (happened_at);
