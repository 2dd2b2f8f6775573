-- lock_queues_v1: keep queues from being deleted or restructured until the end of the transaction.
-- No queue is deleted, and no group is created or deleted in them. With p_exclusive no partition is created either, and
-- no other transaction has this lock on them.
-- It does not lock rows of `queues`: pushes and acks reference those rows, and would wait behind a waiting locker.
-- Locks: advisory locks by id. Call it before taking any other lock.
CREATE OR REPLACE FUNCTION lock_queues_v1(p_queue_ids bigint[], p_exclusive boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_id bigint;
BEGIN
    FOR v_id IN SELECT DISTINCT i FROM unnest(p_queue_ids) i ORDER BY i LOOP
        IF p_exclusive THEN
            PERFORM pg_advisory_xact_lock(hashtextextended('penstock queue', v_id));
        ELSE
            PERFORM pg_advisory_xact_lock_shared(hashtextextended('penstock queue', v_id));
        END IF;
    END LOOP;
END $$;
