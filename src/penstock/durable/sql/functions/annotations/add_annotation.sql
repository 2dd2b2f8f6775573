-- add_annotation_v1: add an annotation to an environment, and delete its oldest ones beyond p_max.
-- A p_key that an annotation of the environment has already returns that annotation and adds nothing.
-- p_at NULL is now; p_queue NULL is the whole environment.
-- Returns: the annotation, and whether it is new.
-- Raises: PK006 the environment does not exist.
-- Locks: the new row, and the deleted ones.
-- Cost: reads p_max entries of an index.
CREATE OR REPLACE FUNCTION add_annotation_v1(
    p_organization text, p_project text, p_environment text, p_at timestamptz, p_end_at timestamptz, p_kind text,
    p_queue text, p_text text, p_subject text, p_link text, p_key text, p_max int
) RETURNS TABLE (id text, kind text, at timestamptz, end_at timestamptz, ongoing boolean, queue text, text text,
                 subject text, link text, is_new boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_environment_id bigint := require_environment_v1(p_organization, p_project, p_environment);
    v_id             bigint;
BEGIN
    INSERT INTO annotations AS a (environment_id, at, end_at, kind, queue, text, subject, link, key)
    VALUES (v_environment_id, coalesce(p_at, clock_timestamp()), p_end_at, p_kind, p_queue, p_text, p_subject, p_link,
            p_key)
    ON CONFLICT (environment_id, key) WHERE key IS NOT NULL DO NOTHING
    RETURNING a.id INTO v_id;
    IF v_id IS NOT NULL THEN
        DELETE FROM annotations a WHERE a.id IN (
            SELECT o.id FROM annotations o WHERE o.environment_id = v_environment_id
            ORDER BY o.id DESC OFFSET p_max LIMIT 10);
    END IF;
    RETURN QUERY
    SELECT a.id::text, a.kind, a.at, a.end_at, false, a.queue, a.text, a.subject, a.link, v_id IS NOT NULL
    FROM annotations a
    WHERE a.environment_id = v_environment_id AND (a.id = v_id OR v_id IS NULL AND a.key = p_key);
END $$;
