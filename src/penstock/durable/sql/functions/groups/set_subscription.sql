-- set_subscription_v1: record where a consumer group starts: all, new, or a timestamp in ISO 8601.
-- Locks: the group's row.
-- Cost: one row.
CREATE OR REPLACE FUNCTION set_subscription_v1(p_group_id bigint, p_subscription text) RETURNS void
LANGUAGE sql AS $$
    UPDATE groups SET subscription = p_subscription WHERE id = p_group_id
$$;
