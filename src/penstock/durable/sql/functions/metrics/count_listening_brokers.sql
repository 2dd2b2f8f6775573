-- count_listening_brokers_v1: how many brokers listen for notifications in this database, this one included. They are
-- known by the application_name of their listening connection.
-- Locks: none.
-- Cost: follows the sessions of the server.
CREATE OR REPLACE FUNCTION count_listening_brokers_v1(p_application_name text)
RETURNS TABLE (brokers bigint)
LANGUAGE sql STABLE AS $$
    SELECT count(*) FROM pg_stat_activity a
    WHERE a.application_name = p_application_name AND a.datname = current_database()
$$;
