-- add_to_lanes_v1: record that operations join the lanes of their partitions, and create the lanes that do not exist.
-- p_partition_ids has the partition of each operation, in the order in which they join; NULL for an operation that does
-- not join. Runs under the partitions' row locks.
-- Returns: per operation its queue, and its place in its lane, counted from 1; both are NULL if the operation does not
-- join or its partition does not exist.
CREATE OR REPLACE FUNCTION add_to_lanes_v1(
    p_kind text, p_partition_ids bigint[], p_priority int, p_now timestamptz, OUT queue_ids bigint[], OUT places int[]
)
LANGUAGE plpgsql AS $$   -- not sql: its plan is cached
BEGIN
    WITH requested AS MATERIALIZED (
        SELECT o.*, row_number() OVER (PARTITION BY o.partition_id ORDER BY o.n) AS nth
        FROM unnest(p_partition_ids) WITH ORDINALITY AS o (partition_id, n)
    ), partition_rows AS (
        UPDATE partitions p SET
               deferred_pushes = p.deferred_pushes + CASE WHEN p_kind = 'push' THEN c.operations ELSE 0 END,
               deferred_acks = p.deferred_acks + CASE WHEN p_kind = 'ack' THEN c.operations ELSE 0 END
        FROM (SELECT r.partition_id, count(*)::int AS operations FROM requested r GROUP BY r.partition_id) c
        WHERE p.id = c.partition_id
        RETURNING p.id, p.queue_id, c.operations,
                  CASE WHEN p_kind = 'push' THEN p.deferred_pushes ELSE p.deferred_acks END - c.operations
                  AS already_waiting
    ), lane_rows AS (
        INSERT INTO lanes (partition_id, kind, due_at, not_before)
        SELECT c.id, p_kind, p_now + p_priority * interval '1 second', p_now FROM partition_rows c
        ON CONFLICT DO NOTHING
    ), tally_rows AS (
        INSERT INTO operation_tallies AS y (kind, slot, accepted)
        SELECT p_kind, tally_slot_v1(), sum(c.operations) FROM partition_rows c HAVING count(*) > 0
        ON CONFLICT (kind, slot) DO UPDATE SET accepted = y.accepted + excluded.accepted
    )
    SELECT array_agg(c.queue_id ORDER BY r.n), array_agg((c.already_waiting + r.nth)::int ORDER BY r.n)
    INTO queue_ids, places
    FROM requested r LEFT JOIN partition_rows c ON c.id = r.partition_id;
END $$;
