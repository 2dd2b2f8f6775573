-- declare_dead_v1: declare a message dead for a group, independent of its attempts.
-- Returns: `dead`, or `discarded` if the queue keeps no dead letters. Without an effect: `already_dead`; `finished` if
-- the group has finished the message or it was deleted; `gone` if the group does not exist any more.
-- Locks: the position, its tally, the dead letter.
CREATE OR REPLACE FUNCTION declare_dead_v1(
    p_partition_id bigint, p_group_id bigint, p_offset bigint, p_error text, p_now timestamptz DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_now      timestamptz := coalesce(p_now, clock_timestamp());
    v_position positions;
BEGIN
    SELECT * INTO v_position FROM positions
    WHERE partition_id = p_partition_id AND group_id = p_group_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'gone';
    END IF;
    IF EXISTS (SELECT 1 FROM dead_letters d WHERE d.partition_id = p_partition_id AND d.group_id = p_group_id
               AND d.message_offset = p_offset) THEN
        RETURN 'already_dead';
    END IF;
    IF v_position.cursor > p_offset OR v_position.finished @> p_offset THEN
        RETURN 'finished';
    END IF;
    PERFORM lock_tallies_v1(ARRAY[p_partition_id], ARRAY[p_group_id]);
    PERFORM move_to_dead_letters_v1(p_partition_id, p_group_id, ARRAY[p_offset], ARRAY[p_error], v_now);
    -- No attempt failed now: only the earlier failures count.
    UPDATE dead_letters d SET attempts = d.attempts - 1
    WHERE d.partition_id = p_partition_id AND d.group_id = p_group_id AND d.message_offset = p_offset;
    PERFORM finish_message_v1(p_partition_id, p_group_id, p_offset, v_now);
    RETURN CASE WHEN EXISTS (
        SELECT 1 FROM dead_letters d WHERE d.partition_id = p_partition_id AND d.group_id = p_group_id
        AND d.message_offset = p_offset) THEN 'dead' ELSE 'discarded' END;
END $$;
