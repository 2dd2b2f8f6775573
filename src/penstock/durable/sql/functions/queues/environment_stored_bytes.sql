-- environment_stored_bytes_v1: estimate the bytes of the messages that an environment stores.
-- Closed chunks are counted: `spans` has their bytes by partition, of which the kept share of offsets is taken. The
-- messages of other chunks have the average size in the newest segments of the partitions that have most of them.
-- Locks: none.
-- Cost: follows the partitions and chunks; it reads at most 400 segments, without their payloads.
-- Volatile, so that its snapshot is not older than the last rewrite_table_v1 of a table it reads.
CREATE OR REPLACE FUNCTION environment_stored_bytes_v1(p_organization text, p_project text, p_environment text)
RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    WITH kept AS MATERIALIZED (
        SELECT t.id, t.low_offset, t.next_offset
        FROM queues q JOIN partitions t ON t.queue_id = q.id
        WHERE q.environment_id = environment_id_v1(p_organization, p_project, p_environment)
          AND t.next_offset > t.low_offset
    ), counted AS MATERIALIZED (
        SELECT s.partition_id, max(s.last_offset) + 1 AS counted_to,
               sum(s.bytes * greatest(s.last_offset + 1 - greatest(s.first_offset, k.low_offset), 0)::numeric
                   / (s.last_offset + 1 - s.first_offset)) AS bytes
        FROM kept k
        CROSS JOIN chunk_stages c
        JOIN spans s ON s.chunk = c.chunk AND s.partition_id = k.id
        GROUP BY s.partition_id
    ), uncounted AS MATERIALIZED (
        SELECT k.id, greatest(k.low_offset, coalesce(c.counted_to, 0)) AS first_offset,
               k.next_offset - greatest(k.low_offset, coalesce(c.counted_to, 0)) AS messages
        FROM kept k LEFT JOIN counted c ON c.partition_id = k.id
        WHERE k.next_offset > coalesce(c.counted_to, 0)
    ), sampled AS (
        SELECT u.messages, l.bytes_per_message
        FROM (SELECT u.* FROM uncounted u ORDER BY u.messages DESC, u.id LIMIT 20) u
        CROSS JOIN LATERAL (
            SELECT sum(n.bytes)::numeric / sum(n.messages) AS bytes_per_message
            FROM (SELECT 100 + pg_column_size(l.payloads) + pg_column_size(l.message_ids)
                             + coalesce(pg_column_size(l.transaction_ids), 0)
                             + coalesce(pg_column_size(l.trace_ids), 0) AS bytes,
                         l.last_offset + 1 - l.first_offset AS messages
                  FROM log l WHERE l.partition_id = u.id AND l.first_offset >= u.first_offset
                  ORDER BY l.first_offset DESC LIMIT 20) n
        ) l
        WHERE l.bytes_per_message IS NOT NULL
    )
    SELECT (coalesce((SELECT sum(c.bytes) FROM counted c), 0)
            + coalesce((SELECT sum(u.messages) FROM uncounted u)
                       * (SELECT sum(s.messages * s.bytes_per_message) / sum(s.messages) FROM sampled s), 0))::bigint
$$;
