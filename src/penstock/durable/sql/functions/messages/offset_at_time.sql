-- offset_at_time_v1: find the first offset of a partition that was pushed at or after p_time.
-- Returns: the offset; the partition's next offset if there is none.
-- Cost: push times never go backwards within a partition, so a binary search finds it: about twenty probes per million.
-- Volatile, so that its snapshot is not older than the last rewrite_table_v1 of a table it reads.
CREATE OR REPLACE FUNCTION offset_at_time_v1(p_partition_id bigint, p_time timestamptz) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_low     bigint;
    v_high    bigint;
    v_middle  bigint;
    v_created timestamptz;
BEGIN
    SELECT low_offset, next_offset INTO v_low, v_high FROM partitions WHERE id = p_partition_id;
    WHILE v_low < v_high LOOP
        v_middle := (v_low + v_high) / 2;
        v_created := message_created_at_v1(p_partition_id, v_middle);
        IF v_created IS NULL OR v_created < p_time THEN
            v_low := v_middle + 1;
        ELSE
            v_high := v_middle;
        END IF;
    END LOOP;
    RETURN v_low;
END $$;
