-- take_over_journal_v1: defer the pushes that a journal holds up to p_position, once: a journal that was taken over up
-- to there before changes nothing and returns an empty array. Takes pushes and returns places as defer_pushes_v1 does.
-- Locks: the journal's row; those of defer_pushes_v1.
-- Raises: PK004 a queue was deleted; look its partitions up again. Nothing was deferred then.
-- Cost: that of defer_pushes_v1.
CREATE OR REPLACE FUNCTION take_over_journal_v1(
    p_journal_id uuid, p_position bigint, p_ids uuid[], p_partition_ids bigint[], p_reason text, p_priority int,
    p_lengths int[], p_message_ids uuid[], p_transaction_ids text[], p_trace_ids uuid[], p_payloads bytea[]
) RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    v_places int[] := '{}';
BEGIN
    INSERT INTO journals AS j (id, position) VALUES (p_journal_id, p_position)
    ON CONFLICT (id) DO UPDATE SET position = excluded.position, taken_at = now()
    WHERE j.position < excluded.position;
    IF FOUND AND cardinality(p_ids) > 0 THEN
        v_places := defer_pushes_v1(p_ids, p_partition_ids, p_reason, p_priority, p_lengths, p_message_ids,
                                    p_transaction_ids, p_trace_ids, p_payloads);
        IF array_position(v_places, NULL) IS NOT NULL THEN
            RAISE EXCEPTION 'a queue was deleted meanwhile' USING ERRCODE = 'PK004';
        END IF;
    END IF;
    RETURN v_places;
END $$;
