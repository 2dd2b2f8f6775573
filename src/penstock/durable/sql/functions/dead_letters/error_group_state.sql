-- error_group_state_v1: the state of an error group now: that which an operator set, or `back_again`.
-- A resolved group is back again after one more dead letter. An ignored group is back again at p_group.ignored_until,
-- after ignored_count more dead letters, or after more than ignored_rate of them in one clock hour, whichever is first.
-- Neither undoes itself: only an operator changes the state of a group that is back again.
-- p_deaths: dead letters since the state was set. p_max_per_hour: the most of them in one clock hour.
CREATE OR REPLACE FUNCTION error_group_state_v1(
    p_group error_groups, p_deaths bigint, p_max_per_hour bigint, p_now timestamptz
) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN p_group.state = 'resolved' AND p_deaths > 0 THEN 'back_again'
        WHEN p_group.state = 'ignored'
             AND (p_now >= p_group.ignored_until OR p_deaths >= p_group.ignored_count
                  OR p_max_per_hour > p_group.ignored_rate) THEN 'back_again'
        ELSE p_group.state END
$$;
