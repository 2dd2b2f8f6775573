-- find_stored_message_v1: the offset of a message by its transaction id; no row, or a NULL offset, if there is none or
-- it was deleted.
-- Locks: none.
-- Cost: that of find_message_v1, and one index lookup.
CREATE OR REPLACE FUNCTION find_stored_message_v1(p_partition_id bigint, p_transaction_id text)
RETURNS TABLE (message_offset bigint)
LANGUAGE sql STABLE AS $$
    SELECT f.message_offset FROM (SELECT find_message_v1(p_partition_id, p_transaction_id) AS message_offset) f
    WHERE NOT EXISTS (SELECT 1 FROM deleted_messages d
                      WHERE d.partition_id = p_partition_id AND d.message_offset = f.message_offset)
$$;
