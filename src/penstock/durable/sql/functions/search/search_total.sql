-- search_total_v1: count the messages that a search has to read, in its first p_partitions partitions.
-- Returns: the messages, the partitions that were counted, and all partitions.
-- Cost: that of search_candidates_v1.
CREATE OR REPLACE FUNCTION search_total_v1(
    p_queue_ids bigint[], p_group_ids bigint[], p_partition_id bigint, p_status text, p_start timestamptz,
    p_end timestamptz, p_key uuid, p_partitions int
) RETURNS TABLE (messages bigint, counted bigint, partitions bigint)
LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum((SELECT sum(upper(r) - lower(r)) FROM unnest(c.offsets) r)), 0)::bigint, count(*),
           (SELECT count(*) FROM partitions t WHERE t.queue_id = ANY (p_queue_ids)
                                                AND t.id = coalesce(p_partition_id, t.id))
    FROM search_candidates_v1(p_queue_ids, p_group_ids, p_partition_id, p_status, p_start, p_end, p_key, 0,
                              p_partitions) c
$$;
