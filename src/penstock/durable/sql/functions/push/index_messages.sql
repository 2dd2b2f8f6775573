-- index_messages_v1: store the values that the index keys of queues have in the messages of a push.
-- The arguments describe the segments that push_v1 has just appended: p_ends has the number of each segment's last
-- payload in p_payloads. Segments of queues without index keys, and segments that were not appended, are skipped.
-- Cost: parses the payloads of queues that have index keys.
CREATE OR REPLACE FUNCTION index_messages_v1(
    p_chunk int, p_partition_ids bigint[], p_queue_ids bigint[], p_lengths int[], p_ends bigint[],
    p_first_offsets bigint[], p_payloads bytea[]
) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO message_values (chunk, queue_id, value_hash, partition_id, message_offset)
    SELECT p_chunk, s.queue_id, index_hash_v1(v.key, v.value), s.partition_id, s.first_offset + m.i - 1
    FROM unnest(p_partition_ids, p_queue_ids, p_lengths, p_ends, p_first_offsets)
         AS s (partition_id, queue_id, length, hi, first_offset)
    JOIN queues q ON q.id = s.queue_id
    CROSS JOIN LATERAL unnest(p_payloads[s.hi - s.length + 1:s.hi]) WITH ORDINALITY AS m (payload, i)
    CROSS JOIN LATERAL index_values_v1(m.payload, q.index_keys) v
    WHERE q.index_keys IS NOT NULL AND s.length > 0
$$;
