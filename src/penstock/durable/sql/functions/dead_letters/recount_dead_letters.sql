-- recount_dead_letters_v1: compare one slice of the counts, the letters of a queue and group that died in one hour, with the
-- rows there are. What differs is noted in dead_drifts and put right by the difference; a count is never clamped.
-- Both sides are read in one snapshot, so letters may come and go meanwhile. Called by one session at a time, until
-- `ended`: then every slice has had its turn. Returns how many letters were counted, and by how many it was wrong.
-- Cost follows the letters of the slice, by index; locks nothing.
CREATE OR REPLACE FUNCTION recount_dead_letters_v1(OUT ended boolean, OUT looked_at bigint, OUT drift bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_upkeep dead_upkeep;
    v_place  record;
    v_hour   timestamptz;
    v_told   bigint;
BEGIN
    SELECT * INTO v_upkeep FROM dead_upkeep;
    ended := false;
    looked_at := 0;
    drift := 0;
    SELECT min(h.hour) INTO v_hour FROM (
        (SELECT c.hour FROM dead_hours c
         WHERE c.queue_id = v_upkeep.at_queue_id AND c.group_id = v_upkeep.at_group_id AND c.hour > v_upkeep.at_hour
         ORDER BY c.hour LIMIT 1)
        UNION ALL
        (SELECT date_bin('1 hour', d.failed_at, '2000-01-01T00:00:00Z') FROM dead_letters d
         WHERE d.queue_id = v_upkeep.at_queue_id AND d.group_id = v_upkeep.at_group_id
           AND d.failed_at >= v_upkeep.at_hour + interval '1 hour'
         ORDER BY d.failed_at LIMIT 1)) h;

    IF v_hour IS NULL THEN
        -- The place is through: its totals must be the sums of its slices.
        WITH summed AS MATERIALIZED (
            SELECT h.error_key, sum(h.messages) AS messages FROM dead_hours h
            WHERE h.queue_id = v_upkeep.at_queue_id AND h.group_id = v_upkeep.at_group_id GROUP BY h.error_key
        ), wrong AS MATERIALIZED (
            SELECT error_key, coalesce(s.messages, 0) AS rows, coalesce(c.messages, 0) AS messages
            FROM summed s
            FULL JOIN (SELECT * FROM dead_error_counts c
                       WHERE c.queue_id = v_upkeep.at_queue_id AND c.group_id = v_upkeep.at_group_id) c USING (error_key)
            WHERE coalesce(s.messages, 0) <> coalesce(c.messages, 0)
            UNION ALL
            SELECT NULL, coalesce((SELECT sum(s.messages) FROM summed s), 0), c.messages FROM dead_counts c
            WHERE c.queue_id = v_upkeep.at_queue_id AND c.group_id = v_upkeep.at_group_id
              AND c.messages <> coalesce((SELECT sum(s.messages) FROM summed s), 0)
        ), noted AS (
            INSERT INTO dead_drifts (queue_id, group_id, hour, error_key, counted, tallied)
            SELECT v_upkeep.at_queue_id, v_upkeep.at_group_id, '-infinity',
                   coalesce(w.error_key, '00000000-0000-0000-0000-000000000000'), w.rows, w.messages FROM wrong w
        ), total AS (
            UPDATE dead_counts c SET messages = w.rows FROM wrong w
            WHERE w.error_key IS NULL AND c.queue_id = v_upkeep.at_queue_id AND c.group_id = v_upkeep.at_group_id
        ), errors AS (
            INSERT INTO dead_error_counts AS c (queue_id, group_id, error_key, messages)
            SELECT v_upkeep.at_queue_id, v_upkeep.at_group_id, w.error_key, w.rows FROM wrong w
            WHERE w.error_key IS NOT NULL
            ON CONFLICT (queue_id, group_id, error_key) DO UPDATE SET messages = excluded.messages
        )
        SELECT coalesce(sum(abs(w.rows - w.messages)), 0) INTO drift FROM wrong w;
        SELECT k.queue_id, k.group_id INTO v_place FROM (
            (SELECT c.queue_id, c.group_id FROM dead_counts c
             WHERE (c.queue_id, c.group_id) > (v_upkeep.at_queue_id, v_upkeep.at_group_id)
             ORDER BY c.queue_id, c.group_id LIMIT 1)
            UNION ALL
            (SELECT d.queue_id, d.group_id FROM dead_letters d
             WHERE (d.queue_id, d.group_id) > (v_upkeep.at_queue_id, v_upkeep.at_group_id)
             ORDER BY d.queue_id, d.group_id, d.failed_at LIMIT 1)) k
        ORDER BY k.queue_id, k.group_id LIMIT 1;
        ended := NOT FOUND;
        UPDATE dead_upkeep SET at_queue_id = coalesce(v_place.queue_id, 0), at_group_id = coalesce(v_place.group_id, 0),
            at_hour = '-infinity', recounted_at = CASE WHEN ended THEN clock_timestamp() ELSE recounted_at END;
        RETURN;
    END IF;

    SELECT r.rows, r.rows - t.messages INTO looked_at, v_told
    FROM (SELECT count(*) AS rows FROM dead_letters d
          WHERE d.queue_id = v_upkeep.at_queue_id AND d.group_id = v_upkeep.at_group_id
            AND d.failed_at >= v_hour AND d.failed_at < v_hour + interval '1 hour') r,
         (SELECT coalesce(sum(k.messages), 0) AS messages FROM (
              SELECT c.messages FROM dead_hours c
              WHERE c.queue_id = v_upkeep.at_queue_id AND c.group_id = v_upkeep.at_group_id AND c.hour = v_hour
              UNION ALL
              SELECT y.messages FROM dead_tallies y
              WHERE y.queue_id = v_upkeep.at_queue_id AND y.group_id = v_upkeep.at_group_id AND y.hour = v_hour) k) t;
    -- Letters that wait for their key are counted elsewhere until they have it.
    IF v_told <> 0 AND v_upkeep.grouped_to >= v_upkeep.ungrouped_to THEN
        WITH counted AS (
            SELECT d.error_key, count(*) AS rows FROM dead_letters d
            WHERE d.queue_id = v_upkeep.at_queue_id AND d.group_id = v_upkeep.at_group_id
              AND d.failed_at >= v_hour AND d.failed_at < v_hour + interval '1 hour' AND d.error_key IS NOT NULL
            GROUP BY d.error_key
        ), tallied AS (
            SELECT k.error_key, sum(k.messages) AS messages FROM (
                SELECT c.error_key, c.messages FROM dead_hours c
                WHERE c.queue_id = v_upkeep.at_queue_id AND c.group_id = v_upkeep.at_group_id AND c.hour = v_hour
                UNION ALL
                SELECT y.error_key, y.messages FROM dead_tallies y
                WHERE y.queue_id = v_upkeep.at_queue_id AND y.group_id = v_upkeep.at_group_id AND y.hour = v_hour) k
            GROUP BY k.error_key
        ), wrong AS MATERIALIZED (
            SELECT error_key, coalesce(c.rows, 0) AS rows, coalesce(t.messages, 0) AS messages
            FROM counted c FULL JOIN tallied t USING (error_key)
            WHERE coalesce(c.rows, 0) <> coalesce(t.messages, 0)
        ), noted AS (
            INSERT INTO dead_drifts (queue_id, group_id, hour, error_key, counted, tallied)
            SELECT v_upkeep.at_queue_id, v_upkeep.at_group_id, v_hour, w.error_key, w.rows, w.messages FROM wrong w
        ), corrected AS (
            INSERT INTO dead_tallies (queue_id, group_id, error_key, hour, messages)
            SELECT v_upkeep.at_queue_id, v_upkeep.at_group_id, w.error_key, v_hour, w.rows - w.messages FROM wrong w
        )
        SELECT coalesce(sum(abs(w.rows - w.messages)), 0) INTO drift FROM wrong w;
    END IF;
    UPDATE dead_upkeep SET at_hour = v_hour;
END $$;
