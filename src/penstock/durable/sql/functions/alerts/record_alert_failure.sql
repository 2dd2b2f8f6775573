-- record_alert_failure_v1: count an evaluation that failed, with its error.
CREATE OR REPLACE FUNCTION record_alert_failure_v1(p_error text) RETURNS void
LANGUAGE sql AS $$
    UPDATE alert_evaluator SET failures = failures + 1, last_error = p_error
$$;
