-- next_position_state_v1: compute the state of a position after messages were finished or returned. This is the rule:
-- The cursor moves over the finished messages that follow it without a gap. Finished messages beyond it stay in
-- `finished`. Failed attempts of finished messages are forgotten.
-- A lease stays in force until each of its messages is finished or returned. Until then the position keeps its ready
-- time, which is the end of the lease. When the lease ends, `returned` becomes empty.
-- A position whose lease ended is ready after the retry delay if it returned a message. Otherwise a position is ready
-- when its first unfinished message is past the queue's delay, and at once if there is no such message; a position
-- without a lease is not ready earlier than before. An empty position is never ready.
-- p_finished and p_returned include the messages finished and returned before. A caller that ends the lease passes no
-- lease. p_next_offset is the end of the partition, for callers that have the partition locked; others leave it out,
-- and the next pop finds that the position is empty.
-- Only two functions repeat the rule, because calling this one would slow them down: ack_completed_v1 for whole leases,
-- and pop_v1 with auto-ack. test_position_state compares them with it.
-- Cost: at most one index probe of the log. A set-returning SQL function, so that the planner can inline it.
CREATE OR REPLACE FUNCTION next_position_state_v1(
    p_partition_id bigint, p_cursor bigint, p_finished int8multirange, p_delay_ms bigint, p_now timestamptz,
    p_attempts jsonb DEFAULT '{}', p_ready_at timestamptz DEFAULT NULL, p_next_offset bigint DEFAULT NULL,
    p_lease_id uuid DEFAULT NULL, p_lease_to bigint DEFAULT NULL, p_returned int8multirange DEFAULT '{}',
    p_retry_delay_ms bigint DEFAULT 0
) RETURNS TABLE (cursor bigint, finished int8multirange, returned int8multirange, attempts jsonb, lease_id uuid,
                 ready_at timestamptz)
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT s.cursor, p_finished * int8multirange(int8range(s.cursor, NULL)),
           CASE WHEN s.is_leased THEN s.returned ELSE '{}' END,
           CASE WHEN p_attempts = '{}' THEN p_attempts
                ELSE prune_attempts_v1(p_attempts, p_finished, s.cursor) END,
           CASE WHEN s.is_leased THEN p_lease_id END,
           CASE
               WHEN s.is_leased THEN p_ready_at
               WHEN s.cursor >= p_next_offset THEN NULL
               WHEN p_lease_id IS NOT NULL AND NOT isempty(s.returned)
               THEN p_now + p_retry_delay_ms * interval '1 millisecond'
               -- As message_created_at_v1. The test of last_offset must not be a WHERE condition, or the query would
               -- search a drained partition to its beginning.
               ELSE coalesce(greatest(
                   (SELECT CASE WHEN l.last_offset >= s.cursor THEN l.created_at END FROM log l
                    WHERE l.partition_id = p_partition_id AND l.first_offset <= s.cursor
                    ORDER BY l.first_offset DESC LIMIT 1) + p_delay_ms * interval '1 millisecond',
                   CASE WHEN p_lease_id IS NULL THEN p_ready_at END), p_now) END
    FROM (
        SELECT h.*, p_lease_id IS NOT NULL AND h.cursor < p_lease_to
                    AND NOT p_finished + h.returned @> int8range(h.cursor, p_lease_to) AS is_leased
        FROM (SELECT coalesce((SELECT upper(r) FROM unnest(p_finished) r WHERE r @> p_cursor), p_cursor) AS cursor,
                     p_returned - p_finished AS returned
              OFFSET 0) h   -- OFFSET 0: computed once
        OFFSET 0) s
$$;
