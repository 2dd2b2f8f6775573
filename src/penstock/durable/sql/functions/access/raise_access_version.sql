-- raise_access_version_v1: make every broker read tokens and environments again.
-- Every change of them calls it in its own transaction: brokers poll the version, and the notification saves them the wait.
-- Locks: the row of access_version until the end of the transaction, so changes of access happen one after another.
CREATE OR REPLACE FUNCTION raise_access_version_v1() RETURNS void
LANGUAGE sql AS $$
    UPDATE access_version SET version = version + 1;
    SELECT pg_notify('penstock_news', 'access changed');
$$;
