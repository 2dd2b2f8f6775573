-- next_dead_letters_v1: find the next dead letters of a job after its cursor, by queue, group and time of death.
-- Finds up to p_limit and scans up to p_scan_limit. Encrypted payloads do not match a text: that would require
-- decrypting them first.
-- Returns: their ids, the number of dead letters scanned, the job's cursor after them, and whether there are no more.
-- Cost: follows p_scan_limit and the number of queues and groups, never the remaining dead letters.
-- Volatile, so that its snapshot is not older than the last rewrite_table_v1 of a table it reads.
CREATE OR REPLACE FUNCTION next_dead_letters_v1(
    p_job jobs, p_limit int, p_scan_limit int, OUT ids bigint[], OUT scanned bigint, OUT cursor_queue_id bigint,
    OUT cursor_group_id bigint, OUT cursor_failed_at timestamptz, OUT cursor_dead_letter_id bigint, OUT ended boolean
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_queue_group record;
    v_batch       record;
    v_payload     bytea := convert_to(p_job.payload, 'UTF8');
BEGIN
    ids := '{}';
    scanned := 0;
    cursor_queue_id := p_job.cursor_queue_id;
    cursor_group_id := p_job.cursor_group_id;
    cursor_failed_at := p_job.cursor_failed_at;
    cursor_dead_letter_id := p_job.cursor_dead_letter_id;
    IF p_job.dead_letter_ids IS NOT NULL THEN
        SELECT array_agg(k.id ORDER BY k.id) INTO ids FROM (
            SELECT DISTINCT i AS id FROM unnest(p_job.dead_letter_ids) i
            WHERE i > p_job.cursor_dead_letter_id ORDER BY i LIMIT p_limit) k;
        ended := ids IS NULL;
        scanned := coalesce(cardinality(ids), 0);
        cursor_dead_letter_id := coalesce(ids[cardinality(ids)], p_job.cursor_dead_letter_id);
        ids := array(SELECT d.id FROM dead_letters d JOIN queues q ON q.id = d.queue_id
                     WHERE d.id = ANY (ids) AND q.environment_id = p_job.environment_id ORDER BY d.id);
        RETURN;
    END IF;
    FOR v_queue_group IN
        SELECT DISTINCT c.queue_id, c.group_id, t.id AS partition_id
        FROM (SELECT queue_id, group_id FROM dead_counts UNION SELECT queue_id, group_id FROM dead_tallies) c
        JOIN queues q ON q.id = c.queue_id
        LEFT JOIN groups g ON g.id = c.group_id
        LEFT JOIN partitions t ON t.queue_id = q.id AND t.name = p_job.partition
        WHERE q.environment_id = p_job.environment_id AND (p_job.queue IS NULL OR q.name = p_job.queue)
          AND (p_job.group_name IS NULL OR g.name = p_job.group_name)
          AND (p_job.partition IS NULL OR t.id IS NOT NULL)
          AND (c.queue_id, c.group_id) >= (p_job.cursor_queue_id, p_job.cursor_group_id)
        ORDER BY c.queue_id, c.group_id
    LOOP
        IF (v_queue_group.queue_id, v_queue_group.group_id) <> (cursor_queue_id, cursor_group_id) THEN
            cursor_queue_id := v_queue_group.queue_id;
            cursor_group_id := v_queue_group.group_id;
            cursor_failed_at := '-infinity';
            cursor_dead_letter_id := 0;
        END IF;
        SELECT coalesce(array_agg(c.id ORDER BY c.failed_at, c.id) FILTER (WHERE c.matches), '{}') AS ids,
               count(*) AS scanned, (array_agg(c.failed_at ORDER BY c.failed_at DESC, c.id DESC))[1] AS failed_at,
               (array_agg(c.id ORDER BY c.failed_at DESC, c.id DESC))[1] AS id
        INTO v_batch
        FROM (
            SELECT l.*, count(*) FILTER (WHERE l.matches) OVER (ORDER BY l.failed_at, l.id) AS n
            FROM (
                SELECT d.id, d.failed_at,
                       d.partition_id = coalesce(v_queue_group.partition_id, d.partition_id)
                       AND (p_job.error_key IS NULL OR d.error_key = p_job.error_key)
                       AND (p_job.error IS NULL OR position(lower(p_job.error) IN lower(coalesce(d.error, ''))) > 0)
                       AND (v_payload IS NULL
                            OR length(d.payload) > 0 AND get_byte(d.payload, 0) <> 1
                               AND position(v_payload IN plain_payload_v1(d.payload)) > 0) AS matches
                FROM dead_letters d
                WHERE d.queue_id = v_queue_group.queue_id AND d.group_id = v_queue_group.group_id
                  AND d.failed_at >= greatest(cursor_failed_at, p_job.failed_from) AND d.failed_at < p_job.failed_before
                  AND (d.failed_at, d.id) > (cursor_failed_at, cursor_dead_letter_id)
                ORDER BY d.failed_at, d.id LIMIT p_scan_limit - scanned
            ) l
        ) c
        WHERE c.n < p_limit - cardinality(ids) OR c.matches AND c.n = p_limit - cardinality(ids);
        IF v_batch.scanned > 0 THEN
            ids := ids || v_batch.ids;
            scanned := scanned + v_batch.scanned;
            cursor_failed_at := v_batch.failed_at;
            cursor_dead_letter_id := v_batch.id;
        END IF;
        IF cardinality(ids) >= p_limit OR scanned >= p_scan_limit THEN
            ended := false;
            RETURN;
        END IF;
    END LOOP;
    ended := true;
END $$;
