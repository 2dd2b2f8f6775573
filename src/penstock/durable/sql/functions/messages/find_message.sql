-- find_message_v1: find the offset of the message with a transaction id in a partition.
-- Transaction ids chosen by clients are in message_keys. An id made by the broker is a UUIDv7: its time is close to the
-- push, and push times never go backwards, so the function only reads segments from that time on. A second search
-- allows for clock differences and delayed pushes, up to ten seconds and 5,000 segments.
-- Returns: the offset; NULL if there is no such message.
-- Volatile, so that its snapshot is not older than the last rewrite_table_v1 of a table it reads.
CREATE OR REPLACE FUNCTION find_message_v1(p_partition_id bigint, p_transaction_id text) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_offset     bigint;
    v_created_at timestamptz;
    v_search     record;
BEGIN
    SELECT m.message_offset INTO v_offset FROM message_keys m
    WHERE m.partition_id = p_partition_id AND m.key = md5(p_transaction_id)::uuid;
    IF FOUND THEN
        RETURN (SELECT v_offset FROM partitions t WHERE t.id = p_partition_id AND t.low_offset <= v_offset);
    END IF;
    IF p_transaction_id !~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' THEN
        RETURN NULL;
    END IF;
    v_created_at := to_timestamp(
        ('x' || left(replace(p_transaction_id, '-', ''), 12))::bit(48)::bigint / 1000.0);
    FOR v_search IN
        SELECT * FROM (VALUES (interval '50 milliseconds', 500), (interval '10 seconds', 5000)) AS k (slack, segments)
    LOOP
        SELECT s.first_offset + array_position(s.message_ids, p_transaction_id::uuid) - 1 INTO v_offset
        FROM (
            SELECT l.first_offset, l.message_ids, l.transaction_ids FROM log l
            WHERE l.partition_id = p_partition_id
              AND l.first_offset >= offset_at_time_v1(p_partition_id, v_created_at - v_search.slack)
            ORDER BY l.first_offset LIMIT v_search.segments
        ) s
        WHERE p_transaction_id::uuid = ANY (s.message_ids)
          AND s.transaction_ids[array_position(s.message_ids, p_transaction_id::uuid)] IS NULL
        LIMIT 1;
        EXIT WHEN FOUND;
    END LOOP;
    RETURN v_offset;
END $$;
