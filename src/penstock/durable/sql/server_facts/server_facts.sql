-- Facts about the server that an operator needs before the load comes: connections, time.
SELECT current_setting('server_version') AS version,
       current_setting('max_connections')::int AS max_connections,
       (SELECT count(*)::int FROM pg_stat_activity a WHERE a.backend_type = 'client backend') AS connections,
       clock_timestamp() AS now
