-- requeue_dead_letters_v1: push dead messages again to the end of their partitions and delete their dead letters.
-- Each message is requeued completely or not at all; within a partition the messages keep their original order. A
-- message gets a new id and keeps its trace id. Its lineage is recorded: when it was first pushed, its attempts, and
-- how often it has died.
-- p_audience `group`: each dead letter becomes a message for the group that gave up on it. The other groups of the
-- queue finish it at once, unless a group already has so many single finished messages beyond its cursor that one more
-- would slow it down; such a group gets the message again. If the group was deleted, all groups get the message.
-- p_audience `all`: all groups get the message. The dead letters of one message become one message.
-- p_message_ids has at least as many new ids as there are dead letters.
-- Returns: the outcome of each dead letter that exists: `queued` with its new message. Without an effect: `queue_full`;
-- `operations_waiting` if operations of the partition's lane must run first; `unsealed` if the payload is plain and the
-- queue is encrypted now.
-- Locks: partition rows by id; dead letters by id; those of push_v1; the positions of the other groups by partition and
-- group; their tallies. Dead letters are deleted last: a pending delete blocks a new dead letter of the same message.
CREATE OR REPLACE FUNCTION requeue_dead_letters_v1(
    p_ids bigint[], p_message_ids uuid[], p_audience text, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (id bigint, outcome text, queue_id bigint, partition_id bigint, message_offset bigint, message_id uuid)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now          timestamptz := coalesce(p_now, clock_timestamp());
    v_dead_letters record;
    v_messages     record;
    v_segments     record;
    v_pushed       record;
    v_results      record;
    v_other        record;
BEGIN
    PERFORM 1 FROM partitions t
    WHERE t.id IN (SELECT d.partition_id FROM dead_letters d WHERE d.id = ANY (p_ids))
    ORDER BY t.id FOR NO KEY UPDATE;
    PERFORM 1 FROM dead_letters d WHERE d.id = ANY (p_ids) ORDER BY d.id FOR UPDATE;

    -- The number of each dead letter's message, from 1 in the order of the pushes; NULL if it must be encrypted first.
    SELECT array_agg(l.id) AS ids, array_agg(CASE WHEN NOT l.is_unsealed THEN l.n END) AS message_numbers
    INTO v_dead_letters
    FROM (SELECT k.id, k.is_unsealed,
                 dense_rank() OVER (ORDER BY k.is_unsealed, k.partition_id, k.message_offset, k.recipient) AS n
          FROM (SELECT d.id, d.partition_id, d.message_offset, r.recipient,
                       bool_and(needs_encryption_v1(q.encrypted, d.payload))
                           OVER (PARTITION BY d.partition_id, d.message_offset, r.recipient) AS is_unsealed
                FROM dead_letters d JOIN queues q ON q.id = d.queue_id
                CROSS JOIN LATERAL (SELECT CASE p_audience WHEN 'group' THEN d.group_id END AS recipient) r
                WHERE d.id = ANY (p_ids)) k) l;
    SELECT array_agg(m.partition_id ORDER BY m.n) AS partition_ids, array_agg(m.trace_id ORDER BY m.n) AS trace_ids,
           array_agg(m.payload ORDER BY m.n) AS payloads, bool_or(m.trace_id IS NOT NULL) AS has_trace_ids
    INTO v_messages
    FROM (SELECT l.n, min(d.partition_id) AS partition_id, (array_agg(d.trace_id))[1] AS trace_id,
                 (array_agg(d.payload ORDER BY needs_encryption_v1(q.encrypted, d.payload)))[1] AS payload
          FROM unnest(v_dead_letters.ids, v_dead_letters.message_numbers) AS l (id, n)
          JOIN dead_letters d ON d.id = l.id JOIN queues q ON q.id = d.queue_id
          WHERE l.n IS NOT NULL GROUP BY l.n) m;
    IF v_messages.partition_ids IS NULL THEN
        RETURN QUERY
        SELECT d.id, 'unsealed', d.queue_id, d.partition_id, NULL::bigint, NULL::uuid
        FROM dead_letters d WHERE d.id = ANY (p_ids);
        RETURN;
    END IF;
    SELECT array_agg(s.partition_id ORDER BY s.partition_id) AS partition_ids,
           array_agg(s.length ORDER BY s.partition_id) AS lengths
    INTO v_segments
    FROM (SELECT k.partition_id, count(*)::int AS length FROM unnest(v_messages.partition_ids) AS k (partition_id)
          GROUP BY k.partition_id) s;
    SELECT * INTO v_pushed FROM push_v1(
        v_segments.partition_ids, v_segments.lengths, p_message_ids[1:cardinality(v_messages.partition_ids)], NULL,
        CASE WHEN v_messages.has_trace_ids THEN v_messages.trace_ids END, v_messages.payloads, p_now);

    SELECT array_agg(l.id) AS ids, array_agg(coalesce(m.outcome, 'unsealed')) AS outcomes,
           array_agg(m.message_offset) AS offsets,
           array_agg(CASE WHEN m.outcome = 'queued' THEN p_message_ids[m.n] END) AS message_ids
    INTO v_results
    FROM unnest(v_dead_letters.ids, v_dead_letters.message_numbers) AS l (id, n)
    LEFT JOIN (
        SELECT k.n,
               CASE WHEN NOT k.is_accepted THEN 'queue_full' WHEN f.first_offset >= 0 THEN 'queued'
                    ELSE 'operations_waiting' END AS outcome,
               CASE WHEN k.is_accepted AND f.first_offset >= 0
                    THEN f.first_offset - 1 + count(*) FILTER (WHERE k.is_accepted)
                         OVER (PARTITION BY k.partition_id ORDER BY k.n) END AS message_offset
        FROM (SELECT k.*, k.n <> ALL (coalesce(v_pushed.refused_items, '{}')) AS is_accepted
              FROM unnest(v_messages.partition_ids) WITH ORDINALITY AS k (partition_id, n)) k
        JOIN unnest(v_segments.partition_ids, v_pushed.first_offsets) AS f (partition_id, first_offset)
          ON f.partition_id = k.partition_id
    ) m ON m.n = l.n;
    INSERT INTO lineages (partition_id, message_offset, deaths, attempts, first_created_at, first_transaction_id)
    SELECT d.partition_id, k.message_offset, max(d.deaths), max(d.earlier_attempts + d.attempts),
           min(coalesce(d.first_created_at, d.created_at)), min(coalesce(d.first_transaction_id, d.transaction_id))
    FROM unnest(v_results.ids, v_results.offsets) AS k (id, message_offset)
    JOIN dead_letters d ON d.id = k.id
    WHERE k.message_offset IS NOT NULL GROUP BY d.partition_id, k.message_offset;

    IF p_audience = 'group' THEN
        PERFORM 1 FROM positions p WHERE p.partition_id = ANY (v_segments.partition_ids)
            AND EXISTS (SELECT 1 FROM dead_letters d JOIN groups g ON g.id = d.group_id
                        WHERE d.id = ANY (v_dead_letters.ids) AND d.partition_id = p.partition_id
                          AND d.group_id <> p.group_id)
        ORDER BY p.partition_id, p.group_id FOR UPDATE;
        IF FOUND THEN
            PERFORM lock_tallies_v1(array_agg(p.partition_id), array_agg(p.group_id)) FROM positions p
            WHERE p.partition_id = ANY (v_segments.partition_ids);
            FOR v_other IN
                SELECT p.partition_id, p.group_id,
                       range_agg(int8range(k.message_offset, k.message_offset + 1)) AS offsets
                FROM unnest(v_results.ids, v_results.offsets) AS k (id, message_offset)
                JOIN dead_letters d ON d.id = k.id
                JOIN groups g ON g.id = d.group_id
                JOIN positions p ON p.partition_id = d.partition_id AND p.group_id <> d.group_id
                WHERE k.message_offset IS NOT NULL AND (SELECT count(*) FROM unnest(p.finished)) < 1000
                GROUP BY p.partition_id, p.group_id ORDER BY p.partition_id, p.group_id
            LOOP
                PERFORM settle_position_v1(v_other.partition_id, v_other.group_id, v_other.offsets, '{}', v_now);
            END LOOP;
        END IF;
    END IF;

    RETURN QUERY
    SELECT k.id, k.outcome, d.queue_id, d.partition_id, k.message_offset, k.message_id
    FROM unnest(v_results.ids, v_results.outcomes, v_results.offsets, v_results.message_ids)
         AS k (id, outcome, message_offset, message_id)
    JOIN dead_letters d ON d.id = k.id ORDER BY k.id;
    INSERT INTO message_events (partition_id, first_offset, group_id, event, offsets, began_at, happened_at, attempts,
                                error, new_message_id)
    SELECT d.partition_id, d.message_offset, d.group_id, 'requeued',
           int8multirange(int8range(d.message_offset, d.message_offset + 1)), d.failed_at, v_now, d.attempts,
           left(d.error, 2000), k.message_id
    FROM unnest(v_results.ids, v_results.outcomes, v_results.message_ids) AS k (id, outcome, message_id)
    JOIN dead_letters d ON d.id = k.id WHERE k.outcome = 'queued';
    DELETE FROM dead_letters d USING unnest(v_results.ids, v_results.outcomes) AS k (id, outcome)
    WHERE d.id = k.id AND k.outcome = 'queued';
END $$;
