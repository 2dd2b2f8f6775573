-- configure_queue_v1: set options of a queue; create the queue with its Default partition if it is missing.
-- p_changes maps columns of `queues` to their new values; columns it leaves out stay as they are.
-- Waiting positions follow a changed delay or window at once. A delayed retry is not moved forward, and a lease in
-- force stays as it is; the new options apply after it.
-- Returns: the queue's id, the id of its Default partition (NULL if it has none) and its row.
-- Raises: PK004 the queue was deleted meanwhile; try again. PK007 it would be encrypted and have index keys.
-- Locks: the queue (exclusive); its row; its partitions by id if an index key is new; then the waiting positions by
-- partition and group.
CREATE OR REPLACE FUNCTION configure_queue_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_changes jsonb
) RETURNS TABLE (queue_id bigint, partition_id bigint, queue jsonb)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_environment bigint := environment_id_v1(p_organization, p_project, p_environment);
    v_is_new      boolean;
    v_old         queues;
    v_row         queues;
BEGIN
    v_is_new := NOT EXISTS (SELECT 1 FROM queues q WHERE q.environment_id = v_environment AND q.name = p_queue);
    v_environment := ensure_queues_v1(p_organization, p_project, p_environment, ARRAY[p_queue]);
    PERFORM lock_queues_v1(array_agg(q.id), true) FROM queues q
    WHERE q.environment_id = v_environment AND q.name = p_queue;
    SELECT q.* INTO v_old FROM queues q
    WHERE q.environment_id = v_environment AND q.name = p_queue FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the queue was deleted meanwhile' USING ERRCODE = 'PK004';
    END IF;
    v_row := jsonb_populate_record(v_old, p_changes);
    v_row.index_keys := nullif(v_row.index_keys, '{}');
    IF v_row.encrypted AND v_row.index_keys IS NOT NULL THEN
        RAISE EXCEPTION 'an encrypted queue cannot have index keys' USING ERRCODE = 'PK007';
    END IF;
    IF NOT v_row.index_keys <@ coalesce(v_old.index_keys, '{}') THEN
        -- Running pushes finish without the new keys, and later pushes read them: nothing is indexed halfway.
        PERFORM 1 FROM partitions t WHERE t.queue_id = v_old.id ORDER BY t.id FOR NO KEY UPDATE;
    END IF;
    v_row.indexed_since := (
        SELECT array_agg(coalesce(v_old.indexed_since[array_position(v_old.index_keys, k.key)], clock_timestamp())
                         ORDER BY k.n)
        FROM unnest(v_row.index_keys) WITH ORDINALITY AS k (key, n));
    UPDATE queues q SET
        namespace = v_row.namespace, task = v_row.task, lease_ms = v_row.lease_ms,
        retry_limit = v_row.retry_limit, retry_delay_ms = v_row.retry_delay_ms,
        dead_after_limit = v_row.dead_after_limit, keep_dead = v_row.keep_dead, priority = v_row.priority,
        delay_ms = v_row.delay_ms, window_ms = v_row.window_ms, ttl_ms = v_row.ttl_ms,
        max_wait_ms = v_row.max_wait_ms, max_size = v_row.max_size, max_partitions = v_row.max_partitions,
        retention_enabled = v_row.retention_enabled, retention_ms = v_row.retention_ms,
        completed_retention_ms = v_row.completed_retention_ms, encrypted = v_row.encrypted,
        index_keys = v_row.index_keys, indexed_since = v_row.indexed_since
    WHERE q.id = v_old.id;
    IF v_is_new THEN
        PERFORM ensure_partitions_v1(p_organization, p_project, p_environment, ARRAY[p_queue], ARRAY['Default']);
    END IF;
    IF (v_row.delay_ms, v_row.window_ms) <> (v_old.delay_ms, v_old.window_ms) THEN
        PERFORM reschedule_positions_v1(v_old.id, v_old.delay_ms, v_old.window_ms);
    END IF;
    RETURN QUERY
    SELECT q.id, (SELECT t.id FROM partitions t WHERE t.queue_id = q.id AND t.name = 'Default'), to_jsonb(q)
    FROM queues q WHERE q.id = v_old.id;
END $$;
