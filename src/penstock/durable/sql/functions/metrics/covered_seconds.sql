-- covered_seconds_v1: compute how many seconds a set of time ranges covers; overlaps count once.
CREATE OR REPLACE FUNCTION covered_seconds_v1(p_covered tstzmultirange) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(sum(extract(epoch FROM upper(r) - lower(r))), 0)::double precision FROM unnest(p_covered) r
$$;
