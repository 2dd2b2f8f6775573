-- require_environment_v1: the id of an environment that new objects may be created in.
-- Raises: PK006 the environment does not exist or is being deleted.
-- Locks: none. A deletion that starts meanwhile also deletes what is created now.
CREATE OR REPLACE FUNCTION require_environment_v1(p_organization text, p_project text, p_environment text) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_id bigint;
BEGIN
    SELECT e.id INTO v_id FROM environments e
    WHERE (e.organization, e.project, e.name) = (p_organization, p_project, p_environment)
      AND e.deletion_requested_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the environment %/%/% does not exist', p_organization, p_project, p_environment
            USING ERRCODE = 'PK006';
    END IF;
    RETURN v_id;
END $$;
