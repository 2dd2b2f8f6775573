-- recount_dead_letters_v1: compare one slice of the counts with the rows of dead_letters and correct differences.
-- A slice has the dead letters of one queue and group that died in one hour. A difference is recorded in dead_drifts
-- and added to the count; a count is never clamped. Both sides are read in one snapshot, so dead letters may be added
-- and deleted meanwhile. Run by one session at a time, until `ended`: then every slice was compared.
-- Returns: the number of dead letters counted, and the size of the difference.
-- Locks: none.
-- Cost: follows the dead letters of the slice, by index.
CREATE OR REPLACE FUNCTION recount_dead_letters_v1(OUT ended boolean, OUT scanned bigint, OUT drift bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_progress   dead_letter_maintenance;
    v_queue_id   bigint;
    v_group_id   bigint;
    v_next       record;
    v_hour       timestamptz;
    v_difference bigint;
BEGIN
    SELECT * INTO v_progress FROM dead_letter_maintenance;
    v_queue_id := v_progress.recount_queue_id;
    v_group_id := v_progress.recount_group_id;
    ended := false;
    scanned := 0;
    drift := 0;
    SELECT min(h.hour) INTO v_hour FROM (
        (SELECT c.hour FROM dead_hours c
         WHERE c.queue_id = v_queue_id AND c.group_id = v_group_id AND c.hour > v_progress.recount_hour
         ORDER BY c.hour LIMIT 1)
        UNION ALL
        (SELECT date_bin('1 hour', d.failed_at, '2000-01-01T00:00:00Z') FROM dead_letters d
         WHERE d.queue_id = v_queue_id AND d.group_id = v_group_id
           AND d.failed_at >= v_progress.recount_hour + interval '1 hour'
         ORDER BY d.failed_at LIMIT 1)) h;

    IF v_hour IS NULL THEN
        -- All slices of this queue and group were compared: its totals must be the sums of its slices.
        WITH slice_sums AS MATERIALIZED (
            SELECT h.error_key, sum(h.messages) AS messages FROM dead_hours h
            WHERE h.queue_id = v_queue_id AND h.group_id = v_group_id GROUP BY h.error_key
        ), wrong AS MATERIALIZED (
            SELECT error_key, coalesce(s.messages, 0) AS row_count, coalesce(c.messages, 0) AS messages
            FROM slice_sums s
            FULL JOIN (SELECT * FROM dead_error_counts c
                       WHERE c.queue_id = v_queue_id AND c.group_id = v_group_id) c USING (error_key)
            WHERE coalesce(s.messages, 0) <> coalesce(c.messages, 0)
            UNION ALL
            SELECT NULL, coalesce((SELECT sum(s.messages) FROM slice_sums s), 0), c.messages FROM dead_counts c
            WHERE c.queue_id = v_queue_id AND c.group_id = v_group_id
              AND c.messages <> coalesce((SELECT sum(s.messages) FROM slice_sums s), 0)
        ), drift_rows AS (
            INSERT INTO dead_drifts (queue_id, group_id, hour, error_key, row_count, recorded_count)
            SELECT v_queue_id, v_group_id, '-infinity',
                   coalesce(w.error_key, '00000000-0000-0000-0000-000000000000'), w.row_count, w.messages FROM wrong w
        ), corrected_total AS (
            UPDATE dead_counts c SET messages = w.row_count FROM wrong w
            WHERE w.error_key IS NULL AND c.queue_id = v_queue_id AND c.group_id = v_group_id
        ), corrected_errors AS (
            INSERT INTO dead_error_counts AS c (queue_id, group_id, error_key, messages)
            SELECT v_queue_id, v_group_id, w.error_key, w.row_count FROM wrong w
            WHERE w.error_key IS NOT NULL
            ON CONFLICT (queue_id, group_id, error_key) DO UPDATE SET messages = excluded.messages
        )
        SELECT coalesce(sum(abs(w.row_count - w.messages)), 0) INTO drift FROM wrong w;
        SELECT k.queue_id, k.group_id INTO v_next FROM (
            (SELECT c.queue_id, c.group_id FROM dead_counts c
             WHERE (c.queue_id, c.group_id) > (v_queue_id, v_group_id)
             ORDER BY c.queue_id, c.group_id LIMIT 1)
            UNION ALL
            (SELECT d.queue_id, d.group_id FROM dead_letters d
             WHERE (d.queue_id, d.group_id) > (v_queue_id, v_group_id)
             ORDER BY d.queue_id, d.group_id, d.failed_at LIMIT 1)) k
        ORDER BY k.queue_id, k.group_id LIMIT 1;
        ended := NOT FOUND;
        UPDATE dead_letter_maintenance SET recount_queue_id = coalesce(v_next.queue_id, 0),
            recount_group_id = coalesce(v_next.group_id, 0), recount_hour = '-infinity',
            recounted_at = CASE WHEN ended THEN clock_timestamp() ELSE recounted_at END;
        RETURN;
    END IF;

    SELECT r.row_count, r.row_count - t.messages INTO scanned, v_difference
    FROM (SELECT count(*) AS row_count FROM dead_letters d
          WHERE d.queue_id = v_queue_id AND d.group_id = v_group_id
            AND d.failed_at >= v_hour AND d.failed_at < v_hour + interval '1 hour') r,
         (SELECT coalesce(sum(k.messages), 0) AS messages FROM (
              SELECT c.messages FROM dead_hours c
              WHERE c.queue_id = v_queue_id AND c.group_id = v_group_id AND c.hour = v_hour
              UNION ALL
              SELECT y.messages FROM dead_tallies y
              WHERE y.queue_id = v_queue_id AND y.group_id = v_group_id AND y.hour = v_hour) k) t;
    -- Dead letters without an error key are counted under the nil key until assign_error_keys_v1 has set it.
    IF v_difference <> 0 AND v_progress.backfilled_to_id >= v_progress.backfill_end_id THEN
        WITH actual AS (
            SELECT d.error_key, count(*) AS row_count FROM dead_letters d
            WHERE d.queue_id = v_queue_id AND d.group_id = v_group_id
              AND d.failed_at >= v_hour AND d.failed_at < v_hour + interval '1 hour' AND d.error_key IS NOT NULL
            GROUP BY d.error_key
        ), recorded AS (
            SELECT k.error_key, sum(k.messages) AS messages FROM (
                SELECT c.error_key, c.messages FROM dead_hours c
                WHERE c.queue_id = v_queue_id AND c.group_id = v_group_id AND c.hour = v_hour
                UNION ALL
                SELECT y.error_key, y.messages FROM dead_tallies y
                WHERE y.queue_id = v_queue_id AND y.group_id = v_group_id AND y.hour = v_hour) k
            GROUP BY k.error_key
        ), wrong AS MATERIALIZED (
            SELECT error_key, coalesce(c.row_count, 0) AS row_count, coalesce(t.messages, 0) AS messages
            FROM actual c FULL JOIN recorded t USING (error_key)
            WHERE coalesce(c.row_count, 0) <> coalesce(t.messages, 0)
        ), drift_rows AS (
            INSERT INTO dead_drifts (queue_id, group_id, hour, error_key, row_count, recorded_count)
            SELECT v_queue_id, v_group_id, v_hour, w.error_key, w.row_count, w.messages FROM wrong w
        ), corrected AS (
            INSERT INTO dead_tallies (queue_id, group_id, error_key, hour, messages)
            SELECT v_queue_id, v_group_id, w.error_key, v_hour, w.row_count - w.messages FROM wrong w
        )
        SELECT coalesce(sum(abs(w.row_count - w.messages)), 0) INTO drift FROM wrong w;
    END IF;
    UPDATE dead_letter_maintenance SET recount_hour = v_hour;
END $$;
