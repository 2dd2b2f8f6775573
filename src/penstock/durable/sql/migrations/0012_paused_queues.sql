-- A paused queue accepts messages and acks, and hands out no messages.
ALTER TABLE queues ADD COLUMN paused boolean NOT NULL DEFAULT false;

-- The results of these functions have one more column.
DROP FUNCTION IF EXISTS queues_v1(text, text, text, text, int, int);
DROP FUNCTION IF EXISTS queue_totals_page_v1(text, text, text, text, text, text, int, int);
DROP FUNCTION IF EXISTS environment_queue_gauges_v1(text, text, text, int);
DELETE FROM schema_migrations
WHERE kind = 'function' AND name IN ('queues', 'queue_totals_page', 'environment_queue_gauges');
