-- count_dead_v1: note what came to or went from dead_letters in one statement, a row per queue, group, group of errors
-- and hour. A trigger, so that it holds whoever writes; on the way of a consumer's ack, so it does the least it can.
-- Locks: none.
CREATE OR REPLACE FUNCTION count_dead_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN   -- its queue is there: dead_letters refer to it
        INSERT INTO dead_tallies (queue_id, group_id, error_key, hour, messages)
        SELECT c.queue_id, c.group_id, coalesce(c.error_key, '00000000-0000-0000-0000-000000000000'),
               CASE WHEN c.error_key IS NULL THEN '-infinity'
                    ELSE date_bin('1 hour', c.failed_at, '2000-01-01T00:00:00Z') END AS hour, count(*)
        FROM changed c GROUP BY c.queue_id, c.group_id, c.error_key, hour;
    ELSE   -- the letters of a queue that is being deleted are not counted any more
        INSERT INTO dead_tallies (queue_id, group_id, error_key, hour, messages)
        SELECT c.queue_id, c.group_id, coalesce(c.error_key, '00000000-0000-0000-0000-000000000000'),
               CASE WHEN c.error_key IS NULL THEN '-infinity'
                    ELSE date_bin('1 hour', c.failed_at, '2000-01-01T00:00:00Z') END AS hour, -count(*)
        FROM changed c JOIN queues q ON q.id = c.queue_id
        GROUP BY c.queue_id, c.group_id, c.error_key, hour;
    END IF;
    RETURN NULL;
END $$;
