-- delete_annotation_v1: delete an annotation of an environment.
-- Returns: whether it existed.
-- Locks: the row.
CREATE OR REPLACE FUNCTION delete_annotation_v1(p_organization text, p_project text, p_environment text, p_id bigint)
RETURNS boolean
LANGUAGE sql AS $$
    WITH deleted AS (
        DELETE FROM annotations a
        WHERE a.id = p_id AND a.environment_id = environment_id_v1(p_organization, p_project, p_environment)
        RETURNING 1
    )
    SELECT EXISTS (SELECT 1 FROM deleted)
$$;
