-- segment_rows_v1: the rows of the log that overlap offsets [p_from, p_to) of a partition, in order.
-- Cost: two index probes per chunk, then only the rows of the range, independent of the length of the log.
CREATE OR REPLACE FUNCTION segment_rows_v1(p_partition_id bigint, p_from bigint, p_to bigint) RETURNS SETOF log
LANGUAGE sql STABLE AS $$
    SELECT l.* FROM log l
    WHERE l.partition_id = p_partition_id
      AND l.first_offset >= coalesce((
              SELECT b.first_offset FROM log b
              WHERE b.partition_id = p_partition_id AND b.first_offset <= p_from
              ORDER BY b.first_offset DESC LIMIT 1), p_from)
      AND l.first_offset < p_to AND l.last_offset >= p_from
    ORDER BY l.first_offset
$$;
