-- lock_queues_v1: let queues be made up as they are until the end of the transaction: none is deleted, and no group
-- is made or deleted in them. With p_alone no partition is made either, and nobody else holds them.
-- Not a lock on their rows: pushes and acks refer to those, and would have to wait for whoever waits for one.
-- Locks: advisory ones, by id; so this comes before any other lock.
CREATE OR REPLACE FUNCTION lock_queues_v1(p_queue_ids bigint[], p_alone boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_id bigint;
BEGIN
    FOR v_id IN SELECT DISTINCT i FROM unnest(p_queue_ids) i ORDER BY i LOOP
        IF p_alone THEN
            PERFORM pg_advisory_xact_lock(hashtextextended('penstock queue', v_id));
        ELSE
            PERFORM pg_advisory_xact_lock_shared(hashtextextended('penstock queue', v_id));
        END IF;
    END LOOP;
END $$;
