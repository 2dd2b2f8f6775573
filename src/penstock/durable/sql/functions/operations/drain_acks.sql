-- drain_acks_v1: execute the next acks of lanes that the caller has locked.
-- A lease that stays in force gets back the end it had before the deferral, but at least its original duration from
-- now.
-- Returns: a row per queue, group, partition and outcome, with the run times; one of the rows has the number of
-- operations.
-- Locks: partition rows by id, then those of ack_v1.
CREATE OR REPLACE FUNCTION drain_acks_v1(p_lanes bigint[], p_operations int, p_now timestamptz)
RETURNS TABLE (operations int, organization text, project text, environment text, queue_id bigint, queue text,
               partition_id bigint, group_name text, outcome text, messages int, run_ms bigint[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now           timestamptz;
    v_operations    record;
    v_items         record;
    v_outcomes      text[];
    v_acked         jsonb;
BEGIN
    SELECT * INTO v_operations FROM lock_next_operations_v1('ack', p_lanes, p_operations);
    IF v_operations.ids IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(o.partition_id ORDER BY w.n, k.i) AS partition_ids,
           array_agg(k.group_id ORDER BY w.n, k.i) AS group_ids,
           array_agg(k.lease_id ORDER BY w.n, k.i) AS lease_ids, array_agg(k.lease_end ORDER BY w.n, k.i) AS lease_ends,
           array_agg(k.transaction_id ORDER BY w.n, k.i) AS transaction_ids,
           array_agg(k.status ORDER BY w.n, k.i) AS statuses, array_agg(k.error ORDER BY w.n, k.i) AS errors
    INTO v_items
    FROM unnest(v_operations.ids) WITH ORDINALITY AS w (id, n)
    JOIN operations o ON o.id = w.id
    CROSS JOIN LATERAL unnest(o.group_ids, o.lease_ids, o.lease_ends, o.transaction_ids, o.statuses, o.errors)
               WITH ORDINALITY AS k (group_id, lease_id, lease_end, transaction_id, status, error, i);

    SELECT jsonb_agg(to_jsonb(a)) INTO v_acked
    FROM ack_v1(v_items.partition_ids, v_items.group_ids, v_items.lease_ids, v_items.transaction_ids,
                v_items.statuses, v_items.errors, p_now) a;
    SELECT array_agg(a.outcome ORDER BY i.item) INTO v_outcomes
    FROM jsonb_to_recordset(v_acked) AS a (items int[], outcome text) CROSS JOIN LATERAL unnest(a.items) AS i (item);

    v_now := coalesce(p_now, clock_timestamp());
    UPDATE positions p SET lease_expires_at = greatest(l.lease_end, v_now + (l.lease_end - p.leased_at)),
           ready_at = greatest(l.lease_end, v_now + (l.lease_end - p.leased_at))
    FROM (SELECT k.partition_id, k.group_id, k.lease_id, min(k.lease_end) AS lease_end
          FROM unnest(v_items.partition_ids, v_items.group_ids, v_items.lease_ids, v_items.lease_ends)
               AS k (partition_id, group_id, lease_id, lease_end) GROUP BY 1, 2, 3) l
    WHERE p.partition_id = l.partition_id AND p.group_id = l.group_id AND p.lease_id = l.lease_id
      AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.partition_id = l.partition_id AND o.kind = 'ack'
                      AND o.status = 'pending' AND o.lease_ids @> ARRAY[l.lease_id] AND o.id <> ALL (v_operations.ids));

    WITH completed_operations AS (
        SELECT w.id, w.length, sum(w.length) OVER (ORDER BY w.n) AS hi
        FROM unnest(v_operations.ids, v_operations.lengths) WITH ORDINALITY AS w (id, length, n)
    )
    UPDATE operations o SET status = 'completed', finished_at = clock_timestamp(), error = NULL,
           result = jsonb_build_object('outcomes', to_jsonb(v_outcomes[w.hi - w.length + 1:w.hi]))
    FROM completed_operations w WHERE o.id = w.id;
    PERFORM remove_from_lanes_v1('ack', p_lanes, v_operations.counts);

    RETURN QUERY
    SELECT CASE WHEN row_number() OVER () = 1 THEN cardinality(v_operations.ids) ELSE 0 END,
           e.organization, e.project, e.name, a.queue_id, a.queue, v_items.partition_ids[a.items[1]], a.group_name,
           a.outcome, cardinality(a.items), array_fill(coalesce(a.run_ms, 0), ARRAY[cardinality(a.items)])
    FROM jsonb_to_recordset(v_acked)
         AS a (items int[], outcome text, queue_id bigint, queue text, group_name text, run_ms bigint)
    LEFT JOIN queues q ON q.id = a.queue_id
    LEFT JOIN environments e ON e.id = q.environment_id;
END $$;
