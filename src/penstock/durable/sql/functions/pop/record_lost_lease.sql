-- record_lost_lease_v1: record that a lease expired, for the messages that it still held.
-- A lease is recorded once. A message that is retried without end is recorded up to twenty times.
-- Runs under the caller's lock on the position.
CREATE OR REPLACE FUNCTION record_lost_lease_v1(p_partition_id bigint, p_group_id bigint) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO message_events (partition_id, first_offset, group_id, event, lease_id, offsets, began_at, happened_at,
                                attempts)
    SELECT p.partition_id, lower(h.offsets), p.group_id, 'lease_lost', p.lease_id, h.offsets, p.leased_at,
           p.lease_expires_at, (p.attempts ->> lower(h.offsets)::text)::int
    FROM positions p
    CROSS JOIN LATERAL (
        SELECT int8multirange(int8range(greatest(p.cursor, p.lease_from), greatest(p.cursor, p.lease_to)))
               - p.finished - p.returned AS offsets) h
    WHERE p.partition_id = p_partition_id AND p.group_id = p_group_id AND NOT isempty(h.offsets)
      AND coalesce((p.attempts ->> lower(h.offsets)::text)::int, 0) < 20
    ON CONFLICT DO NOTHING
$$;
