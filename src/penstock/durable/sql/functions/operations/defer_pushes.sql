-- defer_pushes_v1: accept pushes as operations at the end of their partitions' lanes.
-- One operation per id; the items of all operations are one flat list, as in push_v1. A partition id may occur several
-- times; its operations keep that order.
-- Returns: each operation's place in its lane, counted from 1; NULL if the partition does not exist, and then the
-- operation was not accepted.
-- Locks: partition rows by id.
CREATE OR REPLACE FUNCTION defer_pushes_v1(
    p_ids uuid[], p_partition_ids bigint[], p_reason text, p_priority int, p_lengths int[], p_message_ids uuid[],
    p_transaction_ids text[], p_trace_ids uuid[], p_payloads bytea[], p_now timestamptz DEFAULT NULL
) RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    v_now  timestamptz;
    v_lane record;   -- the queue and place of each operation
BEGIN
    PERFORM 1 FROM partitions WHERE id = ANY (p_partition_ids) ORDER BY id FOR NO KEY UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    SELECT * INTO v_lane FROM add_to_lanes_v1('push', p_partition_ids, p_priority, v_now);
    INSERT INTO operations (id, kind, queue_id, partition_id, reason, priority, accepted_at, items, bytes,
                            transaction_ids, message_ids, trace_ids, payloads)
    SELECT r.id, 'push', r.queue_id, r.partition_id, p_reason, p_priority, v_now, r.length,
           (SELECT sum(octet_length(p)) FROM unnest(p_payloads[r.hi - r.length + 1:r.hi]) p),
           p_transaction_ids[r.hi - r.length + 1:r.hi], p_message_ids[r.hi - r.length + 1:r.hi],
           p_trace_ids[r.hi - r.length + 1:r.hi], p_payloads[r.hi - r.length + 1:r.hi]
    FROM (SELECT o.*, sum(o.length) OVER (ORDER BY o.n) AS hi
          FROM unnest(p_ids, p_partition_ids, p_lengths, v_lane.queue_ids) WITH ORDINALITY
               AS o (id, partition_id, length, queue_id, n)) r
    WHERE r.queue_id IS NOT NULL ORDER BY r.n;
    RETURN v_lane.places;
END $$;
