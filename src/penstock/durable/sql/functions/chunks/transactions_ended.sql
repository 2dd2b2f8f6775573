-- transactions_ended_v1: tell whether all transactions that transactions_using_log_v1 returned have ended.
-- Returns: false for NULL, which means that the transactions are not known yet.
CREATE OR REPLACE FUNCTION transactions_ended_v1(p_transactions text[]) RETURNS boolean
LANGUAGE sql AS $$
    SELECT p_transactions IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM pg_locks l WHERE l.virtualtransaction = ANY (p_transactions))
$$;
