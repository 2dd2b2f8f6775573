-- most_urgent_state_v1: the state among p_states that needs an operator first.
CREATE OR REPLACE FUNCTION most_urgent_state_v1(p_states text[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT s.state FROM unnest(ARRAY['back_again', 'new', 'open', 'ignored', 'resolved']) WITH ORDINALITY AS s (state, n)
    WHERE s.state = ANY (p_states) ORDER BY s.n LIMIT 1
$$;
