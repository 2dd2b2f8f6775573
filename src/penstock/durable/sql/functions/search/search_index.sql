-- search_index_v1: the next messages of a queue that have a value under an index key, at most p_limit.
-- Partitions come by id from p_from, the newest messages of each first; of partition p_from, those below p_below.
-- Returns: messages that retention dropped, until their chunk is dropped; the caller checks each message.
-- Cost: one index scan per chunk, of p_limit rows.
CREATE OR REPLACE FUNCTION search_index_v1(
    p_queue_id bigint, p_key text, p_value text, p_partition_id bigint, p_from bigint, p_below bigint, p_limit int
) RETURNS TABLE (partition_id bigint, message_offset bigint)
LANGUAGE sql STABLE AS $$
    SELECT v.partition_id, v.message_offset FROM message_values v
    WHERE v.queue_id = p_queue_id AND v.value_hash = index_hash_v1(p_key, p_value)
      AND v.partition_id >= greatest(p_from, p_partition_id)
      AND v.partition_id = coalesce(p_partition_id, v.partition_id)
      AND (v.partition_id > p_from OR p_below IS NULL OR v.message_offset < p_below)
    ORDER BY v.partition_id, v.message_offset DESC LIMIT p_limit
$$;
