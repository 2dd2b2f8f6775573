-- record_notice_attempt_v1: record the result of an attempt and end its lease.
-- p_state is sent, failed, or pending for another attempt after p_delay_s.
-- Returns: whether p_owner still held the lease; if not, nothing changes.
-- Locks: the notice.
CREATE OR REPLACE FUNCTION record_notice_attempt_v1(
    p_id uuid, p_owner uuid, p_state text, p_delay_s double precision, p_error text, p_now timestamptz DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    UPDATE alert_notices n
    SET state = p_state, owner = NULL, lease_until = NULL, last_error = p_error,
        sent_at = CASE WHEN p_state = 'sent' THEN v_now END,
        next_attempt_at = v_now + coalesce(p_delay_s, 0) * interval '1 second'
    WHERE n.id = p_id AND n.owner = p_owner AND n.state = 'pending';
    RETURN FOUND;
END $$;
