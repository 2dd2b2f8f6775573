-- assign_error_keys_v1: set the error key of up to p_limit dead letters that were written before error keys existed.
-- The total number of dead letters does not change. Run by one session at a time.
-- Returns: whether more dead letters may be left.
-- Locks: dead letters by id, for the duration of one step.
CREATE OR REPLACE FUNCTION assign_error_keys_v1(p_limit int) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_maintenance dead_letter_maintenance;
    v_ids         bigint[];
BEGIN
    SELECT * INTO v_maintenance FROM dead_letter_maintenance;
    IF v_maintenance.backfilled_to_id >= v_maintenance.backfill_end_id THEN
        RETURN false;
    END IF;
    v_ids := array(SELECT d.id FROM dead_letters d
                   WHERE d.id > v_maintenance.backfilled_to_id AND d.id <= v_maintenance.backfill_end_id
                   ORDER BY d.id LIMIT p_limit FOR UPDATE);
    WITH keyed AS (
        UPDATE dead_letters d SET error_key = md5(error_pattern_v1(d.error))::uuid
        WHERE d.id = ANY (v_ids) AND d.error_key IS NULL
        RETURNING d.queue_id, d.group_id, d.error_key, date_bin('1 hour', d.failed_at, '2000-01-01T00:00:00Z') AS hour
    )
    INSERT INTO dead_tallies (queue_id, group_id, error_key, hour, messages)
    SELECT k.queue_id, k.group_id, k.error_key, k.hour, count(*) FROM keyed k GROUP BY 1, 2, 3, 4
    UNION ALL
    SELECT k.queue_id, k.group_id, '00000000-0000-0000-0000-000000000000', '-infinity', -count(*)
    FROM keyed k GROUP BY 1, 2;
    UPDATE dead_letter_maintenance
    SET backfilled_to_id = CASE WHEN cardinality(v_ids) < p_limit THEN backfill_end_id
                                ELSE v_ids[cardinality(v_ids)] END;
    RETURN cardinality(v_ids) = p_limit;
END $$;
