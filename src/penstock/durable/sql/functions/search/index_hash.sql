-- index_hash_v1: the hash under which message_values stores a value of an index key.
CREATE OR REPLACE FUNCTION index_hash_v1(p_key text, p_value text) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$
    SELECT md5(p_key || E'\n' || p_value)::uuid
$$;
