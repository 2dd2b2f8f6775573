-- prepare_chunk_v1: create and attach the tables of the next chunk if the open chunk is large or old enough.
-- The open chunk is large enough with p_bytes, and old enough at p_age with a sixteenth of p_bytes. It is never
-- replaced before it holds a third of the log: every read of the log goes through all chunks, so there must be few of
-- them, independent of how much is kept. Pushes do not use the new chunk before open_chunk_v1.
-- Returns: the new chunk; NULL if the open one stays or a new one already exists.
-- Locks: SHARE UPDATE EXCLUSIVE on `log`, `message_keys` and `message_values` to attach the tables: no push, pop or ack
-- waits for it.
CREATE OR REPLACE FUNCTION prepare_chunk_v1(p_bytes bigint, p_age interval, p_now timestamptz DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    v_open  chunks;
    v_next  int;
    v_bytes bigint;
    v_total bigint;
    v_table text;
BEGIN
    LOCK TABLE chunk_stages IN SHARE ROW EXCLUSIVE MODE;
    SELECT * INTO v_open FROM chunks ORDER BY id DESC LIMIT 1;
    IF EXISTS (SELECT 1 FROM chunk_stages WHERE stage IN ('spare', 'announced')) THEN
        RETURN NULL;
    END IF;
    SELECT sum(pg_total_relation_size(i.inhrelid)),
           sum(pg_total_relation_size(i.inhrelid)) FILTER (WHERE c.relname = i.inhparent::regclass || '_' || v_open.id)
    INTO v_total, v_bytes
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent IN ('log'::regclass, 'message_keys'::regclass, 'message_values'::regclass);
    IF v_bytes * 3 < v_total OR v_bytes < p_bytes / 16
       OR v_bytes < p_bytes AND v_open.opened_at + p_age > coalesce(p_now, now()) THEN
        RETURN NULL;
    END IF;

    v_next := v_open.id + 1;
    FOREACH v_table IN ARRAY ARRAY['log', 'message_keys', 'message_values'] LOOP
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING STORAGE INCLUDING COMPRESSION)',
                       v_table || '_' || v_next, v_table)
            -- With the storage parameters of the open chunk, also those of its TOAST table.
            || (SELECT coalesce(' WITH (' || string_agg(
                           format('%s = %L', split_part(o.option, '=', 1), split_part(o.option, '=', 2)), ', ')
                       || ')', '')
                FROM (SELECT unnest(c.reloptions) AS option FROM pg_class c
                      WHERE c.oid = (v_table || '_' || v_open.id)::regclass
                      UNION ALL
                      SELECT 'toast.' || unnest(t.reloptions) FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid
                      WHERE c.oid = (v_table || '_' || v_open.id)::regclass) o);
        EXECUTE (SELECT coalesce(format('ALTER TABLE %I ', v_table || '_' || v_next) || string_agg(
                     format('ALTER COLUMN %I SET STATISTICS %s', a.attname, a.attstattarget), ', '), 'SELECT 1')
                 FROM pg_attribute a
                 WHERE a.attrelid = v_table::regclass AND a.attnum > 0 AND a.attstattarget >= 0);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES IN (%s)',
                       v_table, v_table || '_' || v_next, v_next);
    END LOOP;
    INSERT INTO chunk_stages (chunk, stage) VALUES (v_next, 'spare');
    RETURN v_next;
END $$;
