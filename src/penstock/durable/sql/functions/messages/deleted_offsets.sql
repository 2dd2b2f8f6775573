-- deleted_offsets_v1: read the offsets at or above p_from that were deleted from a partition.
CREATE OR REPLACE FUNCTION deleted_offsets_v1(p_partition_id bigint, p_from bigint) RETURNS int8multirange
LANGUAGE sql STABLE AS $$
    SELECT coalesce(range_agg(int8range(d.message_offset, d.message_offset + 1)), '{}')
    FROM deleted_messages d WHERE d.partition_id = p_partition_id AND d.message_offset >= p_from
$$;
