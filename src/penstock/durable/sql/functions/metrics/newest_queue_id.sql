-- newest_queue_id_v1: the largest id of a queue; 0 if there is none.
-- Locks: none.
CREATE OR REPLACE FUNCTION newest_queue_id_v1() RETURNS bigint
LANGUAGE sql STABLE AS $$ SELECT coalesce(max(q.id), 0) FROM queues q $$;
