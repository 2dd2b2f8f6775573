-- defer_pushes_v1: accept pushes as operations at the end of their partitions' lanes.
-- One operation per id, its items flat as in push_v1; a partition may be named several times and keeps that order.
-- Returns per operation its place in the lane from 1; NULL where the partition is gone, and then it was not accepted.
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
    WITH given AS MATERIALIZED (
        SELECT o.*, sum(o.length) OVER (ORDER BY o.n) AS hi,
               row_number() OVER (PARTITION BY o.partition_id ORDER BY o.n) AS nth
        FROM unnest(p_ids, p_partition_ids, p_lengths) WITH ORDINALITY AS o (id, partition_id, length, n)
    ), counted AS (
        UPDATE partitions p SET deferred_pushes = p.deferred_pushes + c.operations
        FROM (SELECT g.partition_id, count(*) AS operations FROM given g GROUP BY g.partition_id) c
        WHERE p.id = c.partition_id
        RETURNING p.id, p.queue_id, p.deferred_pushes - c.operations AS before
    ), accepted AS (
        INSERT INTO operations (id, kind, queue_id, partition_id, reason, priority, accepted_at, items, bytes,
                                transaction_ids, message_ids, trace_ids, payloads)
        SELECT g.id, 'push', c.queue_id, g.partition_id, p_reason, p_priority, v_now, g.length,
               (SELECT sum(octet_length(p)) FROM unnest(p_payloads[g.hi - g.length + 1:g.hi]) p),
               p_transaction_ids[g.hi - g.length + 1:g.hi], p_message_ids[g.hi - g.length + 1:g.hi],
               p_trace_ids[g.hi - g.length + 1:g.hi], p_payloads[g.hi - g.length + 1:g.hi]
        FROM given g JOIN counted c ON c.id = g.partition_id ORDER BY g.n
    ), laned AS (
        INSERT INTO lanes (partition_id, kind, due, not_before)
        SELECT c.id, 'push', v_now + p_priority * interval '1 second', v_now FROM counted c
        ON CONFLICT DO NOTHING
    ), tallied AS (
        INSERT INTO operation_tallies AS y (kind, slot, accepted)
        SELECT 'push', tally_slot_v1(), count(*) FROM given g JOIN counted c ON c.id = g.partition_id HAVING count(*) > 0
        ON CONFLICT (kind, slot) DO UPDATE SET accepted = y.accepted + excluded.accepted
    )
    SELECT array_agg((c.before + g.nth)::int ORDER BY g.n) INTO v_places
    FROM given g LEFT JOIN counted c ON c.id = g.partition_id;
    RETURN v_places;
END $$;
