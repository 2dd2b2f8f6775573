-- dead_letter_payloads_v1: the stored payloads of dead letters, by id.
-- Locks: none.
-- Cost: one index lookup per dead letter.
CREATE OR REPLACE FUNCTION dead_letter_payloads_v1(p_dead_letter_ids bigint[])
RETURNS TABLE (id bigint, payload bytea)
LANGUAGE sql STABLE AS $$
    SELECT d.id, d.payload FROM dead_letters d WHERE d.id = ANY (p_dead_letter_ids)
$$;
