-- search_ranges_v1: the next ranges of offsets that a search reads.
-- They have at most p_messages messages, of p_partitions partitions. Partitions come by id from p_from, the newest
-- messages of each first; of partition p_from, those below offset p_below.
-- The other arguments are those of search_candidates_v1.
-- Returns: the ranges in that order, and on every row the number of partitions and the last of them. Without a range it
-- is one row.
-- Cost: that of search_candidates_v1.
CREATE OR REPLACE FUNCTION search_ranges_v1(
    p_queue_ids bigint[], p_group_ids bigint[], p_partition_id bigint, p_status text, p_start timestamptz,
    p_end timestamptz, p_key uuid, p_from bigint, p_below bigint, p_partitions int, p_messages bigint
) RETURNS TABLE (partition_id bigint, group_id bigint, range_from bigint, range_to bigint, last_partition_id bigint,
                 partitions bigint)
LANGUAGE sql STABLE AS $$
    WITH candidates AS MATERIALIZED (
        SELECT * FROM search_candidates_v1(p_queue_ids, p_group_ids, p_partition_id, p_status, p_start, p_end, p_key,
                                           p_from, p_partitions)
    ), ranges AS (
        SELECT c.partition_id, c.group_id, lower(r) AS lo, upper(r) AS hi,
               sum(upper(r) - lower(r)) OVER (ORDER BY c.partition_id, lower(r) DESC)::bigint AS running_total
        FROM candidates c CROSS JOIN LATERAL unnest(
            c.offsets * CASE WHEN c.partition_id = p_from THEN int8multirange(int8range(NULL, p_below))
                             ELSE '{(,)}' END) r
    ), page AS (
        SELECT r.partition_id, r.group_id, r.hi,
               greatest(r.lo, r.hi - (p_messages - (r.running_total - (r.hi - r.lo)))) AS lo
        FROM ranges r WHERE r.running_total - (r.hi - r.lo) < p_messages
    )
    SELECT k.partition_id, k.group_id, k.lo, k.hi, s.last_partition_id, s.partitions
    FROM (SELECT max(c.partition_id) AS last_partition_id, count(*) AS partitions FROM candidates c) s
    LEFT JOIN page k ON true
    ORDER BY k.partition_id, k.lo DESC
$$;
