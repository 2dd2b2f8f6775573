-- message_events_v1: what is known of a message besides its push, its traces and its dead letters.
-- Returns: recorded events, `delivered` for each lease that holds it, and `requeued_from` for a message that a requeue
-- pushed: error is then the transaction id of the first message, and attempts counts the deaths.
-- Cost: follows the events of the messages around this one: a lease has at most 10,000 messages.
CREATE OR REPLACE FUNCTION message_events_v1(p_partition_id bigint, p_offset bigint)
RETURNS TABLE (event text, group_name text, began_at timestamptz, happened_at timestamptz, attempts int, error text,
               new_message_id uuid)
LANGUAGE sql STABLE AS $$
    SELECT e.event, coalesce(g.name, ''), e.began_at, e.happened_at, e.attempts, e.error, e.new_message_id
    FROM message_events e LEFT JOIN groups g ON g.id = e.group_id
    WHERE e.partition_id = p_partition_id AND e.first_offset <= p_offset
      AND e.first_offset > p_offset - 10000 AND e.offsets @> p_offset
    UNION ALL
    SELECT 'delivered', g.name, p.leased_at, p.lease_expires_at, (p.attempts ->> p_offset::text)::int, NULL, NULL
    FROM positions p JOIN groups g ON g.id = p.group_id
    WHERE p.partition_id = p_partition_id AND p.lease_id IS NOT NULL AND p.lease_from <= p_offset
      AND p_offset < p.lease_to AND p.cursor <= p_offset AND NOT p.finished + p.returned @> p_offset
    UNION ALL
    SELECT 'requeued_from', '', l.first_created_at, l.first_created_at, l.deaths, l.first_transaction_id, NULL
    FROM lineages l WHERE l.partition_id = p_partition_id AND l.message_offset = p_offset
$$;
