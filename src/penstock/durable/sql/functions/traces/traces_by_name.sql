-- traces_by_name_v1: list a page of the traces with a name within a time range, the latest first.
CREATE OR REPLACE FUNCTION traces_by_name_v1(
    p_organization text, p_project text, p_environment text, p_name text, p_from timestamptz, p_to timestamptz,
    p_limit int, p_offset int
) RETURNS TABLE (id bigint, queue text, partition text, partition_id bigint, transaction_id text, group_name text,
                 event text, names text[], data bytea, created_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT x.id, q.name, t.name, x.partition_id, x.transaction_id, x.group_name, x.event, x.names, x.data,
           x.created_at
    FROM trace_names n
    JOIN traces x ON x.id = n.trace_id
    JOIN partitions t ON t.id = x.partition_id
    JOIN queues q ON q.id = t.queue_id
    WHERE n.environment_id = environment_id_v1(p_organization, p_project, p_environment) AND n.name = p_name
      AND n.created_at >= coalesce(p_from, '-infinity') AND n.created_at < coalesce(p_to, 'infinity')
    ORDER BY n.created_at DESC, n.trace_id DESC LIMIT p_limit OFFSET p_offset
$$;
