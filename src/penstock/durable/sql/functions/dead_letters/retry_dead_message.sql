-- retry_dead_message_v1: push a dead message again to the end of its partition and delete its dead letters.
-- All or nothing. With p_group_id it deletes that group's dead letter only. The message gets a new id and keeps its
-- trace id; its lineage is recorded.
-- Returns: `queued` with the new offset. Without an effect: `not_dead`, `queue_full`, or `operations_waiting` if
-- operations of the partition's lane must run first.
-- Locks: those of push_v1, the partition's row first, so that two retries run one after the other; then the dead
-- letters.
CREATE OR REPLACE FUNCTION retry_dead_message_v1(
    p_partition_id bigint, p_transaction_id text, p_group_id bigint, p_message_id uuid, p_payload bytea,
    p_now timestamptz DEFAULT NULL, OUT outcome text, OUT message_offset bigint
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids    bigint[];
    v_trace  uuid;
    v_pushed record;
BEGIN
    PERFORM 1 FROM partitions WHERE id = p_partition_id FOR NO KEY UPDATE;
    SELECT array_agg(d.id), (array_agg(d.trace_id))[1] INTO v_ids, v_trace FROM dead_letters d
    WHERE d.partition_id = p_partition_id AND d.transaction_id = p_transaction_id
      AND d.group_id = coalesce(p_group_id, d.group_id);
    IF v_ids IS NULL THEN
        outcome := 'not_dead';
        RETURN;
    END IF;
    SELECT * INTO v_pushed FROM push_v1(
        ARRAY[p_partition_id], ARRAY[1], ARRAY[p_message_id], NULL,
        CASE WHEN v_trace IS NOT NULL THEN ARRAY[v_trace] END, ARRAY[p_payload], p_now);
    IF v_pushed.refused_items IS NOT NULL THEN
        outcome := 'queue_full';
        RETURN;
    END IF;
    IF v_pushed.first_offsets[1] = -1 THEN
        outcome := 'operations_waiting';
        RETURN;
    END IF;
    INSERT INTO lineages (partition_id, message_offset, deaths, attempts, first_created_at, first_transaction_id)
    SELECT p_partition_id, v_pushed.first_offsets[1], max(d.deaths), max(d.earlier_attempts + d.attempts),
           min(coalesce(d.first_created_at, d.created_at)), min(coalesce(d.first_transaction_id, d.transaction_id))
    FROM dead_letters d WHERE d.id = ANY (v_ids);
    DELETE FROM dead_letters WHERE id = ANY (v_ids);
    outcome := 'queued';
    message_offset := v_pushed.first_offsets[1];
END $$;
