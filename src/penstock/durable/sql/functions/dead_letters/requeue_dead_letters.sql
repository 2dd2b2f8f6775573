-- requeue_dead_letters_v1: push dead messages again to the end of their partitions and delete their dead letters.
-- Each dead letter is requeued completely or not at all; within a partition the messages keep their original order. A
-- message gets a new id and keeps its trace id. Its lineage is recorded: when it was first pushed, its attempts, and
-- how often it has died. The message is for the group that gave up on it: the other groups of the queue finish it at
-- once, unless a group already has so many single finished messages beyond its cursor that one more would slow it down;
-- such a group gets the message again. If the group was deleted, all groups get the message.
-- p_message_ids has at least as many new ids as there are dead letters.
-- Returns: the outcome of each dead letter that exists: `queued` with its new offset. Without an effect: `queue_full`;
-- `behind` if operations wait in the partition's lane; `unsealed` if the payload is plain and the queue is encrypted
-- now.
-- Locks: partition rows by id; dead letters by id; those of push_v1; the positions of the other groups by partition and
-- group; their tallies. Dead letters are deleted last: a pending delete blocks a new dead letter of the same message.
CREATE OR REPLACE FUNCTION requeue_dead_letters_v1(p_ids bigint[], p_message_ids uuid[], p_now timestamptz DEFAULT NULL)
RETURNS TABLE (id bigint, outcome text, queue_id bigint, partition_id bigint, message_offset bigint, message_id uuid)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now          timestamptz := coalesce(p_now, clock_timestamp());
    v_dead_letters record;
    v_segments     record;
    v_pushed       record;
    v_results      record;
    v_other        record;
BEGIN
    PERFORM 1 FROM partitions t
    WHERE t.id IN (SELECT d.partition_id FROM dead_letters d WHERE d.id = ANY (p_ids))
    ORDER BY t.id FOR NO KEY UPDATE;
    PERFORM 1 FROM dead_letters d WHERE d.id = ANY (p_ids) ORDER BY d.id FOR UPDATE;
    RETURN QUERY
    SELECT d.id, 'unsealed', d.queue_id, d.partition_id, NULL::bigint, NULL::uuid
    FROM dead_letters d JOIN queues q ON q.id = d.queue_id
    WHERE d.id = ANY (p_ids) AND needs_encryption_v1(q.encrypted, d.payload);

    SELECT array_agg(l.id ORDER BY l.n) AS ids, array_agg(l.queue_id ORDER BY l.n) AS queue_ids,
           array_agg(l.partition_id ORDER BY l.n) AS partition_ids, array_agg(l.trace_id ORDER BY l.n) AS trace_ids,
           array_agg(l.payload ORDER BY l.n) AS payloads, bool_or(l.trace_id IS NOT NULL) AS has_trace_ids
    INTO v_dead_letters
    FROM (SELECT d.*, row_number() OVER (ORDER BY d.partition_id, d.message_offset, d.id) AS n
          FROM dead_letters d JOIN queues q ON q.id = d.queue_id
          WHERE d.id = ANY (p_ids) AND NOT needs_encryption_v1(q.encrypted, d.payload)) l;
    IF v_dead_letters.ids IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(s.partition_id ORDER BY s.partition_id) AS partition_ids,
           array_agg(s.length ORDER BY s.partition_id) AS lengths
    INTO v_segments
    FROM (SELECT k.partition_id, count(*)::int AS length FROM unnest(v_dead_letters.partition_ids) AS k (partition_id)
          GROUP BY k.partition_id) s;
    SELECT * INTO v_pushed FROM push_v1(
        v_segments.partition_ids, v_segments.lengths, p_message_ids[1:cardinality(v_dead_letters.ids)], NULL,
        CASE WHEN v_dead_letters.has_trace_ids THEN v_dead_letters.trace_ids END, v_dead_letters.payloads, p_now);

    SELECT array_agg(k.id) AS ids, array_agg(k.outcome) AS outcomes, array_agg(k.queue_id) AS queue_ids,
           array_agg(k.partition_id) AS partition_ids, array_agg(k.message_offset) AS offsets,
           array_agg(k.message_id) AS message_ids
    INTO v_results
    FROM (
        SELECT l.id, l.queue_id, l.partition_id,
               CASE WHEN NOT l.accepted THEN 'queue_full' WHEN f.first_offset >= 0 THEN 'queued'
                    ELSE 'behind' END AS outcome,
               CASE WHEN l.accepted AND f.first_offset >= 0 THEN f.first_offset - 1 + count(*) FILTER (WHERE l.accepted)
                    OVER (PARTITION BY l.partition_id ORDER BY l.n) END AS message_offset,
               p_message_ids[l.n] AS message_id
        FROM (SELECT k.*, k.n <> ALL (coalesce(v_pushed.refused_items, '{}')) AS accepted
              FROM unnest(v_dead_letters.ids, v_dead_letters.queue_ids, v_dead_letters.partition_ids)
                   WITH ORDINALITY AS k (id, queue_id, partition_id, n)) l
        JOIN unnest(v_segments.partition_ids, v_pushed.first_offsets) AS f (partition_id, first_offset)
          ON f.partition_id = l.partition_id
    ) k;
    INSERT INTO lineages (partition_id, message_offset, deaths, attempts, first_created_at, first_transaction_id)
    SELECT k.partition_id, k.message_offset, d.deaths, d.earlier_attempts + d.attempts,
           coalesce(d.first_created_at, d.created_at), coalesce(d.first_transaction_id, d.transaction_id)
    FROM unnest(v_results.ids, v_results.outcomes, v_results.partition_ids, v_results.offsets)
         AS k (id, outcome, partition_id, message_offset)
    JOIN dead_letters d ON d.id = k.id
    WHERE k.outcome = 'queued';

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
            FROM unnest(v_results.ids, v_results.outcomes, v_results.offsets) AS k (id, outcome, message_offset)
            JOIN dead_letters d ON d.id = k.id
            JOIN groups g ON g.id = d.group_id
            JOIN positions p ON p.partition_id = d.partition_id AND p.group_id <> d.group_id
            WHERE k.outcome = 'queued' AND (SELECT count(*) FROM unnest(p.finished)) < 1000
            GROUP BY p.partition_id, p.group_id ORDER BY p.partition_id, p.group_id
        LOOP
            PERFORM settle_position_v1(v_other.partition_id, v_other.group_id, v_other.offsets, '{}', v_now);
        END LOOP;
    END IF;

    DELETE FROM dead_letters d USING unnest(v_results.ids, v_results.outcomes) AS k (id, outcome)
    WHERE d.id = k.id AND k.outcome = 'queued';
    RETURN QUERY
    SELECT k.id, k.outcome, k.queue_id, k.partition_id, k.message_offset,
           CASE WHEN k.outcome = 'queued' THEN k.message_id END
    FROM unnest(v_results.ids, v_results.outcomes, v_results.queue_ids, v_results.partition_ids, v_results.offsets,
                v_results.message_ids) AS k (id, outcome, queue_id, partition_id, message_offset, message_id);
END $$;
