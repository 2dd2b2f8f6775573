-- record_sample_outcomes_v1: record which messages of a job's sample their groups have finished: acked, or dead again.
-- Locks: the sample's rows.
-- Cost: follows the size of the sample.
CREATE OR REPLACE FUNCTION record_sample_outcomes_v1(p_job_id uuid) RETURNS void
LANGUAGE sql AS $$
    WITH finished AS MATERIALIZED (
        SELECT s.item, d.id IS NOT NULL AS is_dead, left(d.error, 4000) AS error
        FROM job_samples s
        JOIN positions p ON p.partition_id = s.partition_id AND p.group_id = s.group_id
        LEFT JOIN dead_letters d ON d.partition_id = s.partition_id AND d.group_id = s.group_id
                                AND d.message_offset = s.message_offset
        WHERE s.job_id = p_job_id AND s.outcome IS NULL
          AND (p.cursor > s.message_offset OR p.finished @> s.message_offset)
    )
    UPDATE job_samples s SET outcome = CASE WHEN f.is_dead THEN 'dead' ELSE 'acked' END, error = f.error
    FROM finished f WHERE s.job_id = p_job_id AND s.item = f.item
$$;
