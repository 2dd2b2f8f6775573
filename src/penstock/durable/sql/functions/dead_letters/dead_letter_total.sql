-- dead_letter_total_v1: how many dead letters there are to page through. Of queues and groups the running count is read;
-- with other filters it counts, up to p_most.
CREATE OR REPLACE FUNCTION dead_letter_total_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_group text, p_partition text,
    p_from timestamptz, p_to timestamptz, p_most int
) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_environment bigint := environment_id_v1(p_organization, p_project, p_environment);
BEGIN
    IF p_partition IS NULL AND p_from IS NULL AND p_to IS NULL THEN
        RETURN (
            SELECT coalesce(sum(s.messages), 0)
            FROM dead_letter_status_v1(p_organization, p_project, p_environment, p_queue, p_group, NULL, 0, false) s);
    END IF;
    RETURN (
        SELECT count(*) FROM (
            SELECT 1 FROM queues q
            JOIN dead_letters d ON d.queue_id = q.id
            LEFT JOIN groups g ON g.id = d.group_id
            LEFT JOIN partitions t ON t.id = d.partition_id
            WHERE q.environment_id = v_environment AND (p_queue IS NULL OR q.name = p_queue)
              AND (p_group IS NULL OR g.name = p_group) AND (p_partition IS NULL OR t.name = p_partition)
              AND d.failed_at >= coalesce(p_from, '-infinity') AND d.failed_at < coalesce(p_to, 'infinity')
            LIMIT p_most) c);
END $$;
