-- trace_names_v1: a page of the names that traces have, by name, from those that begin with p_prefix; with the
-- latest trace of each, and how many there are, counted up to p_most.
-- Steps from name to name in the index: cost follows the names and the counts of the page, not the traces.
CREATE OR REPLACE FUNCTION trace_names_v1(
    p_organization text, p_project text, p_environment text, p_prefix text, p_limit int, p_offset int, p_most int
) RETURNS TABLE (name text, traces bigint, last_at timestamptz)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE scope AS MATERIALIZED (
        SELECT environment_id_v1(p_organization, p_project, p_environment) AS id
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
