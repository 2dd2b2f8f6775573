-- dead_letter_drift_v1: by how many dead letters the recounts of the last 31 days found counts wrong, and when the last
-- recount ended.
-- Locks: none.
-- Cost: follows the recorded drifts; normally there are none.
CREATE OR REPLACE FUNCTION dead_letter_drift_v1()
RETURNS TABLE (drift bigint, recounted_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT (SELECT coalesce(sum(abs(d.row_count - d.recorded_count)), 0)::bigint FROM dead_drifts d),
           (SELECT m.recounted_at FROM dead_letter_maintenance m)
$$;
