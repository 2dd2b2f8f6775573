-- message_job_offsets_v1: the offsets of a partition that a job on messages selects, without regard to their payloads:
-- stored, pushed within its times, and, if it names a group, not finished by that group.
-- Cost: a binary search per time, and the deleted and finished ranges of the partition.
-- Volatile, so that its snapshot is not older than the last rewrite_table_v1 of a table it reads.
CREATE OR REPLACE FUNCTION message_job_offsets_v1(p_job jobs, p_partition_id bigint) RETURNS int8multirange
LANGUAGE sql VOLATILE AS $$
    SELECT int8multirange(int8range(k.low, greatest(k.low, k.high)))
           - deleted_offsets_v1(t.id, t.low_offset)
           - coalesce(int8multirange(int8range(NULL, p.cursor)) + p.finished, '{}')
    FROM partitions t
    CROSS JOIN LATERAL (
        SELECT CASE WHEN p_job.failed_from IS NULL THEN t.low_offset
                    ELSE offset_at_time_v1(t.id, p_job.failed_from) END AS low,
               offset_at_time_v1(t.id, p_job.failed_before) AS high
    ) k
    LEFT JOIN groups g ON g.queue_id = t.queue_id AND g.name = p_job.group_name
    LEFT JOIN positions p ON p.partition_id = t.id AND p.group_id = g.id
    WHERE t.id = p_partition_id
$$;
