-- States of error groups, samples of jobs, and jobs on messages and tasks.

-- dead_tallies.deaths: dead letters that the row added. messages can also change because error keys were assigned, dead
-- letters were deleted, or a recount corrected the count.
ALTER TABLE dead_tallies ADD COLUMN deaths bigint NOT NULL DEFAULT 0;

-- The state that an operator set. Whether the group is back again follows from what happened since: error_group_state_v1.
ALTER TABLE error_groups
    ADD COLUMN state            text NOT NULL DEFAULT 'new' CHECK (state IN ('new', 'open', 'ignored', 'resolved')),
    ADD COLUMN state_since      timestamptz,       -- NULL: it is new
    ADD COLUMN ignored_until    timestamptz,       -- an ignored group is back at this time,
    ADD COLUMN ignored_count    bigint,            -- or after so many more dead letters,
    ADD COLUMN ignored_rate     bigint,            -- or after more than so many in one clock hour
    ADD COLUMN deaths           bigint NOT NULL DEFAULT 0,   -- since state_since, of a group that is ignored or resolved
    ADD COLUMN tasks_counted_to timestamptz,       -- dead tasks up to this time are in deaths
    ADD COLUMN owner            text,
    ADD COLUMN note             text,
    ADD COLUMN changed_at       timestamptz,       -- by an operator: the state, the owner or the note
    ADD COLUMN changed_by       text;
UPDATE error_groups
SET state = 'resolved', state_since = coalesce(resolved_at, returned_at), changed_at = coalesce(resolved_at, returned_at),
    deaths = CASE WHEN resolved_at IS NULL THEN 1 ELSE 0 END
WHERE resolved_at IS NOT NULL OR returned_at IS NOT NULL;
UPDATE error_groups SET returned_at = NULL WHERE resolved_at IS NOT NULL;
ALTER TABLE error_groups DROP COLUMN resolved_at;

-- Dead letters by clock hour since state_since, of groups that are ignored until a rate.
CREATE TABLE error_group_hours (
    environment_id bigint NOT NULL,
    queue          text NOT NULL,
    error_key      uuid NOT NULL,
    hour           timestamptz NOT NULL,
    deaths         bigint NOT NULL,
    PRIMARY KEY (environment_id, queue, error_key, hour),
    FOREIGN KEY (environment_id, queue, error_key) REFERENCES error_groups ON DELETE CASCADE
);

-- jobs.subject: what the job changes. jobs.skipped: messages and tasks that were leased. jobs.sample_*: how many dead
-- letters are requeued first, the share of them that must succeed, and how long the job waits for them.
ALTER TABLE jobs DROP CONSTRAINT jobs_kind_check;
ALTER TABLE jobs
    ADD CONSTRAINT jobs_kind_check CHECK (kind IN ('requeue', 'purge', 'dead_letter')),
    ADD COLUMN subject             text NOT NULL DEFAULT 'dead_letters'
                                   CHECK (subject IN ('dead_letters', 'messages', 'tasks')),
    ADD COLUMN task_state          text,        -- of a job on tasks: eligible or delayed
    ADD COLUMN reason              text,        -- the error of the dead letters that a job creates
    ADD COLUMN skipped             bigint NOT NULL DEFAULT 0,
    ADD COLUMN cursor_partition_id bigint NOT NULL DEFAULT 0,
    ADD COLUMN cursor_offset       bigint NOT NULL DEFAULT -1,
    ADD COLUMN sample_size         int CHECK (sample_size > 0),
    ADD COLUMN sample_share        double precision CHECK (sample_share > 0 AND sample_share <= 1),
    ADD COLUMN sample_timeout_s    int CHECK (sample_timeout_s > 0),
    ADD COLUMN sample_ends_at      timestamptz,   -- NULL: the sample is not complete yet
    ADD COLUMN sample_taken        int NOT NULL DEFAULT 0,   -- dead letters in the sample so far
    ADD COLUMN sample_acked        int NOT NULL DEFAULT 0,
    ADD COLUMN sample_dead         int NOT NULL DEFAULT 0,
    ADD COLUMN sample_passed       boolean,       -- NULL: not decided yet
    ADD COLUMN created_by          text;

-- The messages or tasks that a job requeued as its sample, and what became of them.
CREATE TABLE job_samples (
    job_id         uuid NOT NULL REFERENCES jobs ON DELETE CASCADE,
    item           text NOT NULL,                 -- partition/group/offset of a message; the id of a task
    partition_id   bigint,
    group_id       bigint,
    message_offset bigint,
    dead_ms        bigint,                        -- when a task had died; it is requeued once
    outcome        text CHECK (outcome IN ('acked', 'dead')),   -- NULL: not finished yet
    error          text,
    PRIMARY KEY (job_id, item)
);

-- These functions have other parameters or columns now, or are replaced by change_error_group_v1.
DROP FUNCTION IF EXISTS resolve_error_group_v1(text, text, text, uuid, text, timestamptz);
DROP FUNCTION IF EXISTS dead_letter_error_groups_v1(text, text, text, text, text, int, int, int, timestamptz);
DROP FUNCTION IF EXISTS merge_error_groups_v1(bigint, text[], text[], timestamptz[], timestamptz, timestamptz);
DROP FUNCTION IF EXISTS create_job_v1(
    uuid, text, text, text, text, text, text, text, timestamptz, timestamptz, text, uuid, text, bigint[], int, int,
    boolean, timestamptz);
DROP FUNCTION IF EXISTS create_task_job_v1(
    text, text, text, uuid, text, text, timestamptz, timestamptz, text, uuid, text, text[], int, bigint, boolean);
DROP FUNCTION IF EXISTS advance_task_job_v1(uuid, int, int, text, boolean);
DELETE FROM schema_migrations WHERE kind = 'function' AND name IN (
    'resolve_error_group', 'dead_letter_error_groups', 'merge_error_groups', 'create_job', 'create_task_job',
    'advance_task_job');
