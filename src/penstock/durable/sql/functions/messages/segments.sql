-- segments_v1: read the stored segments that overlap offsets [p_from, p_to) of a partition, cut to that range.
-- Cost: as segment_rows_v1.
CREATE OR REPLACE FUNCTION segments_v1(p_partition_id bigint, p_from bigint, p_to bigint)
RETURNS TABLE (first_offset bigint, last_offset bigint, created_at timestamptz, message_ids uuid[],
               transaction_ids text[], trace_ids uuid[], payloads bytea[])
LANGUAGE sql STABLE AS $$
    SELECT greatest(l.first_offset, p_from), least(l.last_offset, p_to - 1), l.created_at,
           l.message_ids[greatest(p_from - l.first_offset, 0) + 1:p_to - l.first_offset],
           l.transaction_ids[greatest(p_from - l.first_offset, 0) + 1:p_to - l.first_offset],
           l.trace_ids[greatest(p_from - l.first_offset, 0) + 1:p_to - l.first_offset],
           l.payloads[greatest(p_from - l.first_offset, 0) + 1:p_to - l.first_offset]
    FROM segment_rows_v1(p_partition_id, p_from, p_to) l
$$;
