-- items_over_queue_limit_v1: find the items that would take their queue past its size limit.
-- Duplicates do not count. The size is the number of messages the slowest group has not finished; a queue without a
-- group counts all messages it keeps. Messages that wait in lanes count too: they were accepted.
-- Returns: item numbers (1-based); NULL if every item fits.
-- Locks: one advisory lock per queue with a limit, by id, until the end of the transaction. So two pushes to different
-- partitions cannot both take the last free slot.
CREATE OR REPLACE FUNCTION items_over_queue_limit_v1(p_partition_ids bigint[], p_lengths int[], p_duplicates int[])
RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    v_queue bigint;
BEGIN
    FOR v_queue IN
        SELECT DISTINCT q.id FROM partitions p JOIN queues q ON q.id = p.queue_id
        WHERE p.id = ANY (p_partition_ids) AND q.max_size > 0 ORDER BY q.id
    LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended('penstock queue size', v_queue));
    END LOOP;
    RETURN (
        WITH segments AS (
            SELECT s.partition_id, s.length, sum(s.length) OVER (ORDER BY s.n) AS hi
            FROM unnest(p_partition_ids, p_lengths) WITH ORDINALITY AS s (partition_id, length, n)
        ), items AS (
            SELECT q.id AS queue_id, i.item, row_number() OVER (PARTITION BY q.id ORDER BY i.item) AS queue_item_number
            FROM segments s
            JOIN partitions p ON p.id = s.partition_id
            JOIN queues q ON q.id = p.queue_id AND q.max_size > 0
            CROSS JOIN LATERAL generate_series(s.hi - s.length + 1, s.hi) AS i (item)
            WHERE i.item <> ALL (p_duplicates)
        ), capacity AS (
            SELECT q.id, q.max_size - queue_size_v1(q.id) - deferred_messages_v1(q.id) AS free_slots
            FROM queues q WHERE q.id IN (SELECT i.queue_id FROM items i)
        )
        SELECT array_agg(i.item::int ORDER BY i.item) FROM items i JOIN capacity r ON r.id = i.queue_id
        WHERE i.queue_item_number > r.free_slots
    );
END $$;
