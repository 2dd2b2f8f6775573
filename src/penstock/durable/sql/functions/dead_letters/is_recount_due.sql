-- is_recount_due_v1: whether a recount of dead letters is unfinished, or the last one ended more than p_interval_s
-- seconds ago.
-- Locks: none.
-- Cost: one row.
CREATE OR REPLACE FUNCTION is_recount_due_v1(p_interval_s int)
RETURNS TABLE (is_due boolean)
LANGUAGE sql STABLE AS $$
    SELECT m.recount_queue_id > 0 OR m.recounted_at IS NULL
           OR m.recounted_at < clock_timestamp() - p_interval_s * interval '1 second'
    FROM dead_letter_maintenance m
$$;
