-- operation_depths_v1: per kind, how many operations wait, and how many have ever left their lanes.
-- Locks: none.
-- Cost: the same however many operations wait.
CREATE OR REPLACE FUNCTION operation_depths_v1()
RETURNS TABLE (kind text, waiting bigint, finished bigint)
LANGUAGE sql STABLE AS $$
    SELECT y.kind, sum(y.accepted - y.finished)::bigint, sum(y.finished)::bigint
    FROM operation_tallies y GROUP BY y.kind
$$;
