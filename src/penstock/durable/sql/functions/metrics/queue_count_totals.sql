-- queue_count_totals_v1: read how many messages were pushed to queues (empty group) and completed by their groups, since
-- the queue or group was created. A queue or group without messages has no row.
-- Locks: none.
-- Cost: follows the tallies of those queues, never messages.
CREATE OR REPLACE FUNCTION queue_count_totals_v1(p_queue_ids bigint[])
RETURNS TABLE (queue_id bigint, group_name text, messages bigint)
LANGUAGE sql STABLE AS $$
    SELECT t.queue_id, coalesce(g.name, ''),
           sum(CASE WHEN t.group_id = 0 THEN t.messages ELSE t.completed END)::bigint
    FROM tallies t LEFT JOIN groups g ON g.id = t.group_id
    WHERE t.queue_id = ANY (p_queue_ids) AND (t.group_id = 0 OR g.id IS NOT NULL)
    GROUP BY 1, 2
$$;
