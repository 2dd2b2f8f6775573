-- release_notice_v1: end the lease of an attempt that was interrupted, so that another sender starts one at once.
-- Locks: the notice.
CREATE OR REPLACE FUNCTION release_notice_v1(p_id uuid, p_owner uuid)
RETURNS void
LANGUAGE sql AS $$
    UPDATE alert_notices n SET owner = NULL, lease_until = NULL
    WHERE n.id = p_id AND n.owner = p_owner AND n.state = 'pending'
$$;
