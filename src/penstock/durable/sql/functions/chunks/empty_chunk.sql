-- empty_chunk_v1: move kept rows of one chunk to the next, about p_bytes of payloads and p_blocks blocks per call.
-- A pass over the whole chunk that moves no row proves that the chunk has no kept row; the chunk is then `doomed`.
-- In every snapshot a row is in the old chunk or in the new one, never in both and never in neither. The next chunk,
-- not the newest, takes the row: within a partition chunks stay in the order of offsets.
-- Returns: the chunk's stage afterwards.
-- Locks: none that pushes, pops or acks wait for.
CREATE OR REPLACE FUNCTION empty_chunk_v1(p_chunk int, p_bytes bigint, p_blocks int) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_stage              chunk_stages;
    v_target             int;
    v_table              text;
    v_last_offset_column text;
    v_columns            text;
    v_blocks             bigint;
    v_end_block          bigint;
    v_full_block         bigint;
    v_moved              bigint;
    v_doomed             boolean := false;
BEGIN
    LOCK TABLE chunk_stages IN SHARE ROW EXCLUSIVE MODE;
    SELECT * INTO v_stage FROM chunk_stages WHERE chunk = p_chunk AND stage IN ('counted', 'emptying');
    SELECT min(chunk) INTO v_target FROM chunk_stages
    WHERE chunk > p_chunk AND stage IN ('open', 'closed', 'counted');
    IF v_stage IS NULL OR v_target IS NULL THEN
        RAISE EXCEPTION 'chunk % cannot be emptied', p_chunk;
    END IF;
    IF v_stage.stage = 'counted' THEN
        -- The contents of this chunk and of the next one are about to change.
        DELETE FROM spans WHERE chunk IN (p_chunk, v_target);
        UPDATE chunk_stages SET stage = 'closed', next_block = 0
        WHERE chunk = v_target AND stage IN ('closed', 'counted');
    END IF;

    v_table := v_stage.table_name || '_' || p_chunk;
    v_last_offset_column := CASE v_stage.table_name WHEN 'log' THEN 'last_offset' ELSE 'message_offset' END;
    v_blocks := pg_relation_size(v_table::regclass) / current_setting('block_size')::int;
    v_end_block := v_stage.next_block + p_blocks;
    IF v_stage.table_name = 'log' THEN
        EXECUTE format($q$
            SELECT min(b.block) FROM (
                SELECT k.block, sum(k.bytes) OVER (ORDER BY k.block) AS bytes FROM (
                    SELECT (l.ctid::text::point)[0]::bigint AS block, sum(pg_column_size(l.payloads)) AS bytes
                    FROM %I l JOIN partitions t ON t.id = l.partition_id AND l.last_offset >= t.low_offset
                    WHERE l.ctid >= $1 AND l.ctid < $2 GROUP BY 1) k) b
            WHERE b.bytes > $3 $q$, v_table)
        INTO v_full_block
        USING format('(%s,0)', v_stage.next_block)::tid, format('(%s,0)', v_end_block)::tid, p_bytes;
        v_end_block := greatest(least(v_end_block, v_full_block), v_stage.next_block + 1);
    END IF;
    v_columns := (SELECT string_agg(quote_ident(a.attname), ', ') FROM pg_attribute a
                  WHERE a.attrelid = v_stage.table_name::regclass AND a.attnum > 0 AND NOT a.attisdropped
                    AND a.attname <> 'chunk');
    EXECUTE format($q$
        WITH moved AS (
            DELETE FROM %1$I l USING partitions t
            WHERE t.id = l.partition_id AND l.%2$I >= t.low_offset AND l.ctid >= $1 AND l.ctid < $2
            RETURNING l.*
        )
        INSERT INTO %3$I (chunk, %4$s) SELECT $3, %4$s FROM moved $q$,
        v_table, v_last_offset_column, v_stage.table_name, v_columns)
    USING format('(%s,0)', v_stage.next_block)::tid, format('(%s,0)', v_end_block)::tid, v_target;
    GET DIAGNOSTICS v_moved = ROW_COUNT;
    v_stage.rows_moved := v_stage.rows_moved + v_moved;

    IF v_end_block < v_blocks THEN
        v_stage.next_block := v_end_block;
    ELSIF v_stage.table_name = 'log' THEN
        v_stage.table_name := 'message_keys';
        v_stage.next_block := 0;
    ELSIF v_stage.table_name = 'message_keys' THEN
        v_stage.table_name := 'message_values';
        v_stage.next_block := 0;
    ELSIF v_stage.rows_moved > 0 THEN
        v_stage.table_name := 'log';
        v_stage.next_block := 0;
        v_stage.rows_moved := 0;
    ELSE
        v_doomed := true;
    END IF;
    UPDATE chunk_stages SET
        stage = CASE WHEN v_doomed THEN 'doomed' ELSE 'emptying' END,
        -- A transaction with an old snapshot must still find the rows in this chunk.
        blocking_transactions = CASE WHEN v_doomed THEN transactions_using_log_v1(v_stage.has_moved_rows) END,
        table_name = v_stage.table_name, next_block = v_stage.next_block, rows_moved = v_stage.rows_moved,
        has_moved_rows = v_stage.has_moved_rows OR v_moved > 0, changed_at = clock_timestamp()
    WHERE chunk = p_chunk;
    RETURN CASE WHEN v_doomed THEN 'doomed' ELSE 'emptying' END;
END $$;
