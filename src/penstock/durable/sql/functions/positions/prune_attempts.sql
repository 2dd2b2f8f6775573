-- prune_attempts_v1: failed attempts by offset, without those of offsets that are finished.
CREATE OR REPLACE FUNCTION prune_attempts_v1(p_attempts jsonb, p_done int8multirange, p_cursor bigint)
RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(jsonb_object_agg(a.key, a.value), '{}') FROM jsonb_each(p_attempts) a
    WHERE NOT p_done @> a.key::bigint AND a.key::bigint >= p_cursor
$$;
