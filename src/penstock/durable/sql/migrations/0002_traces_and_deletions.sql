-- What operators and consumers add to the log: traces, deleted messages, and a running count of dead letters.

-- What consumers note about a message while they work on it. `data` is JSON, sealed if the queue is encrypted.
-- A trace is found by its message or by one of its names; it outlives neither its queue nor the pruning by age.
CREATE TABLE traces (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    environment_id bigint NOT NULL,
    partition_id   bigint NOT NULL,   -- no reference: it would take a lock on the partition that pushes fight for
    transaction_id text NOT NULL,
    group_name     text NOT NULL,
    event          text NOT NULL,
    names          text[] NOT NULL,
    data           bytea NOT NULL,
    created_at     timestamptz NOT NULL
);
CREATE INDEX traces_of_message ON traces (partition_id, transaction_id, id);
CREATE INDEX traces_by_age ON traces (created_at);

-- One row per name of a trace. Ordered by bytes, so that names with the same beginning lie together.
CREATE TABLE trace_names (
    environment_id bigint NOT NULL,
    name           text COLLATE "C" NOT NULL,
    created_at     timestamptz NOT NULL,
    trace_id       bigint NOT NULL,
    PRIMARY KEY (environment_id, name, created_at, trace_id)
);

-- Messages an operator took out of the log. Their payload is gone; the offset stays, and every group, also one
-- made later, passes over it.
CREATE TABLE deleted_messages (
    partition_id   bigint NOT NULL REFERENCES partitions ON DELETE CASCADE,
    message_offset bigint NOT NULL,
    deleted_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (partition_id, message_offset)
);

CREATE INDEX dead_letters_recent ON dead_letters (queue_id, failed_at);
CREATE INDEX dead_letters_message ON dead_letters (partition_id, transaction_id);

-- How many dead letters there are: the sum of what came and went, per queue and group. A row is added in the
-- transaction in which letters come or go, whoever writes them, so the sum is exact; nobody waits for anybody.
-- Every 64th row adds earlier ones up, so that reading costs the same whatever the number of letters.
CREATE TABLE dead_tallies (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id  bigint NOT NULL,
    group_id  bigint NOT NULL,
    messages  bigint NOT NULL
);
CREATE INDEX dead_tallies_of_group ON dead_tallies (queue_id, group_id);

CREATE FUNCTION count_dead_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    v_added dead_tallies;
BEGIN
    -- The letters of a queue that is being deleted are not counted any more.
    FOR v_added IN
        INSERT INTO dead_tallies (queue_id, group_id, messages)
        SELECT c.queue_id, c.group_id, count(*) * CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END
        FROM changed c JOIN queues q ON q.id = c.queue_id GROUP BY c.queue_id, c.group_id
        RETURNING *
    LOOP
        IF v_added.id % 64 = 0 THEN
            WITH folded AS (
                DELETE FROM dead_tallies WHERE id IN (
                    SELECT t.id FROM dead_tallies t
                    WHERE t.queue_id = v_added.queue_id AND t.group_id = v_added.group_id FOR UPDATE SKIP LOCKED)
                RETURNING messages
            )
            INSERT INTO dead_tallies (queue_id, group_id, messages)
            SELECT v_added.queue_id, v_added.group_id, sum(f.messages) FROM folded f;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

CREATE TRIGGER dead_letters_come AFTER INSERT ON dead_letters
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_dead_v1();
CREATE TRIGGER dead_letters_go AFTER DELETE ON dead_letters
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_dead_v1();

INSERT INTO dead_tallies (queue_id, group_id, messages)
SELECT queue_id, group_id, count(*) FROM dead_letters GROUP BY queue_id, group_id;
