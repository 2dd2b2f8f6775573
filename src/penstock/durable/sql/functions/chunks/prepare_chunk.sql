-- prepare_chunk_v1: make and attach the tables of the next chunk when the open one is due to be closed: it has
-- p_bytes, or is p_age old and has a sixteenth of that. It is never due before it holds a third of the log: every
-- look into the log goes through all chunks, so there must be few of them, however much is kept.
-- Returns the new chunk, NULL if none is due or one is there already. Nobody pushes to it before open_chunk_v1.
-- Locks: attaching takes SHARE UPDATE EXCLUSIVE on `log` and `message_keys`, which no push, pop or ack waits for.
CREATE OR REPLACE FUNCTION prepare_chunk_v1(p_bytes bigint, p_age interval, p_now timestamptz DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    v_open  chunks;
    v_next  int;
    v_bytes bigint;
    v_total bigint;
    v_part  text;
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
    WHERE i.inhparent IN ('log'::regclass, 'message_keys'::regclass);
    IF v_bytes * 3 < v_total OR v_bytes < p_bytes / 16
       OR v_bytes < p_bytes AND v_open.opened_at + p_age > coalesce(p_now, now()) THEN
        RETURN NULL;
    END IF;

    v_next := v_open.id + 1;
    FOREACH v_part IN ARRAY ARRAY['log', 'message_keys'] LOOP
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING STORAGE INCLUDING COMPRESSION)',
                       v_part || '_' || v_next, v_part)
            -- Stored as the open one is: whatever was set there, for its overflow table too.
            || (SELECT coalesce(' WITH (' || string_agg(
                           format('%s = %L', split_part(o.option, '=', 1), split_part(o.option, '=', 2)), ', ') || ')', '')
                FROM (SELECT unnest(c.reloptions) AS option FROM pg_class c
                      WHERE c.oid = (v_part || '_' || v_open.id)::regclass
                      UNION ALL
                      SELECT 'toast.' || unnest(t.reloptions) FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid
                      WHERE c.oid = (v_part || '_' || v_open.id)::regclass) o);
        EXECUTE (SELECT coalesce(format('ALTER TABLE %I ', v_part || '_' || v_next) || string_agg(
                     format('ALTER COLUMN %I SET STATISTICS %s', a.attname, a.attstattarget), ', '), 'SELECT 1')
                 FROM pg_attribute a
                 WHERE a.attrelid = v_part::regclass AND a.attnum > 0 AND a.attstattarget >= 0);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES IN (%s)',
                       v_part, v_part || '_' || v_next, v_next);
    END LOOP;
    INSERT INTO chunk_stages (chunk, stage) VALUES (v_next, 'spare');
    RETURN v_next;
END $$;
