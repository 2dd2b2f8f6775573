-- next_position_state_v1 computes how a position changes, so these two are not needed any more.
DROP FUNCTION IF EXISTS finish_range_v1(bigint, bigint, int8multirange, timestamptz);
DROP FUNCTION IF EXISTS retry_ready_at_v1(bigint, timestamptz);
DELETE FROM schema_migrations WHERE kind = 'function' AND name IN ('finish_range', 'retry_ready_at');
