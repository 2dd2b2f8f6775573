-- pop_single_v1: run pop_v1 for requests of one message each, from the partition that has waited longest.
-- Request r gets its message under p_lease_ids[r]. Fast path: nearly every such pop finds positions without leases,
-- failures or gaps, and one small statement serves it. A second one clears positions that ran empty, as pop_v1 does. If
-- no position is ready it returns; the general path of pop_v1 handles all other cases.
-- Returns: a row per request that got a message; message_id is NULL if the message was finished earlier and must not be
-- delivered. created_at is in seconds since the epoch. Rows for request 0 are as in pop_v1.
-- Raises: as pop_v1.
-- Locks: position rows SKIP LOCKED; partition rows SKIP LOCKED, only to record that a position ran empty; those of
-- pop_v1.
CREATE OR REPLACE FUNCTION pop_single_v1(
    p_group_id bigint, p_lease_ids uuid[], p_lease_ms bigint, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (
    request int, leased_from bigint, leased_to bigint, message_id text, transaction_id text, trace_id uuid,
    payload bytea, created_at float8, partition_id bigint, partition text, attempts int
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now        timestamptz := coalesce(p_now, clock_timestamp());
    v_expires_at timestamptz := v_now + p_lease_ms * interval '1 millisecond';
    -- As in pop_v1: a server crash may lose this lease, and then the message is delivered again.
    v_previous   text := set_config('synchronous_commit', 'off', true);
    v_ones       int[];
BEGIN
    LOOP
        RETURN QUERY
        WITH claimed AS MATERIALIZED (
            SELECT p.partition_id, t.name, p.cursor,
                   p.lease_id IS NULL AND p.redeliver_singly_until <= p.cursor AND isempty(p.finished)
                   AND p.attempts = '{}' AND t.low_offset <= p.cursor AND p.cursor < t.next_offset AS is_simple
            FROM positions p JOIN partitions t ON t.id = p.partition_id
            WHERE p.group_id = p_group_id AND p.ready_at <= v_now
              AND (SELECT NOT q.paused AND q.ttl_ms = 0 AND q.max_wait_ms = 0 AND q.window_ms = 0 AND q.delay_ms = 0
                   FROM groups g JOIN queues q ON q.id = g.queue_id WHERE g.id = p_group_id)
            ORDER BY p.ready_at LIMIT cardinality(p_lease_ids) FOR UPDATE OF p SKIP LOCKED
        ), leased AS (
            UPDATE positions p SET
                ready_at = v_expires_at, lease_id = p_lease_ids[c.request], leased_at = v_now,
                lease_expires_at = v_expires_at, lease_from = c.cursor, lease_to = c.cursor + 1, returned = '{}'
            FROM (SELECT c.*, row_number() OVER () AS request FROM claimed c
                  WHERE (SELECT bool_and(a.is_simple) FROM claimed a)) c
            -- By key, not by ctid: the locked row may be a newer version than the one this statement's snapshot sees.
            WHERE p.partition_id = c.partition_id AND p.group_id = p_group_id
            RETURNING c.request, c.partition_id, c.name, c.cursor
        )
        SELECT l.request::int, l.cursor, l.cursor + 1, m.message_id::text, m.transaction_id, m.trace_id, m.payload,
               date_part('epoch', m.created_at), l.partition_id, l.name, 0
        FROM leased l CROSS JOIN LATERAL message_at_offset_v1(l.partition_id, l.cursor) m;
        IF FOUND OR EXISTS (SELECT 1 FROM groups g WHERE g.id = p_group_id)
           AND NOT EXISTS (SELECT 1 FROM positions p WHERE p.group_id = p_group_id AND p.ready_at <= v_now) THEN
            RETURN;
        END IF;

        -- The last ack of a partition leaves its position ready, because only the partition's row lock tells that no
        -- push is running. A locked partition row means that one is: its position stays as it is.
        WITH ready AS MATERIALIZED (
            SELECT p.partition_id, p.cursor FROM positions p
            WHERE p.group_id = p_group_id AND p.ready_at <= v_now
            ORDER BY p.ready_at LIMIT cardinality(p_lease_ids) FOR UPDATE SKIP LOCKED
        )
        UPDATE positions p SET ready_at = NULL
        FROM ready r CROSS JOIN LATERAL (
            SELECT t.id FROM partitions t WHERE t.id = r.partition_id AND t.next_offset <= r.cursor
            FOR NO KEY UPDATE SKIP LOCKED) t
        WHERE p.partition_id = r.partition_id AND p.group_id = p_group_id AND p.lease_id IS NULL;
        EXIT WHEN NOT FOUND;
    END LOOP;

    v_ones := array_fill(1, ARRAY[cardinality(p_lease_ids)]);
    RETURN QUERY
    SELECT p.request, p.leased_from, p.leased_to,
           CASE WHEN NOT p.finished @> p.first_offset THEN p.message_ids[1]::text END, p.transaction_ids[1],
           p.trace_ids[1], p.payloads[1], date_part('epoch', p.created_at), p.partition_id, p.partition,
           coalesce((p.attempts ->> p.first_offset::text)::int, 0)
    FROM pop_v1(p_group_id, p_lease_ids, v_ones, v_ones, NULL, p_lease_ms, false, v_now) p;
END $$;
