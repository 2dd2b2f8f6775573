-- dead_letter_count_v1: count the dead letters of a queue, or of one of its groups.
-- Returns: the exact number: the folded counts plus the changes that are not folded yet.
-- Cost: independent of the number of dead letters.
CREATE OR REPLACE FUNCTION dead_letter_count_v1(p_queue_id bigint, p_group_id bigint DEFAULT NULL) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT (coalesce((SELECT sum(c.messages) FROM dead_counts c
                      WHERE c.queue_id = p_queue_id AND c.group_id = coalesce(p_group_id, c.group_id)), 0)
            + coalesce((SELECT sum(y.messages) FROM dead_tallies y
                        WHERE y.queue_id = p_queue_id AND y.group_id = coalesce(p_group_id, y.group_id)), 0))::bigint
$$;
