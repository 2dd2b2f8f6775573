-- defer_pushes_that_fit_v1: accept pushes as defer_pushes_v1 does, except those that their queue has no room for.
-- An operation fits as a whole or not at all: a drain executes it as a whole.
-- Returns: places as defer_pushes_v1; 0 for an operation that does not fit.
-- Locks: partition rows by id, then queues that have a size limit, as push_v1.
CREATE OR REPLACE FUNCTION defer_pushes_that_fit_v1(
    p_ids uuid[], p_partition_ids bigint[], p_reason text, p_priority int, p_lengths int[], p_message_ids uuid[],
    p_transaction_ids text[], p_trace_ids uuid[], p_payloads bytea[], p_now timestamptz DEFAULT NULL
) RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    v_items_over_limit int[];
    v_fits             boolean[];   -- of each operation
    v_items            record;      -- of the operations that fit
    v_places           int[];
BEGIN
    IF EXISTS (SELECT 1 FROM partitions p JOIN queues q ON q.id = p.queue_id
               WHERE p.id = ANY (p_partition_ids) AND q.max_size > 0) THEN
        PERFORM 1 FROM partitions WHERE id = ANY (p_partition_ids) ORDER BY id FOR NO KEY UPDATE;
        v_items_over_limit := items_over_queue_limit_v1(p_partition_ids, p_lengths, '{}');
    END IF;
    IF v_items_over_limit IS NULL THEN
        RETURN defer_pushes_v1(p_ids, p_partition_ids, p_reason, p_priority, p_lengths, p_message_ids,
                               p_transaction_ids, p_trace_ids, p_payloads, p_now);
    END IF;
    SELECT array_agg(NOT EXISTS (SELECT 1 FROM unnest(v_items_over_limit) i WHERE i > o.hi - o.length AND i <= o.hi)
                     ORDER BY o.n)
    INTO v_fits
    FROM (SELECT l.n, l.length, sum(l.length) OVER (ORDER BY l.n) AS hi
          FROM unnest(p_lengths) WITH ORDINALITY AS l (length, n)) o;
    SELECT array_agg(i.message_id ORDER BY i.item) AS message_ids,
           array_agg(i.transaction_id ORDER BY i.item) AS transaction_ids,
           array_agg(i.trace_id ORDER BY i.item) AS trace_ids, array_agg(i.payload ORDER BY i.item) AS payloads
    INTO v_items
    FROM unnest(p_message_ids, p_transaction_ids, p_trace_ids, p_payloads,
                array(SELECT o.n FROM unnest(p_lengths) WITH ORDINALITY AS o (length, n)
                      CROSS JOIN LATERAL generate_series(1, o.length) ORDER BY o.n))
         WITH ORDINALITY AS i (message_id, transaction_id, trace_id, payload, operation, item)
    WHERE v_fits[i.operation];
    v_places := defer_pushes_v1(
        array(SELECT p_ids[n] FROM generate_subscripts(p_ids, 1) n WHERE v_fits[n] ORDER BY n),
        array(SELECT p_partition_ids[n] FROM generate_subscripts(p_ids, 1) n WHERE v_fits[n] ORDER BY n),
        p_reason, p_priority,
        array(SELECT p_lengths[n] FROM generate_subscripts(p_ids, 1) n WHERE v_fits[n] ORDER BY n),
        v_items.message_ids, v_items.transaction_ids, v_items.trace_ids, v_items.payloads, p_now);
    RETURN (
        SELECT array_agg(CASE WHEN f.fits THEN v_places[f.nth] ELSE 0 END ORDER BY f.n)
        FROM (SELECT u.fits, u.n, count(*) FILTER (WHERE u.fits) OVER (ORDER BY u.n) AS nth
              FROM unnest(v_fits) WITH ORDINALITY AS u (fits, n)) f
    );
END $$;
