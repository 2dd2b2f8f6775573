-- assign_error_keys_v1: give up to p_limit letters that were written before there were groups of errors their key; whether
-- there may be more. The count of all letters stays what it is. Called by one session at a time.
-- Locks: letters by id, as long as one step takes.
CREATE OR REPLACE FUNCTION assign_error_keys_v1(p_limit int) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_upkeep dead_upkeep;
    v_ids    bigint[];
BEGIN
    SELECT * INTO v_upkeep FROM dead_upkeep;
    IF v_upkeep.grouped_to >= v_upkeep.ungrouped_to THEN
        RETURN false;
    END IF;
    v_ids := array(SELECT d.id FROM dead_letters d
                   WHERE d.id > v_upkeep.grouped_to AND d.id <= v_upkeep.ungrouped_to
                   ORDER BY d.id LIMIT p_limit FOR UPDATE);
    WITH named AS (
        UPDATE dead_letters d SET error_key = md5(error_pattern_v1(d.error))::uuid
        WHERE d.id = ANY (v_ids) AND d.error_key IS NULL
        RETURNING d.queue_id, d.group_id, d.error_key, date_bin('1 hour', d.failed_at, '2000-01-01T00:00:00Z') AS hour
    )
    INSERT INTO dead_tallies (queue_id, group_id, error_key, hour, messages)
    SELECT n.queue_id, n.group_id, n.error_key, n.hour, count(*) FROM named n GROUP BY 1, 2, 3, 4
    UNION ALL
    SELECT n.queue_id, n.group_id, '00000000-0000-0000-0000-000000000000', '-infinity', -count(*)
    FROM named n GROUP BY 1, 2;
    UPDATE dead_upkeep SET grouped_to = CASE WHEN cardinality(v_ids) < p_limit THEN ungrouped_to
                                             ELSE v_ids[cardinality(v_ids)] END;
    RETURN cardinality(v_ids) = p_limit;
END $$;
