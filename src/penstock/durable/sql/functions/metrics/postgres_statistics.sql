-- postgres_statistics_v1: PostgreSQL's own statistics of this database and of the tables of this schema, as JSON with
-- the field names of Queen 0.15. Lists have up to 20 entries, the largest first.
-- A role without pg_read_all_stats sees that other roles' statements run, not their text.
-- Locks: none.
-- Cost: follows the tables and indexes of the schema and the sessions of the server.
CREATE OR REPLACE FUNCTION postgres_statistics_v1() RETURNS json
LANGUAGE sql STABLE AS $$
    WITH tables AS MATERIALIZED (
        SELECT t.relid, t.schemaname, t.relname, t.n_live_tup, t.n_dead_tup, t.n_tup_upd, t.n_tup_hot_upd,
               t.last_vacuum, t.last_autovacuum, t.autovacuum_count, t.autoanalyze_count,
               coalesce(io.heap_blks_read, 0) AS reads, coalesce(io.heap_blks_hit, 0) AS hits
        FROM pg_stat_user_tables t LEFT JOIN pg_statio_user_tables io USING (relid)
        WHERE t.schemaname = current_schema()
    ), indexes AS MATERIALIZED (
        SELECT i.schemaname, i.relname, i.indexrelname, i.idx_blks_read AS reads, i.idx_blks_hit AS hits
        FROM pg_statio_user_indexes i WHERE i.schemaname = current_schema()
    ), sizes AS MATERIALIZED (
        SELECT t.relname, pg_total_relation_size(t.relid) AS total, pg_relation_size(t.relid) AS heap,
               pg_indexes_size(t.relid) AS indexes
        FROM tables t ORDER BY 2 DESC NULLS LAST LIMIT 20
    )
    SELECT json_build_object(
        'database', current_database(),
        'databaseCache', (
            SELECT json_build_object('database', d.datname, 'diskReads', d.blks_read, 'cacheHits', d.blks_hit,
                                     'cacheHitRatio', percentage_v1(d.blks_hit, d.blks_hit + d.blks_read))
            FROM pg_stat_database d WHERE d.datname = current_database()),
        'tableCache', (
            SELECT coalesce(json_agg(json_build_object(
                'schema', t.schemaname, 'table', t.relname, 'diskReads', t.reads, 'cacheHits', t.hits,
                'cacheHitRatio', percentage_v1(t.hits, t.hits + t.reads)) ORDER BY t.reads DESC), '[]')
            FROM (SELECT * FROM tables ORDER BY reads DESC LIMIT 20) t),
        'indexCache', (
            SELECT coalesce(json_agg(json_build_object(
                'schema', i.schemaname, 'table', i.relname, 'index', i.indexrelname, 'diskReads', i.reads,
                'cacheHits', i.hits, 'cacheHitRatio', percentage_v1(i.hits, i.hits + i.reads))
                ORDER BY i.reads DESC), '[]')
            FROM (SELECT * FROM indexes ORDER BY reads DESC LIMIT 20) i),
        'cacheSummary', json_build_object(
            'tables', (SELECT json_build_object('diskReads', sum(t.reads), 'cacheHits', sum(t.hits),
                                                'hitRatio', percentage_v1(sum(t.hits), sum(t.hits + t.reads)))
                       FROM tables t),
            'indexes', (SELECT json_build_object('diskReads', sum(i.reads), 'cacheHits', sum(i.hits),
                                                 'hitRatio', percentage_v1(sum(i.hits), sum(i.hits + i.reads)))
                        FROM indexes i)),
        'deadTuples', (
            SELECT coalesce(json_agg(json_build_object(
                'schema', t.schemaname, 'table', t.relname, 'deadTuples', t.n_dead_tup, 'liveTuples', t.n_live_tup,
                'deadPercentage', percentage_v1(t.n_dead_tup, t.n_live_tup), 'lastVacuum', t.last_vacuum,
                'lastAutovacuum', t.last_autovacuum) ORDER BY t.n_dead_tup DESC), '[]')
            FROM (SELECT * FROM tables WHERE n_dead_tup > 0 ORDER BY n_dead_tup DESC LIMIT 20) t),
        'hotUpdates', (
            SELECT coalesce(json_agg(json_build_object(
                'schema', t.schemaname, 'table', t.relname, 'totalUpdates', t.n_tup_upd,
                'hotUpdates', t.n_tup_hot_upd, 'hotUpdatePercentage', percentage_v1(t.n_tup_hot_upd, t.n_tup_upd))
                ORDER BY t.n_tup_upd DESC), '[]')
            FROM (SELECT * FROM tables WHERE n_tup_upd > 0 ORDER BY n_tup_upd DESC LIMIT 20) t),
        'activeQueries', (
            SELECT coalesce(json_agg(json_build_object(
                'pid', a.pid, 'duration', extract(epoch FROM clock_timestamp() - a.query_start), 'state', a.state,
                'query', left(a.query, 200), 'waitEventType', a.wait_event_type, 'waitEvent', a.wait_event)
                ORDER BY a.query_start), '[]')
            FROM (SELECT * FROM pg_stat_activity
                  WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()
                    AND query_start < clock_timestamp() - interval '1 second'
                  ORDER BY query_start LIMIT 20) a),
        'autovacuumStatus', (
            SELECT coalesce(json_agg(json_build_object(
                'table', t.relname, 'lastAutovacuum', t.last_autovacuum, 'deadTuples', t.n_dead_tup,
                'autovacuumCount', t.autovacuum_count, 'autoanalyzeCount', t.autoanalyze_count)
                ORDER BY t.n_dead_tup DESC), '[]')
            FROM (SELECT * FROM tables WHERE n_dead_tup > 1000 ORDER BY n_dead_tup DESC LIMIT 20) t),
        'bufferConfig', (
            SELECT json_build_object('sharedBuffers', s.setting,
                                     'sharedBuffersSize', pg_size_pretty(s.setting::bigint * 8192))
            FROM pg_settings s WHERE s.name = 'shared_buffers'),
        'tableSizes', (
            SELECT coalesce(json_agg(json_build_object(
                'table', s.relname, 'totalSize', pg_size_pretty(s.total), 'totalSizeBytes', s.total,
                'tableSize', pg_size_pretty(s.heap), 'tableSizeBytes', s.heap,
                'indexSize', pg_size_pretty(s.indexes), 'indexSizeBytes', s.indexes) ORDER BY s.total DESC), '[]')
            FROM sizes s))
$$;
