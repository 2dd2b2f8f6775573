-- traces_by_name_v1: a page of the traces of a name, the latest first, within a span of time.
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
    WHERE n.environment_id = environment_v1(p_organization, p_project, p_environment) AND n.name = p_name
      AND n.created_at >= coalesce(p_from, '-infinity') AND n.created_at < coalesce(p_to, 'infinity')
    ORDER BY n.created_at DESC, n.trace_id DESC LIMIT p_limit OFFSET p_offset
$$;

-- trace_names_v1: a page of the names that traces have, by name, from those that begin with p_prefix; with the
-- latest trace of each, and how many there are, counted up to p_most.
-- Steps from name to name in the index: cost follows the names and the counts of the page, not the traces.
CREATE OR REPLACE FUNCTION trace_names_v1(
    p_organization text, p_project text, p_environment text, p_prefix text, p_limit int, p_offset int, p_most int
) RETURNS TABLE (name text, traces bigint, last_at timestamptz)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE scope AS MATERIALIZED (
        SELECT environment_v1(p_organization, p_project, p_environment) AS id
    ), found AS (
        SELECT (SELECT n.name FROM trace_names n
                WHERE n.environment_id = s.id AND n.name >= p_prefix ORDER BY n.name LIMIT 1) AS name
        FROM scope s
        UNION ALL
        SELECT (SELECT n.name FROM trace_names n
                WHERE n.environment_id = s.id AND n.name > f.name ORDER BY n.name LIMIT 1)
        FROM found f CROSS JOIN scope s WHERE starts_with(f.name, p_prefix)
    ), page AS MATERIALIZED (
        SELECT f.name FROM found f WHERE starts_with(f.name, p_prefix) LIMIT p_limit OFFSET p_offset
    )
    SELECT k.name,
           (SELECT count(*) FROM (SELECT 1 FROM trace_names n
                                  WHERE n.environment_id = s.id AND n.name = k.name LIMIT p_most) c),
           (SELECT max(n.created_at) FROM trace_names n WHERE n.environment_id = s.id AND n.name = k.name)
    FROM page k CROSS JOIN scope s ORDER BY k.name
$$;

-- prune_traces_v1: delete up to p_limit traces older than p_before, the oldest first; how many there were.
-- Called again as long as it finds p_limit.
CREATE OR REPLACE FUNCTION prune_traces_v1(p_before timestamptz, p_limit int) RETURNS bigint
LANGUAGE sql AS $$
    WITH doomed AS MATERIALIZED (
        SELECT x.id, x.environment_id, x.names, x.created_at FROM traces x
        WHERE x.created_at < p_before ORDER BY x.created_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), unnamed AS (
        DELETE FROM trace_names n USING doomed d
        WHERE n.environment_id = d.environment_id AND n.name = ANY (d.names)
          AND n.created_at = d.created_at AND n.trace_id = d.id
    ), forgotten AS (
        DELETE FROM traces x USING doomed d WHERE x.id = d.id RETURNING 1
    )
    SELECT count(*) FROM forgotten
$$;
