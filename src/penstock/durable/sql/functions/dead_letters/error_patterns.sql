-- error_patterns_v1: the error group of each error text: its key and its pattern.
-- Locks: none.
-- Cost: that of error_pattern_v1 per text.
CREATE OR REPLACE FUNCTION error_patterns_v1(p_errors text[])
RETURNS TABLE (error text, key uuid, pattern text)
LANGUAGE sql STABLE AS $$
    SELECT e.error, md5(e.pattern)::uuid, e.pattern
    FROM (SELECT u.error, error_pattern_v1(u.error) AS pattern FROM unnest(p_errors) AS u (error)) e
$$;
