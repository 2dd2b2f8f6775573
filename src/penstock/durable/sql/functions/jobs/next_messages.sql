-- next_messages_v1: find the next messages of a job after its cursor, by partition and offset.
-- Finds up to p_limit and scans up to p_scan_limit. Encrypted payloads do not match a text.
-- Returns: the messages, the number scanned, the job's cursor after them, and whether there are no more.
-- Cost: follows p_scan_limit and the number of partitions, never the remaining messages.
-- Volatile, so that its snapshot is not older than the last rewrite_table_v1 of a table it reads.
CREATE OR REPLACE FUNCTION next_messages_v1(
    p_job jobs, p_limit int, p_scan_limit int, OUT partition_ids bigint[], OUT offsets bigint[],
    OUT transaction_ids text[], OUT scanned bigint, OUT cursor_partition_id bigint, OUT cursor_offset bigint,
    OUT ended boolean
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_partition_id bigint;
    v_selected     int8multirange;
    v_scan_limit   bigint;
    v_batch        record;
    v_payload      bytea := convert_to(p_job.payload, 'UTF8');
BEGIN
    partition_ids := '{}';
    offsets := '{}';
    transaction_ids := '{}';
    scanned := 0;
    cursor_partition_id := p_job.cursor_partition_id;
    cursor_offset := p_job.cursor_offset;
    FOR v_partition_id IN SELECT * FROM message_job_partitions_v1(p_job) LOOP
        IF v_partition_id <> cursor_partition_id THEN
            cursor_partition_id := v_partition_id;
            cursor_offset := -1;
        END IF;
        v_selected := message_job_offsets_v1(p_job, v_partition_id)
                      * int8multirange(int8range(cursor_offset + 1, NULL));
        v_scan_limit := least(p_scan_limit - scanned,
                              CASE WHEN v_payload IS NULL THEN p_limit - cardinality(offsets) END);
        WITH ranges AS (
            SELECT lower(r) AS low, upper(r) - lower(r) AS size,
                   sum(upper(r) - lower(r)) OVER (ORDER BY lower(r)) - (upper(r) - lower(r)) AS size_before
            FROM unnest(v_selected) r
        ), messages AS (
            SELECT s.first_offset + n - 1 AS message_offset,
                   coalesce(s.transaction_ids[n], s.message_ids[n]::text) AS transaction_id,
                   v_payload IS NULL OR length(s.payloads[n]) > 0 AND get_byte(s.payloads[n], 0) <> 1
                                        AND position(v_payload IN plain_payload_v1(s.payloads[n])) > 0 AS matches
            FROM ranges k
            CROSS JOIN LATERAL segments_v1(
                v_partition_id, k.low, (k.low + least(k.size, v_scan_limit - k.size_before))::bigint) s
            CROSS JOIN LATERAL generate_subscripts(s.message_ids, 1) n
            WHERE k.size_before < v_scan_limit
        )
        SELECT coalesce(array_agg(m.message_offset ORDER BY m.message_offset) FILTER (WHERE m.matches), '{}') AS offsets,
               array_agg(m.transaction_id ORDER BY m.message_offset) FILTER (WHERE m.matches) AS transaction_ids,
               count(*) AS scanned, max(m.message_offset) AS last_offset
        INTO v_batch
        FROM (SELECT m.*, count(*) FILTER (WHERE m.matches) OVER (ORDER BY m.message_offset) AS n FROM messages m) m
        WHERE m.n < p_limit - cardinality(offsets) OR m.matches AND m.n = p_limit - cardinality(offsets);
        IF v_batch.scanned > 0 THEN
            partition_ids := partition_ids || array_fill(v_partition_id, ARRAY[cardinality(v_batch.offsets)]);
            offsets := offsets || v_batch.offsets;
            transaction_ids := transaction_ids || v_batch.transaction_ids;
            scanned := scanned + v_batch.scanned;
            cursor_offset := v_batch.last_offset;
        END IF;
        EXIT WHEN cardinality(offsets) >= p_limit OR scanned >= p_scan_limit;
    END LOOP;
    ended := cardinality(offsets) < p_limit AND scanned < p_scan_limit;
END $$;
