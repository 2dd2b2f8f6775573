-- defer_acks_v1: accept acks as operations of their partitions' lanes. They arrived in time: the lease of each is
-- held for p_hold_ms, so that nobody takes over before it is carried out.
-- One operation per id, its acks flat, all of one partition. An ack whose lease is not in force is refused.
-- Returns per operation its place in the lane from 1 (NULL if none of its acks was accepted), and the acks that were
-- refused, from 1.
-- Locks: partition rows by id, then positions by partition and group.
CREATE OR REPLACE FUNCTION defer_acks_v1(
    p_ids uuid[], p_partition_ids bigint[], p_reason text, p_priority int, p_lengths int[], p_group_ids bigint[],
    p_lease_ids uuid[], p_transaction_ids text[], p_statuses text[], p_errors text[], p_hold_ms bigint,
    p_now timestamptz DEFAULT NULL, OUT places int[], OUT refused_items int[]
)
LANGUAGE plpgsql AS $$
DECLARE
    v_now  timestamptz;
    v_ends timestamptz[];
BEGIN
    PERFORM 1 FROM partitions WHERE id = ANY (p_partition_ids) ORDER BY id FOR NO KEY UPDATE;
    PERFORM 1 FROM positions p WHERE p.partition_id = ANY (p_partition_ids) AND p.group_id = ANY (p_group_ids)
    ORDER BY p.partition_id, p.group_id FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());

    WITH given AS (
        SELECT o.partition_id, i.item
        FROM (SELECT o.*, sum(o.length) OVER (ORDER BY o.n) AS hi
              FROM unnest(p_partition_ids, p_lengths) WITH ORDINALITY AS o (partition_id, length, n)) o
        CROSS JOIN LATERAL generate_series(o.hi - o.length + 1, o.hi) AS i (item)
    )
    SELECT array_agg(p.lease_expires_at ORDER BY g.item),
           array_agg(g.item::int ORDER BY g.item) FILTER (WHERE p.partition_id IS NULL)
    INTO v_ends, refused_items
    FROM given g
    LEFT JOIN positions p ON p.partition_id = g.partition_id AND p.group_id = p_group_ids[g.item]
                         AND p.lease_id = p_lease_ids[g.item] AND p.lease_expires_at > v_now;

    WITH operations_given AS MATERIALIZED (
        SELECT o.*, sum(o.length) OVER (ORDER BY o.n) AS hi
        FROM unnest(p_ids, p_partition_ids, p_lengths) WITH ORDINALITY AS o (id, partition_id, length, n)
    ), kept AS MATERIALIZED (
        SELECT o.id, o.partition_id, o.n, row_number() OVER (PARTITION BY o.partition_id ORDER BY o.n) AS nth,
               array_agg(i.item ORDER BY i.item) AS items
        FROM operations_given o
        CROSS JOIN LATERAL generate_series(o.hi - o.length + 1, o.hi) AS i (item)
        WHERE v_ends[i.item] IS NOT NULL
        GROUP BY o.id, o.partition_id, o.n
    ), held AS (
        UPDATE positions p SET lease_expires_at = greatest(p.lease_expires_at, v_now + p_hold_ms * interval '1 millisecond'),
               ready_at = greatest(p.lease_expires_at, v_now + p_hold_ms * interval '1 millisecond')
        FROM (SELECT DISTINCT k.partition_id, p_group_ids[i] AS group_id FROM kept k, unnest(k.items) i) h
        WHERE p.partition_id = h.partition_id AND p.group_id = h.group_id
    ), counted AS (
        UPDATE partitions p SET deferred_acks = p.deferred_acks + c.operations
        FROM (SELECT k.partition_id, count(*) AS operations FROM kept k GROUP BY k.partition_id) c
        WHERE p.id = c.partition_id
        RETURNING p.id, p.queue_id, p.deferred_acks - c.operations AS before
    ), accepted AS (
        INSERT INTO operations (id, kind, queue_id, partition_id, reason, priority, accepted_at, items, group_ids,
                                lease_ids, lease_ends, transaction_ids, statuses, errors)
        SELECT k.id, 'ack', c.queue_id, k.partition_id, p_reason, p_priority, v_now, cardinality(k.items),
               array(SELECT p_group_ids[i] FROM unnest(k.items) i), array(SELECT p_lease_ids[i] FROM unnest(k.items) i),
               array(SELECT v_ends[i] FROM unnest(k.items) i), array(SELECT p_transaction_ids[i] FROM unnest(k.items) i),
               array(SELECT p_statuses[i] FROM unnest(k.items) i), array(SELECT p_errors[i] FROM unnest(k.items) i)
        FROM kept k JOIN counted c ON c.id = k.partition_id ORDER BY k.n
    ), laned AS (
        INSERT INTO lanes (partition_id, kind, due, not_before)
        SELECT c.id, 'ack', v_now + p_priority * interval '1 second', v_now FROM counted c
        ON CONFLICT DO NOTHING
    ), tallied AS (
        INSERT INTO operation_tallies AS y (kind, slot, accepted)
        SELECT 'ack', tally_slot_v1(), count(*) FROM kept HAVING count(*) > 0
        ON CONFLICT (kind, slot) DO UPDATE SET accepted = y.accepted + excluded.accepted
    )
    SELECT array_agg((c.before + k.nth)::int ORDER BY o.n) INTO places
    FROM operations_given o LEFT JOIN kept k ON k.n = o.n LEFT JOIN counted c ON c.id = k.partition_id;
END $$;
