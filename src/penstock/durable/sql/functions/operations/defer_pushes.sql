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
    v_now    timestamptz;
    v_places int[];
BEGIN
    PERFORM 1 FROM partitions WHERE id = ANY (p_partition_ids) ORDER BY id FOR NO KEY UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    WITH requested AS MATERIALIZED (
        SELECT o.*, sum(o.length) OVER (ORDER BY o.n) AS hi,
               row_number() OVER (PARTITION BY o.partition_id ORDER BY o.n) AS nth
        FROM unnest(p_ids, p_partition_ids, p_lengths) WITH ORDINALITY AS o (id, partition_id, length, n)
    ), partition_rows AS (
        UPDATE partitions p SET deferred_pushes = p.deferred_pushes + c.operations
        FROM (SELECT r.partition_id, count(*) AS operations FROM requested r GROUP BY r.partition_id) c
        WHERE p.id = c.partition_id
        RETURNING p.id, p.queue_id, p.deferred_pushes - c.operations AS already_waiting
    ), operation_rows AS (
        INSERT INTO operations (id, kind, queue_id, partition_id, reason, priority, accepted_at, items, bytes,
                                transaction_ids, message_ids, trace_ids, payloads)
        SELECT r.id, 'push', c.queue_id, r.partition_id, p_reason, p_priority, v_now, r.length,
               (SELECT sum(octet_length(p)) FROM unnest(p_payloads[r.hi - r.length + 1:r.hi]) p),
               p_transaction_ids[r.hi - r.length + 1:r.hi], p_message_ids[r.hi - r.length + 1:r.hi],
               p_trace_ids[r.hi - r.length + 1:r.hi], p_payloads[r.hi - r.length + 1:r.hi]
        FROM requested r JOIN partition_rows c ON c.id = r.partition_id ORDER BY r.n
    ), lane_rows AS (
        INSERT INTO lanes (partition_id, kind, due_at, not_before)
        SELECT c.id, 'push', v_now + p_priority * interval '1 second', v_now FROM partition_rows c
        ON CONFLICT DO NOTHING
    ), tally_rows AS (
        INSERT INTO operation_tallies AS y (kind, slot, accepted)
        SELECT 'push', tally_slot_v1(), count(*) FROM requested r JOIN partition_rows c ON c.id = r.partition_id
        HAVING count(*) > 0
        ON CONFLICT (kind, slot) DO UPDATE SET accepted = y.accepted + excluded.accepted
    )
    SELECT array_agg((c.already_waiting + r.nth)::int ORDER BY r.n) INTO v_places
    FROM requested r LEFT JOIN partition_rows c ON c.id = r.partition_id;
    RETURN v_places;
END $$;
