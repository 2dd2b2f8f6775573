-- count_dead_letters_v1: trigger function that records added and deleted dead letters in dead_tallies.
-- Adds, for each statement, a row per queue, group, error key and hour. A trigger, so that it holds for every writer of
-- dead_letters. It runs within a consumer's ack, so it does as little as possible.
-- Locks: none.
CREATE OR REPLACE FUNCTION count_dead_letters_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN   -- the queue exists: dead_letters has a foreign key to it
        INSERT INTO dead_tallies (queue_id, group_id, error_key, hour, messages, deaths)
        SELECT c.queue_id, c.group_id, coalesce(c.error_key, '00000000-0000-0000-0000-000000000000'),
               CASE WHEN c.error_key IS NULL THEN '-infinity'
                    ELSE date_bin('1 hour', c.failed_at, '2000-01-01T00:00:00Z') END AS hour, count(*), count(*)
        FROM changed c GROUP BY c.queue_id, c.group_id, c.error_key, hour;
    ELSE   -- dead letters of a queue that is being deleted are not counted any more
        INSERT INTO dead_tallies (queue_id, group_id, error_key, hour, messages)
        SELECT c.queue_id, c.group_id, coalesce(c.error_key, '00000000-0000-0000-0000-000000000000'),
               CASE WHEN c.error_key IS NULL THEN '-infinity'
                    ELSE date_bin('1 hour', c.failed_at, '2000-01-01T00:00:00Z') END AS hour, -count(*)
        FROM changed c JOIN queues q ON q.id = c.queue_id
        GROUP BY c.queue_id, c.group_id, c.error_key, hour;
    END IF;
    RETURN NULL;
END $$;
