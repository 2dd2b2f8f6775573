-- segments_v1: read the stored segments that overlap offsets [p_from, p_to) of a partition, cut to that range.
-- Cost: two index probes per chunk, then only the rows of the range, independent of the length of the log.
CREATE OR REPLACE FUNCTION segments_v1(p_partition_id bigint, p_from bigint, p_to bigint)
RETURNS TABLE (first_offset bigint, last_offset bigint, created_at timestamptz, message_ids uuid[],
               transaction_ids text[], trace_ids uuid[], payloads bytea[])
LANGUAGE sql STABLE AS $$
    SELECT greatest(l.first_offset, p_from), least(l.last_offset, p_to - 1), l.created_at,
           l.message_ids[greatest(p_from - l.first_offset, 0) + 1:p_to - l.first_offset],
           l.transaction_ids[greatest(p_from - l.first_offset, 0) + 1:p_to - l.first_offset],
           l.trace_ids[greatest(p_from - l.first_offset, 0) + 1:p_to - l.first_offset],
           l.payloads[greatest(p_from - l.first_offset, 0) + 1:p_to - l.first_offset]
    FROM log l
    WHERE l.partition_id = p_partition_id
      AND l.first_offset >= coalesce((
              SELECT b.first_offset FROM log b
              WHERE b.partition_id = p_partition_id AND b.first_offset <= p_from
              ORDER BY b.first_offset DESC LIMIT 1), p_from)
      AND l.first_offset < p_to AND l.last_offset >= p_from
    ORDER BY l.first_offset
$$;
