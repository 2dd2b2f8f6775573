-- trace_names_v1: list a page of trace names that start with p_prefix, by name.
-- Returns: per name the number of traces, counted up to p_max_count, and the time of the latest one.
-- Cost: steps from name to name in the index, so it follows the names and the counts of the page, not the traces.
CREATE OR REPLACE FUNCTION trace_names_v1(
    p_organization text, p_project text, p_environment text, p_prefix text, p_limit int, p_offset int, p_max_count int
) RETURNS TABLE (name text, traces bigint, last_at timestamptz)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE scope AS MATERIALIZED (
        SELECT environment_id_v1(p_organization, p_project, p_environment) AS id
    ), matching_names AS (
        SELECT (SELECT n.name FROM trace_names n
                WHERE n.environment_id = s.id AND n.name >= p_prefix ORDER BY n.name LIMIT 1) AS name
        FROM scope s
        UNION ALL
        SELECT (SELECT n.name FROM trace_names n
                WHERE n.environment_id = s.id AND n.name > m.name ORDER BY n.name LIMIT 1)
        FROM matching_names m CROSS JOIN scope s WHERE starts_with(m.name, p_prefix)
    ), page AS MATERIALIZED (
        SELECT m.name FROM matching_names m WHERE starts_with(m.name, p_prefix) LIMIT p_limit OFFSET p_offset
    )
    SELECT k.name,
           (SELECT count(*) FROM (SELECT 1 FROM trace_names n
                                  WHERE n.environment_id = s.id AND n.name = k.name LIMIT p_max_count) c),
           (SELECT max(n.created_at) FROM trace_names n WHERE n.environment_id = s.id AND n.name = k.name)
    FROM page k CROSS JOIN scope s ORDER BY k.name
$$;
