-- without_items_v1: remove items (1-based) from the arrays of a push.
-- Returns: the lengths of the segments and the arrays without these items; transaction ids and trace ids that are NULL
-- stay NULL.
CREATE OR REPLACE FUNCTION without_items_v1(
    p_lengths int[], p_message_ids uuid[], p_transaction_ids text[], p_trace_ids uuid[], p_payloads bytea[], p_items int[],
    OUT lengths int[], OUT message_ids uuid[], OUT transaction_ids text[], OUT trace_ids uuid[], OUT payloads bytea[]
)
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    SELECT array_agg(k.message_id ORDER BY k.item),
           CASE WHEN p_transaction_ids IS NOT NULL THEN array_agg(k.transaction_id ORDER BY k.item) END,
           CASE WHEN p_trace_ids IS NOT NULL THEN array_agg(k.trace_id ORDER BY k.item) END,
           array_agg(k.payload ORDER BY k.item)
    INTO message_ids, transaction_ids, trace_ids, payloads
    FROM unnest(p_message_ids, coalesce(p_transaction_ids, '{}'), coalesce(p_trace_ids, '{}'), p_payloads)
         WITH ORDINALITY AS k (message_id, transaction_id, trace_id, payload, item)
    WHERE k.item <> ALL (p_items);
    SELECT array_agg((s.length - (
               SELECT count(*) FROM unnest(p_items) o WHERE o > s.hi - s.length AND o <= s.hi
           ))::int ORDER BY s.n)
    INTO lengths
    FROM (SELECT l.length, l.n, sum(l.length) OVER (ORDER BY l.n) AS hi
          FROM unnest(p_lengths) WITH ORDINALITY AS l (length, n)) s;
END $$;
