-- write_test_notice_v1: add a notice without an incident to the outbox.
-- Locks: the channel row FOR KEY SHARE, by the foreign key.
CREATE OR REPLACE FUNCTION write_test_notice_v1(p_id uuid, p_channel_id uuid, p_message jsonb)
RETURNS void
LANGUAGE sql AS $$
    INSERT INTO alert_notices (id, environment_id, transition, channel_id, message)
    SELECT p_id, c.environment_id, 'test', c.id, p_message FROM alert_channels c WHERE c.id = p_channel_id
$$;
