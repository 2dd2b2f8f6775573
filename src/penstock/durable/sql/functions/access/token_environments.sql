-- token_environments_v1: the environments in which leases may have been taken with tokens: their own, and all for
-- tokens of platform administrators.
-- Locks: none.
-- Cost: follows the tokens, and the environments for tokens of platform administrators.
CREATE OR REPLACE FUNCTION token_environments_v1(p_numbers int[])
RETURNS TABLE (organization text, project text, environment text)
LANGUAGE sql STABLE AS $$
    SELECT DISTINCT e.organization, e.project, e.name
    FROM access_tokens k JOIN environments e ON e.id = k.environment_id OR k.is_platform_admin
    WHERE k.number = ANY (p_numbers)
$$;
