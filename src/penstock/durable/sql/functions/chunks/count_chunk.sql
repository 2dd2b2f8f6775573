-- count_chunk_v1: count up to p_blocks blocks of a closed chunk into `spans`.
-- Returns: the chunk's stage afterwards: `counted` at its end, `closed` before that. NULL if it cannot be counted yet,
-- because a push that started before it was closed is still running.
CREATE OR REPLACE FUNCTION count_chunk_v1(p_chunk int, p_blocks int) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_stage     chunk_stages;
    v_table     text := 'log_' || p_chunk;
    v_blocks    bigint;
    v_end_block bigint;
    v_new_stage text;
BEGIN
    LOCK TABLE chunk_stages IN SHARE ROW EXCLUSIVE MODE;
    SELECT * INTO v_stage FROM chunk_stages WHERE chunk = p_chunk AND stage = 'closed';
    IF NOT FOUND OR NOT transactions_ended_v1(v_stage.blocking_transactions) THEN
        RETURN NULL;
    END IF;
    v_blocks := pg_relation_size(v_table::regclass) / current_setting('block_size')::int;
    v_end_block := v_stage.next_block + p_blocks;
    EXECUTE format($q$
        INSERT INTO spans AS s (chunk, partition_id, first_offset, last_offset, bytes)
        SELECT $1, l.partition_id, min(l.first_offset), max(l.last_offset),
               sum(100 + pg_column_size(l.payloads) + pg_column_size(l.message_ids)
                       + coalesce(pg_column_size(l.transaction_ids), 0) + coalesce(pg_column_size(l.trace_ids), 0))
        FROM %I l WHERE l.ctid >= $2 AND l.ctid < $3 GROUP BY l.partition_id
        ON CONFLICT (chunk, partition_id) DO UPDATE SET
            first_offset = least(s.first_offset, excluded.first_offset),
            last_offset = greatest(s.last_offset, excluded.last_offset), bytes = s.bytes + excluded.bytes
        $q$, v_table)
    USING p_chunk, format('(%s,0)', v_stage.next_block)::tid, format('(%s,0)', v_end_block)::tid;
    v_new_stage := CASE WHEN v_end_block < v_blocks THEN 'closed' ELSE 'counted' END;
    UPDATE chunk_stages SET changed_at = clock_timestamp(), blocking_transactions = '{}', stage = v_new_stage,
           next_block = CASE v_new_stage WHEN 'closed' THEN v_end_block ELSE 0 END
    WHERE chunk = p_chunk;
    RETURN v_new_stage;
END $$;
