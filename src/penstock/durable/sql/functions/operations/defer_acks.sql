-- defer_acks_v1: accept acks as operations at the end of their partitions' lanes.
-- The acks arrived in time: each lease is extended by p_hold_ms, so that no other consumer gets its messages before the
-- operation runs. One operation per id with its acks, all of one partition; the acks of all operations are one flat
-- list. An ack whose lease is not in force is refused.
-- Returns: `places` has each operation's place in its lane, counted from 1 (NULL if none of its acks was accepted).
-- `refused_items` are the acks that were refused (1-based).
-- Locks: partition rows by id, then positions by partition and group.
CREATE OR REPLACE FUNCTION defer_acks_v1(
    p_ids uuid[], p_partition_ids bigint[], p_reason text, p_priority int, p_lengths int[], p_group_ids bigint[],
    p_lease_ids uuid[], p_transaction_ids text[], p_statuses text[], p_errors text[], p_hold_ms bigint,
    p_now timestamptz DEFAULT NULL, OUT places int[], OUT refused_items int[]
)
LANGUAGE plpgsql AS $$
DECLARE
    v_now        timestamptz;
    v_lease_ends timestamptz[];   -- of each ack; NULL if it is refused
    v_lane       record;          -- the queue and place of each operation
BEGIN
    PERFORM 1 FROM partitions WHERE id = ANY (p_partition_ids) ORDER BY id FOR NO KEY UPDATE;
    PERFORM 1 FROM positions p WHERE p.partition_id = ANY (p_partition_ids) AND p.group_id = ANY (p_group_ids)
    ORDER BY p.partition_id, p.group_id FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());

    WITH requested_acks AS (
        SELECT o.partition_id, i.item
        FROM (SELECT o.*, sum(o.length) OVER (ORDER BY o.n) AS hi
              FROM unnest(p_partition_ids, p_lengths) WITH ORDINALITY AS o (partition_id, length, n)) o
        CROSS JOIN LATERAL generate_series(o.hi - o.length + 1, o.hi) AS i (item)
    )
    SELECT array_agg(p.lease_expires_at ORDER BY g.item),
           array_agg(g.item::int ORDER BY g.item) FILTER (WHERE p.partition_id IS NULL)
    INTO v_lease_ends, refused_items
    FROM requested_acks g
    LEFT JOIN positions p ON p.partition_id = g.partition_id AND p.group_id = p_group_ids[g.item]
                         AND p.lease_id = p_lease_ids[g.item] AND p.lease_expires_at > v_now;

    SELECT l.* INTO v_lane
    FROM add_to_lanes_v1('ack', array(
        SELECT CASE WHEN EXISTS (SELECT 1 FROM unnest(v_lease_ends[o.hi - o.length + 1:o.hi]) e WHERE e IS NOT NULL)
                    THEN o.partition_id END
        FROM (SELECT o.*, sum(o.length) OVER (ORDER BY o.n) AS hi
              FROM unnest(p_partition_ids, p_lengths) WITH ORDINALITY AS o (partition_id, length, n)) o
        ORDER BY o.n), p_priority, v_now) l;
    WITH deferred AS MATERIALIZED (
        SELECT o.id, o.partition_id, o.queue_id, o.n, array_agg(i.item ORDER BY i.item) AS items
        FROM (SELECT o.*, sum(o.length) OVER (ORDER BY o.n) AS hi
              FROM unnest(p_ids, p_partition_ids, p_lengths, v_lane.queue_ids) WITH ORDINALITY
                   AS o (id, partition_id, length, queue_id, n)) o
        CROSS JOIN LATERAL generate_series(o.hi - o.length + 1, o.hi) AS i (item)
        WHERE v_lease_ends[i.item] IS NOT NULL
        GROUP BY o.id, o.partition_id, o.queue_id, o.n
    ), extended AS (
        UPDATE positions p SET
               lease_expires_at = greatest(p.lease_expires_at, v_now + p_hold_ms * interval '1 millisecond'),
               ready_at = greatest(p.lease_expires_at, v_now + p_hold_ms * interval '1 millisecond')
        FROM (SELECT DISTINCT d.partition_id, p_group_ids[i] AS group_id FROM deferred d, unnest(d.items) i) e
        WHERE p.partition_id = e.partition_id AND p.group_id = e.group_id
    )
    INSERT INTO operations (id, kind, queue_id, partition_id, reason, priority, accepted_at, items, group_ids,
                            lease_ids, lease_ends, transaction_ids, statuses, errors)
    SELECT d.id, 'ack', d.queue_id, d.partition_id, p_reason, p_priority, v_now, cardinality(d.items),
           array(SELECT p_group_ids[i] FROM unnest(d.items) i),
           array(SELECT p_lease_ids[i] FROM unnest(d.items) i),
           array(SELECT v_lease_ends[i] FROM unnest(d.items) i),
           array(SELECT p_transaction_ids[i] FROM unnest(d.items) i),
           array(SELECT p_statuses[i] FROM unnest(d.items) i), array(SELECT p_errors[i] FROM unnest(d.items) i)
    FROM deferred d ORDER BY d.n;
    places := v_lane.places;
END $$;
