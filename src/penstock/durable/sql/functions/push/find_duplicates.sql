-- find_duplicates_v1: find items whose transaction id is stored in their partition or repeats an earlier item's id.
-- Runs under the caller's partition locks, so the result still holds when the caller writes.
-- Returns: per duplicate item (1-based) the id of the message it repeats.
CREATE OR REPLACE FUNCTION find_duplicates_v1(
    p_partition_ids bigint[], p_lengths int[], p_message_ids uuid[], p_transaction_ids text[]
) RETURNS TABLE (item bigint, original uuid)
LANGUAGE sql STABLE AS $$
    WITH segments AS (
        SELECT s.partition_id, s.length, sum(s.length) OVER (ORDER BY s.n) AS hi
        FROM unnest(p_partition_ids, p_lengths) WITH ORDINALITY AS s (partition_id, length, n)
    ), keys AS (
        SELECT s.partition_id, s.hi - s.length + k.i AS item, md5(k.transaction_id)::uuid AS key
        FROM segments s
        CROSS JOIN LATERAL unnest(p_transaction_ids[s.hi - s.length + 1:s.hi])
                   WITH ORDINALITY AS k (transaction_id, i)
        WHERE k.transaction_id IS NOT NULL
    ), first_of_key AS (
        SELECT k.*, first_value(k.item) OVER (PARTITION BY k.partition_id, k.key ORDER BY k.item) AS first_item
        FROM keys k
    )
    SELECT f.item, coalesce(stored.message_id, p_message_ids[f.first_item])
    FROM first_of_key f
    LEFT JOIN LATERAL (
        SELECT (SELECT l.message_ids[m.message_offset - l.first_offset + 1] FROM log l
                WHERE l.partition_id = f.partition_id AND l.first_offset <= m.message_offset
                ORDER BY l.first_offset DESC LIMIT 1) AS message_id
        FROM message_keys m WHERE m.partition_id = f.partition_id AND m.key = f.key
    ) stored ON true
    WHERE stored IS NOT NULL OR f.item <> f.first_item
$$;
