-- replace_dead_letter_payloads_v1: replace payloads of dead letters that still are what p_expected says. The arrays
-- have equal length.
-- Locks: the dead letters' rows.
-- Cost: one index lookup and one row per dead letter.
CREATE OR REPLACE FUNCTION replace_dead_letter_payloads_v1(
    p_dead_letter_ids bigint[], p_payloads bytea[], p_expected bytea[]
) RETURNS void
LANGUAGE sql AS $$
    UPDATE dead_letters d SET payload = n.payload
    FROM unnest(p_dead_letter_ids, p_payloads, p_expected) AS n (id, payload, expected)
    WHERE d.id = n.id AND d.payload = n.expected
$$;
