-- count_matching_dead_letters_v1: count the dead letters that match filters, for paging.
-- With only a queue and a group as filters it reads the running count, which is exact. With other filters it counts
-- rows, up to p_max_count.
-- Volatile, so that its snapshot is not older than the last rewrite_table_v1 of a table it reads.
CREATE OR REPLACE FUNCTION count_matching_dead_letters_v1(
    p_organization text, p_project text, p_environment text, p_queue text, p_group text, p_partition text,
    p_from timestamptz, p_to timestamptz, p_max_count int
) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
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
            LIMIT p_max_count) c);
END $$;
