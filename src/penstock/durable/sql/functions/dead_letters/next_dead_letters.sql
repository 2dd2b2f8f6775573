-- next_dead_letters_v1: the next letters a job is about: up to p_limit, after where it stands, looking at up to p_look; by queue,
-- group and time of death. Returns their ids, how many were looked at, where the job stands behind them, and whether
-- there are no more.
-- Sealed payloads do not match a text: they would have to be opened first.
-- Cost follows p_look and the number of queues and groups, never the letters that are left.
CREATE OR REPLACE FUNCTION next_dead_letters_v1(
    p_job jobs, p_limit int, p_look int, OUT ids bigint[], OUT looked_at bigint, OUT at_queue_id bigint,
    OUT at_group_id bigint, OUT at_failed_at timestamptz, OUT at_id bigint, OUT ended boolean
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    v_place   record;
    v_found   record;
    v_payload bytea := convert_to(p_job.payload, 'UTF8');
BEGIN
    ids := '{}';
    looked_at := 0;
    at_queue_id := p_job.at_queue_id;
    at_group_id := p_job.at_group_id;
    at_failed_at := p_job.at_failed_at;
    at_id := p_job.at_id;
    IF p_job.letter_ids IS NOT NULL THEN
        SELECT array_agg(k.id ORDER BY k.id) INTO ids FROM (
            SELECT DISTINCT i AS id FROM unnest(p_job.letter_ids) i WHERE i > p_job.at_id ORDER BY i LIMIT p_limit) k;
        ended := ids IS NULL;
        looked_at := coalesce(cardinality(ids), 0);
        at_id := coalesce(ids[cardinality(ids)], p_job.at_id);
        ids := array(SELECT d.id FROM dead_letters d JOIN queues q ON q.id = d.queue_id
                     WHERE d.id = ANY (ids) AND q.environment_id = p_job.environment_id ORDER BY d.id);
        RETURN;
    END IF;
    FOR v_place IN
        SELECT DISTINCT c.queue_id, c.group_id, t.id AS partition_id
        FROM (SELECT queue_id, group_id FROM dead_counts UNION SELECT queue_id, group_id FROM dead_tallies) c
        JOIN queues q ON q.id = c.queue_id
        LEFT JOIN groups g ON g.id = c.group_id
        LEFT JOIN partitions t ON t.queue_id = q.id AND t.name = p_job.partition
        WHERE q.environment_id = p_job.environment_id AND (p_job.queue IS NULL OR q.name = p_job.queue)
          AND (p_job.group_name IS NULL OR g.name = p_job.group_name)
          AND (p_job.partition IS NULL OR t.id IS NOT NULL)
          AND (c.queue_id, c.group_id) >= (p_job.at_queue_id, p_job.at_group_id)
        ORDER BY c.queue_id, c.group_id
    LOOP
        IF (v_place.queue_id, v_place.group_id) <> (at_queue_id, at_group_id) THEN
            at_queue_id := v_place.queue_id;
            at_group_id := v_place.group_id;
            at_failed_at := '-infinity';
            at_id := 0;
        END IF;
        SELECT coalesce(array_agg(c.id ORDER BY c.failed_at, c.id) FILTER (WHERE c.matches), '{}') AS ids,
               count(*) AS looked_at, (array_agg(c.failed_at ORDER BY c.failed_at DESC, c.id DESC))[1] AS failed_at,
               (array_agg(c.id ORDER BY c.failed_at DESC, c.id DESC))[1] AS id
        INTO v_found
        FROM (
            SELECT l.*, count(*) FILTER (WHERE l.matches) OVER (ORDER BY l.failed_at, l.id) AS n
            FROM (
                SELECT d.id, d.failed_at,
                       d.partition_id = coalesce(v_place.partition_id, d.partition_id)
                       AND (p_job.error_key IS NULL OR d.error_key = p_job.error_key)
                       AND (p_job.error IS NULL OR position(lower(p_job.error) IN lower(coalesce(d.error, ''))) > 0)
                       AND (v_payload IS NULL
                            OR length(d.payload) > 0 AND get_byte(d.payload, 0) <> 1
                               AND position(v_payload IN d.payload) > 0) AS matches
                FROM dead_letters d
                WHERE d.queue_id = v_place.queue_id AND d.group_id = v_place.group_id
                  AND d.failed_at >= greatest(at_failed_at, p_job.failed_from) AND d.failed_at < p_job.failed_before
                  AND (d.failed_at, d.id) > (at_failed_at, at_id)
                ORDER BY d.failed_at, d.id LIMIT p_look - looked_at
            ) l
        ) c
        WHERE c.n < p_limit - cardinality(ids) OR c.matches AND c.n = p_limit - cardinality(ids);
        IF v_found.looked_at > 0 THEN
            ids := ids || v_found.ids;
            looked_at := looked_at + v_found.looked_at;
            at_failed_at := v_found.failed_at;
            at_id := v_found.id;
        END IF;
        IF cardinality(ids) >= p_limit OR looked_at >= p_look THEN
            ended := false;
            RETURN;
        END IF;
    END LOOP;
    ended := true;
END $$;
