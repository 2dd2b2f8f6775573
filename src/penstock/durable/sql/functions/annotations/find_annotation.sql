-- find_annotation_v1: read an annotation of an environment.
-- Locks: none.
-- Cost: one row.
CREATE OR REPLACE FUNCTION find_annotation_v1(p_organization text, p_project text, p_environment text, p_id bigint)
RETURNS TABLE (id text, kind text, at timestamptz, end_at timestamptz, ongoing boolean, queue text, text text,
               subject text, link text)
LANGUAGE sql STABLE AS $$
    SELECT a.id::text, a.kind, a.at, a.end_at, false, a.queue, a.text, a.subject, a.link FROM annotations a
    WHERE a.id = p_id AND a.environment_id = environment_id_v1(p_organization, p_project, p_environment)
$$;
