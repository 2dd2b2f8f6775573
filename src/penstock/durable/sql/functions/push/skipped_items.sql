-- skipped_items_v1: find the items that a push does not append: duplicates, and items that do not fit into their queue.
-- p_transaction_ids may be NULL; p_has_size_limit says whether any of the queues has a size limit. Runs under the
-- caller's partition locks.
-- Returns: duplicate_items (1-based) with duplicate_ids, the messages they repeat, and refused_items, which do not fit;
-- NULL where there are none.
-- Locks: those of items_over_queue_limit_v1.
CREATE OR REPLACE FUNCTION skipped_items_v1(
    p_partition_ids bigint[], p_lengths int[], p_message_ids uuid[], p_transaction_ids text[], p_has_size_limit boolean,
    OUT duplicate_items int[], OUT duplicate_ids uuid[], OUT refused_items int[]
)
LANGUAGE plpgsql AS $$
BEGIN
    IF p_transaction_ids IS NOT NULL THEN
        SELECT array_agg(d.item::int ORDER BY d.item), array_agg(d.original ORDER BY d.item)
        INTO duplicate_items, duplicate_ids
        FROM find_duplicates_v1(p_partition_ids, p_lengths, p_message_ids, p_transaction_ids) d;
    END IF;
    IF p_has_size_limit THEN
        refused_items := items_over_queue_limit_v1(p_partition_ids, p_lengths, coalesce(duplicate_items, '{}'));
        IF refused_items IS NOT NULL AND duplicate_items IS NOT NULL THEN
            -- A duplicate of a refused item is refused too: the message it repeats does not exist.
            SELECT array_agg(d.item ORDER BY d.item) FILTER (WHERE r.item IS NULL),
                   array_agg(d.original ORDER BY d.item) FILTER (WHERE r.item IS NULL),
                   refused_items || coalesce(array_agg(d.item ORDER BY d.item) FILTER (WHERE r.item IS NOT NULL), '{}')
            INTO duplicate_items, duplicate_ids, refused_items
            FROM unnest(duplicate_items, duplicate_ids) AS d (item, original)
            LEFT JOIN unnest(refused_items) AS r (item) ON p_message_ids[r.item] = d.original;
        END IF;
    END IF;
END $$;
