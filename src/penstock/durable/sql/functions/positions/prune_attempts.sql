-- prune_attempts_v1: remove finished offsets from the failed attempts.
-- Returns: the failed attempts by offset.
CREATE OR REPLACE FUNCTION prune_attempts_v1(p_attempts jsonb, p_finished int8multirange, p_cursor bigint)
RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(jsonb_object_agg(a.key, a.value), '{}') FROM jsonb_each(p_attempts) a
    WHERE NOT p_finished @> a.key::bigint AND a.key::bigint >= p_cursor
$$;
