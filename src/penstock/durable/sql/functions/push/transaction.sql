-- transaction_v1: push and ack messages in one step, all or nothing.
-- The arguments are those of push_v1 and ack_v1; either half may be empty. A duplicate is skipped and returned, as in
-- push_v1.
-- Raises: PK003 if any item cannot be pushed or acked, so that nothing of the transaction remains. The detail is JSON:
-- {"part": "push" or "ack", "item": n, "reason": ...}, n counts from 1.
CREATE OR REPLACE FUNCTION transaction_v1(
    p_partition_ids bigint[], p_lengths int[], p_message_ids uuid[], p_transaction_ids text[],
    p_trace_ids uuid[], p_payloads bytea[], p_ack_partition_ids bigint[], p_ack_group_ids bigint[],
    p_ack_lease_ids uuid[], p_ack_transaction_ids text[], p_ack_statuses text[], p_ack_errors text[],
    p_now timestamptz DEFAULT NULL
) RETURNS TABLE (duplicate_items int[], duplicate_ids uuid[], outcomes text[], queues text[],
                 partitions text[], groups text[], queue_ids bigint[], run_ms bigint[])
LANGUAGE plpgsql AS $$
DECLARE
    v_pushed record;
    v_item   int;
    v_reason text;
BEGIN
    IF cardinality(p_partition_ids) > 0 THEN
        SELECT * INTO v_pushed FROM push_v1(
            p_partition_ids, p_lengths, p_message_ids, p_transaction_ids, p_trace_ids, p_payloads, p_now);
        IF v_pushed.refused_items IS NOT NULL THEN
            v_item := v_pushed.refused_items[1];
            v_reason := 'queue_full';
        ELSIF array_position(v_pushed.first_offsets, NULL) IS NOT NULL THEN
            v_item := 1;
            v_reason := 'partition_gone';
        ELSIF -1 = ANY (v_pushed.first_offsets) THEN
            v_item := 1;
            v_reason := 'operations_waiting';
        END IF;
        IF v_reason IS NOT NULL THEN
            RAISE EXCEPTION 'the transaction was not carried out' USING ERRCODE = 'PK003',
                DETAIL = json_build_object('part', 'push', 'item', v_item, 'reason', v_reason)::text;
        END IF;
        duplicate_items := v_pushed.duplicate_items;
        duplicate_ids := v_pushed.duplicate_ids;
    END IF;
    SELECT array_agg(a.outcome ORDER BY i), array_agg(a.queue ORDER BY i), array_agg(a.partition ORDER BY i),
           array_agg(a.group_name ORDER BY i), array_agg(a.queue_id ORDER BY i), array_agg(a.run_ms ORDER BY i)
    INTO outcomes, queues, partitions, groups, queue_ids, run_ms
    FROM ack_v1(p_ack_partition_ids, p_ack_group_ids, p_ack_lease_ids, p_ack_transaction_ids,
                p_ack_statuses, p_ack_errors, p_now) a
    CROSS JOIN LATERAL unnest(a.items) i;
    SELECT o.n, o.outcome INTO v_item, v_reason
    FROM unnest(outcomes) WITH ORDINALITY AS o (outcome, n)
    WHERE o.outcome IN ('lease_lost', 'not_leased') ORDER BY o.n LIMIT 1;
    IF v_reason IS NOT NULL THEN
        RAISE EXCEPTION 'the transaction was not carried out' USING ERRCODE = 'PK003',
            DETAIL = json_build_object('part', 'ack', 'item', v_item, 'reason', v_reason)::text;
    END IF;
    RETURN NEXT;
END $$;
