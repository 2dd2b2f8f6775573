-- deferred_messages_v1: count the messages that wait in the lanes of a queue.
-- A lane that the calling transaction drains does not count: its partition is marked as having no deferred pushes.
-- Cost: one index lookup per lane and its operations; nothing while no push is deferred.
-- Volatile, so that its snapshot is not older than the last rewrite_table_v1 of a table it reads.
CREATE OR REPLACE FUNCTION deferred_messages_v1(p_queue_id bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(sum(o.items), 0)::bigint
    FROM lanes l
    JOIN partitions p ON p.id = l.partition_id AND p.queue_id = p_queue_id AND p.deferred_pushes > 0
    JOIN operations o ON o.partition_id = l.partition_id AND o.kind = 'push' AND o.status = 'pending'
    WHERE l.kind = 'push'
$$;
