-- complete_plain_v1: complete_v1 for the plainest acks: a lease of one message at the cursor, of a position where
-- nothing was finished out of order, given back or failed. Nearly all acks of consumers that take one message at
-- a time are that, and most of the cost of complete_v1 is in setting up what they do not need.
-- Returns, in one row, the numbers of the items that were settled and what there is to tell of each. The others,
-- whatever is the matter with them, are left to complete_v1.
-- Locks: position rows by partition and group; then tallies by queue and group.
CREATE OR REPLACE FUNCTION complete_plain_v1(
    p_partition_ids bigint[], p_group_ids bigint[], p_lease_ids uuid[], p_transaction_ids text[],
    p_now timestamptz,
    OUT items int[], OUT queue_ids bigint[], OUT queues text[], OUT partitions text[], OUT group_names text[],
    OUT run_ms bigint[]
)
LANGUAGE plpgsql AS $$
DECLARE
    v_now   timestamptz;
    v_plain record;
BEGIN
    SELECT array_agg(k.item) AS items, array_agg(k.place) AS places, array_agg(k.partition_id) AS partition_ids,
           array_agg(k.group_id) AS group_ids, array_agg(k.cursor) AS cursors,
           array_agg(k.leased_at) AS leased_at, array_agg(k.until) AS until
    INTO v_plain
    FROM (
        SELECT k.item, p.ctid AS place, p.partition_id, p.group_id, p.cursor, p.leased_at,
               CASE WHEN p.lease_id = k.lease_id AND p.lease_from = p.cursor AND p.lease_to = p.cursor + 1
                         AND isempty(p.done) AND isempty(p.returned) AND p.attempts = '{}'
                    THEN p.lease_expires_at END AS until
        FROM unnest(p_partition_ids, p_group_ids, p_lease_ids)
             WITH ORDINALITY AS k (partition_id, group_id, lease_id, item)
        JOIN positions p ON p.partition_id = k.partition_id AND p.group_id = k.group_id
        ORDER BY p.partition_id, p.group_id FOR UPDATE OF p
    ) k;
    v_now := coalesce(p_now, clock_timestamp());
    WITH plain AS MATERIALIZED (
        SELECT k.item, k.place, k.group_id, k.cursor + 1 AS head, t.queue_id, q.name AS queue,
               t.name AS partition, g.name AS group_name,
               (extract(epoch FROM v_now - k.leased_at) * 1000)::bigint AS run_ms,
               coalesce(created_at_v1(k.partition_id, k.cursor + 1) + q.delay_ms * interval '1 millisecond',
                        v_now) AS ready_at
        FROM unnest(v_plain.items, v_plain.places, v_plain.partition_ids, v_plain.group_ids, v_plain.cursors,
                    v_plain.leased_at, v_plain.until)
             AS k (item, place, partition_id, group_id, cursor, leased_at, until)
        JOIN partitions t ON t.id = k.partition_id
        JOIN queues q ON q.id = t.queue_id
        JOIN groups g ON g.id = k.group_id
        WHERE k.until > v_now AND p_transaction_ids[k.item] = (
            SELECT coalesce(l.transaction_ids[k.cursor - l.first_offset + 1],
                            l.message_ids[k.cursor - l.first_offset + 1]::text)
            FROM log l WHERE l.partition_id = k.partition_id AND l.first_offset <= k.cursor
            ORDER BY l.first_offset DESC LIMIT 1)
    ), updated AS (
        UPDATE positions p SET cursor = s.head, lease_id = NULL, ready_at = s.ready_at
        -- By its place: locked here, a row cannot move.
        FROM plain s WHERE p.ctid = s.place
    ), counted AS (
        INSERT INTO tallies AS y (queue_id, group_id, slot, messages)
        SELECT s.queue_id, s.group_id, slot_v1(), count(*) FROM plain s
        GROUP BY s.queue_id, s.group_id ORDER BY s.queue_id, s.group_id
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE SET messages = y.messages + excluded.messages
    )
    SELECT array_agg(s.item), array_agg(s.queue_id), array_agg(s.queue), array_agg(s.partition),
           array_agg(s.group_name), array_agg(s.run_ms)
    INTO items, queue_ids, queues, partitions, group_names, run_ms
    FROM plain s;
END $$;
