-- chunks_v1: list the chunks with their stage, size on disk, and bytes held and kept.
-- Returns: held_bytes and kept_bytes are bytes of messages, NULL unless the chunk is counted. Messages below a
-- partition's low_offset and messages of deleted partitions are held but not kept.
-- Cost: follows the number of partitions per chunk, never messages.
CREATE OR REPLACE FUNCTION chunks_v1()
RETURNS TABLE (chunk int, stage text, opened_at timestamptz, size_bytes bigint, held_bytes bigint, kept_bytes bigint)
LANGUAGE sql STABLE AS $$
    WITH counted AS (
        SELECT s.chunk, sum(s.bytes)::bigint AS held,
               coalesce(ceil(sum(s.bytes * (s.last_offset - greatest(s.first_offset, t.low_offset) + 1)::float8
                                 / (s.last_offset - s.first_offset + 1))
                             FILTER (WHERE s.last_offset >= t.low_offset)), 0)::bigint AS kept
        FROM spans s LEFT JOIN partitions t ON t.id = s.partition_id GROUP BY s.chunk
    )
    SELECT g.chunk, g.stage, c.opened_at,
           coalesce(pg_total_relation_size(to_regclass('log_' || g.chunk)), 0)
           + coalesce(pg_total_relation_size(to_regclass('message_keys_' || g.chunk)), 0)
           + coalesce(pg_total_relation_size(to_regclass('message_values_' || g.chunk)), 0),
           CASE WHEN g.stage = 'counted' THEN coalesce(k.held, 0) END,
           CASE WHEN g.stage = 'counted' THEN coalesce(k.kept, 0) END
    FROM chunk_stages g
    LEFT JOIN chunks c ON c.id = g.chunk
    LEFT JOIN counted k ON k.chunk = g.chunk
    ORDER BY g.chunk
$$;
