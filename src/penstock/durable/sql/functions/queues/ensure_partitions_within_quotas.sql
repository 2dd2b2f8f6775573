-- ensure_partitions_within_quotas_v1: ensure that queues and partitions exist, as far as quotas allow new ones.
-- Returns: the rows of ensure_partitions_v1, without partitions that exceed a quota.
-- Raises: PK004 a queue was deleted meanwhile; try again.
-- Locks: the environment, so that concurrent calls do not exceed the quotas together; then as ensure_partitions_v1.
CREATE OR REPLACE FUNCTION ensure_partitions_within_quotas_v1(
    p_organization text, p_project text, p_environment text, p_queues text[], p_partitions text[],
    p_max_queues bigint, p_max_partitions bigint
) RETURNS TABLE (queue text, partition text, queue_id bigint, partition_id bigint, encrypted boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_queues     text[];
    v_partitions text[];
BEGIN
    PERFORM 1 FROM environments e WHERE e.id = environment_id_v1(p_organization, p_project, p_environment)
    FOR NO KEY UPDATE;
    SELECT array_agg(x.queue), array_agg(x.partition) INTO v_queues, v_partitions
    FROM exceeded_quotas_v1(p_organization, p_project, p_environment, p_queues, p_partitions, p_max_queues,
                            p_max_partitions) x
    WHERE x.exceeded IS NULL;
    IF v_queues IS NOT NULL THEN
        RETURN QUERY
        SELECT * FROM ensure_partitions_v1(p_organization, p_project, p_environment, v_queues, v_partitions);
    END IF;
END $$;
