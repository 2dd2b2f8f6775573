-- run_within_bytes_v1: the longest run of messages from p_from, before p_to, with at most p_max_bytes of payload; at least
-- one message.
-- Returns: one row. end_offset is the first offset after the run; bytes is its size, or more if p_from is inside a
-- segment.
-- Cost: reads the sizes of segments up to the end of the run. Payloads are read of the segment in which it ends.
CREATE OR REPLACE FUNCTION run_within_bytes_v1(p_partition_id bigint, p_from bigint, p_to bigint, p_max_bytes bigint)
RETURNS TABLE (end_offset bigint, bytes bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_segment record;
BEGIN
    end_offset := p_from;
    bytes := 0;
    FOR v_segment IN
        SELECT l.last_offset, pg_column_size(l.payloads) AS bytes FROM segment_rows_v1(p_partition_id, p_from, p_to) l
    LOOP
        IF bytes + v_segment.bytes > p_max_bytes THEN
            SELECT end_offset + count(*), bytes + coalesce(max(m.running), 0) INTO end_offset, bytes
            FROM (SELECT sum(octet_length(m.payload)) OVER (ORDER BY m.n) AS running, m.n
                  FROM segments_v1(p_partition_id, end_offset, least(v_segment.last_offset + 1, p_to)) s
                  CROSS JOIN LATERAL unnest(s.payloads) WITH ORDINALITY AS m (payload, n)) m
            WHERE bytes + m.running <= p_max_bytes OR end_offset = p_from AND m.n = 1;
            EXIT;
        END IF;
        end_offset := least(v_segment.last_offset + 1, p_to);
        bytes := bytes + v_segment.bytes;
    END LOOP;
    RETURN NEXT;
END $$;
