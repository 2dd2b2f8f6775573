-- journal_position_v1: up to which position a journal was taken over; no row if nothing of it was.
-- Locks: none.
-- Cost: one index lookup.
CREATE OR REPLACE FUNCTION journal_position_v1(p_journal_id uuid)
RETURNS TABLE ("position" bigint)
LANGUAGE sql STABLE AS $$
    SELECT j.position FROM journals j WHERE j.id = p_journal_id
$$;
