-- put_alert_silence_v1: create a silence of an environment, or replace the one with this id.
-- The columns repeat fields of the JSON, so that queries need not look into it.
-- Returns: the silence; no row if the id belongs to another environment.
-- Raises: PK006 the environment does not exist.
-- Locks: the silence.
CREATE OR REPLACE FUNCTION put_alert_silence_v1(
    p_organization text, p_project text, p_environment text, p_id uuid, p_silence jsonb
) RETURNS TABLE (id uuid, silence jsonb, created_at timestamptz)
LANGUAGE sql AS $$
    INSERT INTO alert_silences AS s (id, environment_id, silence, starts_at, ends_at, created_by)
    VALUES (p_id, require_environment_v1(p_organization, p_project, p_environment), p_silence,
            (p_silence ->> 'startsAt')::timestamptz, (p_silence ->> 'endsAt')::timestamptz,
            coalesce(p_silence ->> 'createdBy', ''))
    ON CONFLICT ON CONSTRAINT alert_silences_pkey DO UPDATE SET
        silence = excluded.silence, starts_at = excluded.starts_at, ends_at = excluded.ends_at,
        created_by = excluded.created_by
        WHERE s.environment_id = excluded.environment_id
    RETURNING s.id, s.silence, s.created_at
$$;
