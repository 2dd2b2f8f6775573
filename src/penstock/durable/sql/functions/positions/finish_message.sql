-- finish_message_v1: finish one message for a group, leased or not: finish_range_v1 for a single offset.
CREATE OR REPLACE FUNCTION finish_message_v1(
    p_partition_id bigint, p_group_id bigint, p_offset bigint, p_now timestamptz
) RETURNS void
LANGUAGE sql AS $$
    SELECT finish_range_v1(p_partition_id, p_group_id, int8multirange(int8range(p_offset, p_offset + 1)), p_now)
$$;
