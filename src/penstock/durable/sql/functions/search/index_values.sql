-- index_values_v1: the distinct values that index keys have in a payload, as text.
-- A key is a JSON path. Strings, numbers and booleans are values; null, objects and arrays are not.
-- Returns: no row if the payload is encrypted, or is JSON that jsonb cannot hold (a NUL character, a huge number).
CREATE OR REPLACE FUNCTION index_values_v1(p_payload bytea, p_keys text[]) RETURNS TABLE (key text, value text)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_document jsonb;
BEGIN
    IF substr(p_payload, 1, 1) = '\x01' THEN
        RETURN;
    END IF;
    v_document := convert_from(plain_payload_v1(p_payload), 'UTF8')::jsonb;
    RETURN QUERY
    SELECT DISTINCT k.key, v.value #>> '{}'
    FROM unnest(p_keys) AS k (key) CROSS JOIN LATERAL jsonb_path_query(v_document, k.key::jsonpath) AS v (value)
    WHERE jsonb_typeof(v.value) IN ('string', 'number', 'boolean');
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN;
END $$;
