-- increment_attempts_v1: add one to the failed attempts of p_offset.
-- Returns: the failed attempts by offset.
CREATE OR REPLACE FUNCTION increment_attempts_v1(p_attempts jsonb, p_offset bigint) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT jsonb_set(p_attempts, ARRAY[p_offset::text],
                     to_jsonb(coalesce((p_attempts ->> p_offset::text)::int, 0) + 1))
$$;
