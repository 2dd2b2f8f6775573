-- finish_message_v1: finish one message for a group, leased or not.
-- Runs under the caller's lock on the position.
CREATE OR REPLACE FUNCTION finish_message_v1(
    p_partition_id bigint, p_group_id bigint, p_offset bigint, p_now timestamptz
) RETURNS void
LANGUAGE sql AS $$
    SELECT settle_position_v1(p_partition_id, p_group_id, int8multirange(int8range(p_offset, p_offset + 1)), '{}', p_now)
$$;
