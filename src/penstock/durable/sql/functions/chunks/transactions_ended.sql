-- transactions_ended_v1: whether all of these transactions, as log_transactions_v1 names them, have ended. NULL: not known, so no.
CREATE OR REPLACE FUNCTION transactions_ended_v1(p_transactions text[]) RETURNS boolean
LANGUAGE sql AS $$
    SELECT p_transactions IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM pg_locks l WHERE l.virtualtransaction = ANY (p_transactions))
$$;
