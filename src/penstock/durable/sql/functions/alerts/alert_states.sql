-- alert_states_v1: the stored states of all rules. Queues without a row are ok and not in a cooldown.
CREATE OR REPLACE FUNCTION alert_states_v1()
RETURNS SETOF alert_states
LANGUAGE sql STABLE AS $$
    SELECT s.* FROM alert_states s
$$;
