-- These functions have one more parameter: the maximum payload bytes of their response. That of pop_v1 has a default, so
-- that brokers of the previous version keep calling it.
DROP FUNCTION IF EXISTS pop_v1(bigint, uuid[], int[], int[], bigint, bigint, boolean, timestamptz);
DROP FUNCTION IF EXISTS messages_v1(bigint, bigint, bigint, text, bigint, bigint, bigint, int, timestamptz);
DROP FUNCTION IF EXISTS dead_letters_v1(
    text, text, text, text, text, text, timestamptz, timestamptz, text, uuid, text, timestamptz, bigint, int, int, int);
DELETE FROM schema_migrations WHERE kind = 'function' AND name IN ('pop', 'messages', 'dead_letters');
