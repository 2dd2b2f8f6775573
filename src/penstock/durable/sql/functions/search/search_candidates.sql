-- search_candidates_v1: the offsets that a search has to read, for up to p_partitions partitions from id p_from.
-- p_status is the state for the queue's group in p_group_ids, as in messages_v1; `completed` includes dead messages.
-- p_start and p_end bound the push time; p_key is the md5 of a transaction id that a client chose.
-- Cost: follows the partitions: states are arithmetic on offsets, times are found by the index, and no payload is read.
CREATE OR REPLACE FUNCTION search_candidates_v1(
    p_queue_ids bigint[], p_group_ids bigint[], p_partition_id bigint, p_status text, p_start timestamptz,
    p_end timestamptz, p_key uuid, p_from bigint, p_partitions int
) RETURNS TABLE (partition_id bigint, group_id bigint, offsets int8multirange)
LANGUAGE sql STABLE AS $$
    WITH page AS MATERIALIZED (
        SELECT t.*, q.group_id
        FROM unnest(p_queue_ids, p_group_ids) AS q (id, group_id) JOIN partitions t ON t.queue_id = q.id
        WHERE t.id >= p_from AND t.id = coalesce(p_partition_id, t.id)
        ORDER BY t.id LIMIT p_partitions
    ), states AS (
        SELECT t.id, t.group_id, t.next_offset - 1 AS last_offset,
               int8multirange(int8range(t.low_offset, t.next_offset)) - deleted_offsets_v1(t.id, t.low_offset) AS kept,
               coalesce(int8multirange(int8range(NULL, p.cursor)) + p.finished, '{}') AS finished,
               CASE WHEN p.lease_id IS NOT NULL AND p.lease_expires_at > clock_timestamp()
                    THEN int8multirange(int8range(p.lease_from, p.lease_to)) - p.returned ELSE '{}' END AS leased
        FROM page t LEFT JOIN positions p ON p.partition_id = t.id AND p.group_id = t.group_id
    )
    SELECT s.id, s.group_id,
           CASE p_status WHEN 'pending' THEN s.kept - s.finished - s.leased
                         WHEN 'processing' THEN s.kept * s.leased - s.finished
                         WHEN 'completed' THEN s.kept * s.finished
                         WHEN 'dead_letter' THEN s.kept * coalesce((
                             SELECT range_agg(int8range(d.message_offset, d.message_offset + 1)) FROM dead_letters d
                             WHERE d.partition_id = s.id AND d.group_id = s.group_id), '{}')
                         ELSE s.kept END
           * CASE WHEN p_start IS NULL THEN '{(,)}'
                  WHEN message_created_at_v1(s.id, s.last_offset) < p_start THEN '{}'
                  ELSE int8multirange(int8range(offset_at_time_v1(s.id, p_start), NULL)) END
           * CASE WHEN p_end IS NULL OR message_created_at_v1(s.id, s.last_offset) < p_end THEN '{(,)}'
                  ELSE int8multirange(int8range(NULL, offset_at_time_v1(s.id, p_end))) END
           * CASE WHEN p_key IS NULL THEN '{(,)}'
                  ELSE coalesce((SELECT range_agg(int8range(m.message_offset, m.message_offset + 1))
                                 FROM message_keys m WHERE m.partition_id = s.id AND m.key = p_key), '{}') END
    FROM states s
$$;
