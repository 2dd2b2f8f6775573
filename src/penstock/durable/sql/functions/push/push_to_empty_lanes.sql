-- push_to_empty_lanes_v1: run push_v1 for the partitions whose lanes are empty.
-- Runs under the caller's locks on the partitions.
-- Returns: as push_v1. The first offset of a partition with a non-empty lane is -1.
CREATE OR REPLACE FUNCTION push_to_empty_lanes_v1(
    p_partition_ids bigint[], p_lengths int[], p_message_ids uuid[], p_transaction_ids text[],
    p_trace_ids uuid[], p_payloads bytea[], p_now timestamptz,
    OUT first_offsets bigint[], OUT duplicate_items int[], OUT duplicate_ids uuid[], OUT refused_items int[]
)
LANGUAGE plpgsql AS $$
DECLARE
    v_empty_lanes   bigint[] := array(
        SELECT p.id FROM partitions p WHERE p.id = ANY (p_partition_ids) AND p.deferred_pushes = 0);
    v_items         int[];
    v_first_offsets bigint[];
    v_pushed        record;
BEGIN
    SELECT array_agg(i.item::int ORDER BY i.item) INTO v_items
    FROM (SELECT s.*, sum(s.length) OVER (ORDER BY s.n) AS hi
          FROM unnest(p_partition_ids, p_lengths) WITH ORDINALITY AS s (partition_id, length, n)) s
    CROSS JOIN LATERAL generate_series(s.hi - s.length + 1, s.hi) AS i (item)
    WHERE s.partition_id = ANY (v_empty_lanes);
    IF v_items IS NOT NULL THEN
        SELECT * INTO v_pushed FROM push_v1(
            array(SELECT s.partition_id FROM unnest(p_partition_ids) WITH ORDINALITY AS s (partition_id, n)
                  WHERE s.partition_id = ANY (v_empty_lanes) ORDER BY s.n),
            array(SELECT s.length FROM unnest(p_partition_ids, p_lengths) WITH ORDINALITY AS s (partition_id, length, n)
                  WHERE s.partition_id = ANY (v_empty_lanes) ORDER BY s.n),
            array(SELECT p_message_ids[i] FROM unnest(v_items) i),
            CASE WHEN p_transaction_ids IS NOT NULL THEN array(SELECT p_transaction_ids[i] FROM unnest(v_items) i) END,
            CASE WHEN p_trace_ids IS NOT NULL THEN array(SELECT p_trace_ids[i] FROM unnest(v_items) i) END,
            array(SELECT p_payloads[i] FROM unnest(v_items) i), p_now);
        v_first_offsets := v_pushed.first_offsets;
        SELECT array_agg(v_items[d.item] ORDER BY d.item), array_agg(d.original ORDER BY d.item)
        INTO duplicate_items, duplicate_ids
        FROM unnest(v_pushed.duplicate_items, v_pushed.duplicate_ids) AS d (item, original);
        refused_items := (SELECT array_agg(v_items[r] ORDER BY r) FROM unnest(v_pushed.refused_items) r);
    END IF;
    SELECT array_agg(CASE WHEN p.id IS NULL THEN NULL
                          WHEN s.partition_id = ANY (v_empty_lanes) THEN v_first_offsets[s.nth]
                          ELSE -1 END ORDER BY s.n)
    INTO first_offsets
    FROM (SELECT u.partition_id, u.n,
                 count(*) FILTER (WHERE u.partition_id = ANY (v_empty_lanes)) OVER (ORDER BY u.n) AS nth
          FROM unnest(p_partition_ids) WITH ORDINALITY AS u (partition_id, n)) s
    LEFT JOIN partitions p ON p.id = s.partition_id;
END $$;
