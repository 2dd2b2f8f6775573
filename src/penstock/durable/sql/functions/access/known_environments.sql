-- known_environments_v1: read all environments with their quotas.
-- Locks: none.
-- Cost: all environments; brokers call it when the access version has changed.
CREATE OR REPLACE FUNCTION known_environments_v1() RETURNS TABLE (
    id bigint, organization text, project text, name text, quotas jsonb, deletion_requested_at timestamptz
) LANGUAGE sql STABLE AS $$
    SELECT e.id, e.organization, e.project, e.name, e.quotas, e.deletion_requested_at FROM environments e
$$;
