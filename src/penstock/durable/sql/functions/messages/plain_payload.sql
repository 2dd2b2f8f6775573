-- plain_payload_v1: a payload without the trace context that may precede it.
-- A payload with a trace context starts with the byte 2; mark and context take 26 bytes (`trace_context.py`).
CREATE OR REPLACE FUNCTION plain_payload_v1(p_payload bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN substr(p_payload, 1, 1) = '\x02' THEN substr(p_payload, 27) ELSE p_payload END
$$;
