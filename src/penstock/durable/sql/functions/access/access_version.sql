-- access_version_v1: read the version of tokens and environments. It grows with every change.
-- Locks: none.
-- Cost: one row; every broker calls it twice a second.
CREATE OR REPLACE FUNCTION access_version_v1() RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT v.version FROM access_version v
$$;
