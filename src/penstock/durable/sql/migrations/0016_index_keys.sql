-- Index keys: JSON paths of a queue whose values are stored with each push, so that a search for a value reads only
-- the messages that have it.

-- index_keys: the paths; NULL: none. indexed_since: for each path, the push time from which every message is indexed.
ALTER TABLE queues ADD COLUMN index_keys text[], ADD COLUMN indexed_since timestamptz[];

-- One row per message and distinct value of an index key. value_hash is the md5 of the path and the value: values have
-- any length, and a search compares the value itself in the payload. Rows move and are dropped with the chunk of their
-- message.
CREATE TABLE message_values (
    chunk          int NOT NULL,
    queue_id       bigint NOT NULL,
    value_hash     uuid NOT NULL,
    partition_id   bigint NOT NULL,
    message_offset bigint NOT NULL
) PARTITION BY LIST (chunk);
CREATE INDEX message_values_lookup ON message_values (queue_id, value_hash, partition_id, message_offset DESC);

DO $$
DECLARE
    v_chunk int;
BEGIN
    FOR v_chunk IN SELECT chunk FROM chunk_stages WHERE to_regclass('log_' || chunk) IS NOT NULL ORDER BY chunk LOOP
        EXECUTE format('CREATE TABLE %I PARTITION OF message_values FOR VALUES IN (%s)
                        WITH (autovacuum_vacuum_insert_threshold = -1)', 'message_values_' || v_chunk, v_chunk);
    END LOOP;
END $$;

-- empty_chunk_v1 moves the rows of this table too.
DO $$
BEGIN
    EXECUTE (SELECT string_agg(format('ALTER TABLE chunk_stages DROP CONSTRAINT %I', c.conname), ';')
             FROM pg_constraint c
             WHERE c.conrelid = 'chunk_stages'::regclass AND c.contype = 'c'
               AND pg_get_constraintdef(c.oid) LIKE '%message_keys%');
END $$;
ALTER TABLE chunk_stages ADD CONSTRAINT chunk_stages_table_name_check
    CHECK (table_name IN ('log', 'message_keys', 'message_values'));
