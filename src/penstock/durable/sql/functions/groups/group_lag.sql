-- group_lag_v1: count the partitions in which a group has unfinished messages.
-- Returns: `behind` is that number; `oldest_at` is when the oldest unfinished message was pushed.
-- Cost: that of unfinished_positions_v1.
CREATE OR REPLACE FUNCTION group_lag_v1(p_group_id bigint) RETURNS TABLE (behind bigint, oldest_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT count(*), min(u.oldest_at) FROM unfinished_positions_v1(p_group_id) u
$$;
