-- Requeueing takes an audience, so a retry of a dead message needs no function of its own. The migrator creates the
-- functions of this version after the last migration.
DROP FUNCTION IF EXISTS retry_dead_message_v1(bigint, text, bigint, uuid, bytea, timestamptz);
DROP FUNCTION IF EXISTS requeue_dead_letters_v1(bigint[], uuid[], timestamptz);
DELETE FROM schema_migrations WHERE kind = 'function' AND name IN ('retry_dead_message', 'requeue_dead_letters');
