-- Plain names: functions, tables and columns are named after what they do and hold.
--
-- The statements on dead_letters come first: a writer to dead_letters locks that table before it reads the others, so
-- this order cannot deadlock with it.

ALTER TRIGGER dead_letters_come ON dead_letters RENAME TO dead_letters_count_inserts;
ALTER TRIGGER dead_letters_go ON dead_letters RENAME TO dead_letters_count_deletes;
ALTER TRIGGER dead_letters_named ON dead_letters RENAME TO dead_letters_set_error_key;
ALTER FUNCTION count_dead_v1() RENAME TO count_dead_letters_v1;
ALTER FUNCTION name_error_v1() RENAME TO set_error_key_v1;

-- Every other function is dropped here. The migrator creates the functions of this version after the last migration.
DO $$
DECLARE
    v_function regprocedure;
BEGIN
    FOR v_function IN
        SELECT p.oid FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = 'penstock'
          AND p.proname NOT IN ('count_dead_letters_v1', 'set_error_key_v1', 'error_pattern_v1')
    LOOP
        EXECUTE format('DROP FUNCTION %s', v_function);
    END LOOP;
END $$;
DELETE FROM schema_migrations WHERE kind = 'function';

-- positions.finished: offsets beyond the cursor that the group has finished.
-- positions.redeliver_singly_until: below this offset a lease holds one message.
ALTER TABLE positions RENAME COLUMN done TO finished;
ALTER TABLE positions RENAME COLUMN careful_until TO redeliver_singly_until;

-- Deferred operations that wait in the partition's lane of pushes, and in its lane of acks.
ALTER TABLE partitions RENAME COLUMN spilled TO deferred_pushes;
ALTER TABLE partitions RENAME COLUMN spilled_acks TO deferred_acks;

-- operations.sequence: the order within a lane. operations.blocks_lane: the operation failed, and its lane waits for
-- an operator. lanes.due_at: when the oldest operation was accepted, plus one second per step of priority.
ALTER TABLE operations RENAME COLUMN place TO sequence;
ALTER TABLE operations RENAME COLUMN holds TO blocks_lane;
ALTER TABLE lanes RENAME COLUMN due TO due_at;

-- chunk_stages.blocking_transactions: virtual transaction ids that must end before the next stage; NULL: not read yet.
-- chunk_stages.table_name: the table (log or message_keys) that next_block belongs to.
-- chunk_stages.rows_moved: rows that the current pass moved. chunk_stages.has_moved_rows: any pass moved a row.
ALTER TABLE chunk_stages RENAME COLUMN waits_for TO blocking_transactions;
ALTER TABLE chunk_stages RENAME COLUMN part TO table_name;
ALTER TABLE chunk_stages RENAME COLUMN moved TO rows_moved;
ALTER TABLE chunk_stages RENAME COLUMN has_moved TO has_moved_rows;

-- xid_clock.read_at: when next_xid was read.
ALTER TABLE xid_clock RENAME COLUMN at TO read_at;

-- Progress of background work on dead letters. Dead letters up to backfilled_to_id have their error_key; those above
-- backfill_end_id got it when they were inserted. recount_*: the slice that is recounted next.
ALTER TABLE dead_upkeep RENAME TO dead_letter_maintenance;
ALTER TABLE dead_letter_maintenance RENAME COLUMN grouped_to TO backfilled_to_id;
ALTER TABLE dead_letter_maintenance RENAME COLUMN ungrouped_to TO backfill_end_id;
ALTER TABLE dead_letter_maintenance RENAME COLUMN at_queue_id TO recount_queue_id;
ALTER TABLE dead_letter_maintenance RENAME COLUMN at_group_id TO recount_group_id;
ALTER TABLE dead_letter_maintenance RENAME COLUMN at_hour TO recount_hour;

-- dead_drifts.row_count: the rows of dead_letters. dead_drifts.recorded_count: the count that was recorded.
ALTER TABLE dead_drifts RENAME COLUMN counted TO row_count;
ALTER TABLE dead_drifts RENAME COLUMN tallied TO recorded_count;
ALTER TABLE dead_drifts RENAME COLUMN found_at TO detected_at;

-- jobs.scanned: dead letters that the job has read. jobs.cursor_*: the last dead letter that the job has read.
-- jobs.task_cursor: the next page of dead tasks in Redis.
ALTER TABLE jobs RENAME COLUMN letter_ids TO dead_letter_ids;
ALTER TABLE jobs RENAME COLUMN looked_at TO scanned;
ALTER TABLE jobs RENAME COLUMN at_queue_id TO cursor_queue_id;
ALTER TABLE jobs RENAME COLUMN at_group_id TO cursor_group_id;
ALTER TABLE jobs RENAME COLUMN at_failed_at TO cursor_failed_at;
ALTER TABLE jobs RENAME COLUMN at_id TO cursor_dead_letter_id;
ALTER TABLE jobs RENAME COLUMN at_task TO task_cursor;
ALTER TABLE jobs RENAME COLUMN lease_until TO lease_expires_at;

-- reconciliations.last_queue_id: the last queue that the reconciliation has compared.
ALTER TABLE reconciliations RENAME COLUMN at_queue_id TO last_queue_id;
