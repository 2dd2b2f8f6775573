-- pop_v1: lease the next messages of one group for several requests, the longest waiting partition first.
-- Request r gets up to p_batches[r] messages from up to p_widths[r] partitions under p_lease_ids[r]; with
-- p_partition_id, from that partition only. It gets fewer, but at least one, if the payloads together are larger than
-- p_max_bytes. With p_auto_ack the cursor moves at once and no lease is taken.
-- If an expired lease held several messages, they are redelivered one per lease, so that a message that kills its
-- consumer is found without blaming its neighbours. If it held one message, that message gets a failed attempt.
-- Returns: a row per segment and request; offsets in `finished` were finished earlier and must not be delivered.
-- A row for request 0 reports messages that outlived their time to live and were skipped. No row if the queue is paused.
-- Raises: PK001 the group does not exist.
-- Locks: position rows SKIP LOCKED; partition rows SKIP LOCKED, only to record that a position ran empty.
CREATE OR REPLACE FUNCTION pop_v1(
    p_group_id bigint, p_lease_ids uuid[], p_batches int[], p_widths int[], p_partition_id bigint,
    p_lease_ms bigint, p_auto_ack boolean, p_now timestamptz DEFAULT NULL, p_max_bytes bigint DEFAULT 16777216
) RETURNS TABLE (
    request int, partition_id bigint, partition text, leased_from bigint, leased_to bigint,
    lease_expires_at timestamptz, first_offset bigint, created_at timestamptz, message_ids uuid[],
    transaction_ids text[], trace_ids uuid[], payloads bytea[], finished int8multirange, attempts jsonb
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now        timestamptz := coalesce(p_now, clock_timestamp());
    v_expires_at timestamptz := v_now + p_lease_ms * interval '1 millisecond';
    v_slots      int[];      -- slot k serves request v_slots[k]
    v_claimed    bigint[];
    v_empty      bigint[];
    v_examined   bigint[] := '{}';
    v_taken      bigint[] := '{}';
    v_queue      queues;
    v_expired    record;
    v_ttl_ms     bigint;
    v_delay      interval;
    v_ready      record;
    v_max_batch  bigint := (SELECT max(b) FROM unnest(p_batches) b);
BEGIN
    -- A server crash can lose this lease, and then its messages are delivered again. So there is no reason to wait
    -- for the disk here. An ack waits for the disk, and thereby for this commit too.
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT q.* INTO v_queue FROM groups g JOIN queues q ON q.id = g.queue_id WHERE g.id = p_group_id;
    IF v_queue IS NULL THEN
        RAISE EXCEPTION 'there is no group %', p_group_id USING ERRCODE = 'PK001';
    END IF;
    IF v_queue.paused THEN
        RETURN;
    END IF;
    v_ttl_ms := least(nullif(v_queue.ttl_ms, 0), nullif(v_queue.max_wait_ms, 0));
    v_delay := v_queue.delay_ms * interval '1 millisecond';
    IF v_ttl_ms IS NULL AND v_queue.window_ms = 0 AND v_queue.delay_ms = 0 AND p_partition_id IS NULL
       AND NOT p_auto_ack AND 1 = ALL (p_widths) AND NOT 1 = ALL (p_batches) THEN
        -- Fast path: nearly every pop finds positions without leases, failures or gaps, and two small statements
        -- serve it; starting the general path costs more than running them. Rows claimed here stay claimed for the
        -- general path. Requests for one message each come from pop_single_v1, which has tried the same.
        -- The start of the lease stands here, below and in pop_single_v1. One statement for this path and the one below
        -- costs each pop 3 to 6 %; test_position_state compares all three with one rule.
        SELECT array_agg(c.row_id) AS row_ids, array_agg(c.partition_id) AS ids, array_agg(c.name) AS names,
               array_agg(c.cursor) AS heads, array_agg(c.next_offset) AS ends, bool_and(c.is_simple) AS is_simple
        INTO v_ready
        FROM (
            SELECT p.ctid AS row_id, p.partition_id, t.name, p.cursor, t.next_offset,
                   p.lease_id IS NULL AND p.redeliver_singly_until <= p.cursor AND isempty(p.finished)
                   AND p.attempts = '{}' AND t.low_offset <= p.cursor AND p.cursor < t.next_offset
                   AND (SELECT coalesce(sum(pg_column_size(l.payloads)), 0)
                        FROM segment_rows_v1(p.partition_id, p.cursor, p.cursor + v_max_batch) l) <= p_max_bytes
                   AS is_simple
            FROM positions p JOIN partitions t ON t.id = p.partition_id
            WHERE p.group_id = p_group_id AND p.ready_at <= v_now
            ORDER BY p.ready_at LIMIT cardinality(p_widths) FOR UPDATE OF p SKIP LOCKED
        ) c;
        IF v_ready.is_simple IS NULL THEN
            RETURN;
        END IF;
        IF v_ready.is_simple THEN
            RETURN QUERY
            WITH taken AS MATERIALIZED (
                SELECT c.*, c.head + least(c.batch, c.ends - c.head) AS tail
                FROM unnest(v_ready.row_ids, v_ready.ids, v_ready.names, v_ready.heads, v_ready.ends, p_lease_ids,
                            p_batches)
                     WITH ORDINALITY AS c (row_id, partition_id, name, head, ends, lease_id, batch, request)
                WHERE c.row_id IS NOT NULL
            ), leased AS (
                UPDATE positions p SET
                    ready_at = v_expires_at, lease_id = t.lease_id, leased_at = v_now, lease_expires_at = v_expires_at,
                    lease_from = t.head, lease_to = t.tail, returned = '{}'
                FROM taken t WHERE p.ctid = t.row_id
            )
            SELECT t.request::int, t.partition_id, t.name, t.head, t.tail, v_expires_at, s.first_offset, s.created_at,
                   s.message_ids, s.transaction_ids, s.trace_ids, s.payloads, '{}'::int8multirange, '{}'::jsonb
            FROM taken t CROSS JOIN LATERAL segments_v1(t.partition_id, t.head, t.tail) s;
            RETURN;
        END IF;
    END IF;

    SELECT array_agg(r.n::int ORDER BY r.n) INTO v_slots
    FROM unnest(p_widths) WITH ORDINALITY AS r (width, n) CROSS JOIN generate_series(1, r.width);

    WHILE cardinality(v_taken) < cardinality(v_slots) LOOP
        IF p_partition_id IS NULL THEN
            v_claimed := array(
                SELECT p.partition_id FROM positions p
                WHERE p.group_id = p_group_id AND p.ready_at <= v_now AND p.partition_id <> ALL (v_examined)
                ORDER BY p.ready_at LIMIT cardinality(v_slots) - cardinality(v_taken)
                FOR UPDATE SKIP LOCKED);
        ELSE
            v_claimed := array(
                SELECT p.partition_id FROM positions p
                WHERE p.partition_id = p_partition_id AND p.group_id = p_group_id AND p.ready_at <= v_now
                  AND p.partition_id <> ALL (v_examined)
                FOR UPDATE SKIP LOCKED);
        END IF;
        EXIT WHEN cardinality(v_claimed) = 0;
        v_examined := v_examined || v_claimed;
        IF v_ttl_ms IS NOT NULL THEN
            RETURN QUERY
            SELECT 0, e.partition_id, NULL::text, e.expired_from, e.expired_to, NULL::timestamptz, NULL::bigint,
                   NULL::timestamptz, NULL::uuid[], NULL::text[], NULL::uuid[], NULL::bytea[],
                   NULL::int8multirange, NULL::jsonb
            FROM expire_positions_v1(p_group_id, v_claimed, v_now - v_ttl_ms * interval '1 millisecond', v_now) e;
        END IF;
        FOR v_expired IN
            SELECT p.partition_id, p.lease_from,
                   p.lease_to - p.lease_from = 1 AND p.cursor = p.lease_from AND v_queue.dead_after_limit
                   AND coalesce((p.attempts ->> p.lease_from::text)::int, 0) >= v_queue.retry_limit AS is_poison
            FROM positions p
            WHERE p.group_id = p_group_id AND p.partition_id = ANY (v_claimed) AND p.lease_id IS NOT NULL
        LOOP
            PERFORM record_lost_lease_v1(v_expired.partition_id, p_group_id);
            IF v_expired.is_poison THEN
                PERFORM move_to_dead_letters_v1(v_expired.partition_id, p_group_id, ARRAY[v_expired.lease_from],
                                ARRAY['the lease expired without an ack'], v_now);
                PERFORM settle_position_v1(
                    v_expired.partition_id, p_group_id,
                    int8multirange(int8range(v_expired.lease_from, v_expired.lease_from + 1)), '{}', v_now);
            END IF;
        END LOOP;
        IF v_queue.window_ms > 0 OR v_queue.delay_ms > 0 THEN
            -- A position that is not due yet is postponed until its time, and another one takes its slot.
            WITH ready_times AS (
                SELECT t.id, greatest(
                           CASE WHEN v_queue.window_ms > 0
                                THEN t.pushed_at + v_queue.window_ms * interval '1 millisecond' END,
                           message_created_at_v1(t.id, greatest(p.cursor, t.low_offset)) + v_delay) AS ready_at
                FROM positions p JOIN partitions t ON t.id = p.partition_id
                WHERE p.group_id = p_group_id AND p.partition_id = ANY (v_claimed)
                  AND greatest(p.cursor, t.low_offset) < t.next_offset
            ), postponed AS (
                UPDATE positions p SET ready_at = d.ready_at FROM ready_times d
                WHERE p.group_id = p_group_id AND p.partition_id = d.id AND d.ready_at > v_now
                RETURNING p.partition_id
            )
            SELECT array(SELECT unnest(v_claimed) EXCEPT SELECT h.partition_id FROM postponed h) INTO v_claimed;
        END IF;

        v_empty := array(
            SELECT t.id FROM positions p JOIN partitions t ON t.id = p.partition_id
            WHERE p.group_id = p_group_id AND p.partition_id = ANY (v_claimed)
              AND greatest(p.cursor, t.low_offset) >= t.next_offset);
        IF cardinality(v_empty) = 0 THEN
            v_taken := v_taken || v_claimed;
        ELSE
            v_taken := v_taken || array(SELECT c FROM unnest(v_claimed) c WHERE c <> ALL (v_empty));
            -- A locked partition row means that a push is running: its position stays as it is.
            UPDATE positions p SET ready_at = NULL, lease_id = NULL
            FROM (SELECT t.id, t.next_offset FROM partitions t WHERE t.id = ANY (v_empty)
                  FOR NO KEY UPDATE SKIP LOCKED) t
            WHERE p.group_id = p_group_id AND p.partition_id = t.id AND p.cursor >= t.next_offset;
        END IF;
    END LOOP;
    IF cardinality(v_taken) = 0 THEN
        RETURN;
    END IF;

    RETURN QUERY
    WITH claimed AS MATERIALIZED (
        SELECT p.*, p.ctid AS row_id, greatest(p.cursor, t.low_offset) AS head, t.name, t.next_offset,
               p.lease_id IS NOT NULL AS lease_expired,
               row_number() OVER (ORDER BY p.ready_at, p.partition_id) AS k
        FROM positions p JOIN partitions t ON t.id = p.partition_id
        WHERE p.group_id = p_group_id AND p.partition_id = ANY (v_taken)
    ), sized AS (
        SELECT c.*, v_slots[c.k] AS request,
               least(CASE WHEN v_queue.delay_ms = 0 THEN c.next_offset
                          ELSE coalesce((SELECT max(s.last_offset) + 1
                                         FROM segments_v1(c.partition_id, c.head,
                                                          c.head + p_batches[v_slots[c.k]]) s
                                         WHERE s.created_at <= v_now - v_delay), c.head) END - c.head,
                     CASE WHEN c.head < greatest(c.redeliver_singly_until,
                                                 CASE WHEN c.lease_expired THEN c.lease_to END)
                          THEN 1 ELSE p_batches[v_slots[c.k]] END) AS available
        FROM claimed c
    ), filled AS (
        SELECT s.*, sum(s.available) OVER (PARTITION BY s.request ORDER BY s.k)::bigint - s.available AS filled_before
        FROM sized s
    ), bounded AS (
        SELECT f.*, f.head + least(f.available, p_batches[f.request] - f.filled_before) AS tail
        FROM filled f WHERE f.available > 0 AND f.filled_before < p_batches[f.request]
    ), limited AS (
        SELECT b.*, r.end_offset, sum(r.bytes) OVER (PARTITION BY b.request ORDER BY b.k) AS bytes_so_far
        FROM bounded b CROSS JOIN LATERAL run_within_bytes_v1(b.partition_id, b.head, b.tail, p_max_bytes) r
    ), taken AS MATERIALIZED (
        -- With auto-ack the position changes as next_position_state_v1 computes; test_position_state compares them. It
        -- is not called here, because it would add an eighth to the time of all pops. A separate statement for auto-ack
        -- that calls it would add 6 to 13 % to the time of each pop with auto-ack.
        SELECT c.*, CASE WHEN p_auto_ack THEN coalesce(
                        (SELECT upper(r) FROM unnest(c.finished) r WHERE r @> c.end_offset), c.end_offset)
                    ELSE c.head END AS next_cursor,
               CASE WHEN c.lease_expired AND c.lease_to - c.lease_from = 1 AND c.lease_from = c.head
                    THEN increment_attempts_v1(c.attempts, c.head) ELSE c.attempts END AS next_attempts
        FROM limited c WHERE c.filled_before = 0 OR c.bytes_so_far <= p_max_bytes
    ), leased AS (
        UPDATE positions p SET
            cursor = t.next_cursor,
            ready_at = CASE WHEN p_auto_ack
                            THEN coalesce(message_created_at_v1(t.partition_id, t.next_cursor) + v_delay, v_now)
                            ELSE v_expires_at END,
            lease_id = CASE WHEN p_auto_ack THEN NULL ELSE p_lease_ids[t.request] END,
            leased_at = v_now, lease_expires_at = v_expires_at, lease_from = t.head, lease_to = t.end_offset,
            finished = CASE WHEN p_auto_ack THEN p.finished * int8multirange(int8range(t.next_cursor, NULL))
                        ELSE p.finished END,
            returned = '{}',
            attempts = CASE WHEN p_auto_ack AND t.next_attempts <> '{}'
                            THEN prune_attempts_v1(t.next_attempts, t.finished, t.next_cursor)
                            ELSE t.next_attempts END,
            redeliver_singly_until = greatest(p.redeliver_singly_until, CASE WHEN t.lease_expired THEN t.lease_to END)
        -- By ctid: the row is locked, so its ctid cannot change, and no plan can turn this into a search.
        FROM taken t WHERE p.ctid = t.row_id
    ), tally_rows AS (
        INSERT INTO tallies AS y (queue_id, group_id, slot, messages, completed)
        SELECT v_queue.id, p_group_id, tally_slot_v1(), sum(t.next_cursor - t.cursor),
               sum(t.end_offset - t.head
                   - (SELECT coalesce(sum(upper(r) - lower(r)), 0)
                      FROM unnest(t.finished * int8multirange(int8range(t.head, t.end_offset))) r))
        FROM taken t
        WHERE p_auto_ack HAVING sum(t.next_cursor - t.cursor) > 0
        ON CONFLICT (queue_id, group_id, slot) DO UPDATE
        SET messages = y.messages + excluded.messages, completed = y.completed + excluded.completed
    )
    SELECT t.request, t.partition_id, t.name, t.head, t.end_offset, v_expires_at, s.first_offset, s.created_at,
           s.message_ids, s.transaction_ids, s.trace_ids, s.payloads, t.finished, t.next_attempts
    FROM taken t
    CROSS JOIN LATERAL segments_v1(t.partition_id, t.head, t.end_offset) s
    ORDER BY t.k, s.first_offset;
END $$;
