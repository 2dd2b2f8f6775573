-- delete_alert_channel_v1: delete a channel with its notices, unless rules of its environment use it.
-- Returns: whether it was deleted, and the names of the rules that use it.
-- Locks: the channel row and its notices.
CREATE OR REPLACE FUNCTION delete_alert_channel_v1(
    p_organization text, p_project text, p_environment text, p_name text
) RETURNS TABLE (deleted boolean, rules text[])
LANGUAGE plpgsql AS $$
DECLARE
    v_environment_id bigint := environment_id_v1(p_organization, p_project, p_environment);
BEGIN
    rules := ARRAY(
        SELECT r.name FROM alert_rules r
        WHERE r.environment_id = v_environment_id AND r.rule -> 'channels' ? p_name
        ORDER BY r.name);
    deleted := false;
    IF cardinality(rules) = 0 THEN
        DELETE FROM alert_channels c WHERE c.environment_id = v_environment_id AND c.name = p_name;
        deleted := FOUND;
    END IF;
    RETURN NEXT;
END $$;
