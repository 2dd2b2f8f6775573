-- queue_group_names_v1: names for pairs of queue id and group id, without those that were deleted. Group id 0 is the
-- queue without a group and has an empty group name.
-- Locks: none.
-- Cost: one index lookup per pair and table.
CREATE OR REPLACE FUNCTION queue_group_names_v1(p_queue_ids bigint[], p_group_ids bigint[])
RETURNS TABLE (queue_id bigint, group_id bigint, organization text, project text, environment text, queue text,
               group_name text)
LANGUAGE sql STABLE AS $$
    SELECT q.id, coalesce(g.id, 0), e.organization, e.project, e.name, q.name, coalesce(g.name, '')
    FROM unnest(p_queue_ids, p_group_ids) AS pair (queue_id, group_id)
    JOIN queues q ON q.id = pair.queue_id
    JOIN environments e ON e.id = q.environment_id
    LEFT JOIN groups g ON g.id = pair.group_id
    WHERE g.id IS NOT NULL OR pair.group_id = 0
$$;
