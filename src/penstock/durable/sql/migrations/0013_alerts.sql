-- Alerts: rules, channels and silences that people write; states and incidents that the evaluator writes; and the outbox
-- of notices. One evaluator of the cluster writes states, incidents and notices in one transaction per evaluation, so a
-- decision and its notices exist together or not at all.

CREATE TABLE alert_channels (
    id             uuid PRIMARY KEY,
    environment_id bigint NOT NULL REFERENCES environments,
    name           text NOT NULL,
    kind           text NOT NULL CHECK (kind IN ('webhook', 'slack', 'email', 'pagerduty', 'teams', 'alertmanager')),
    settings       jsonb NOT NULL,             -- without secrets
    secrets        bytea NOT NULL,             -- encrypted JSON object; never returned
    enabled        boolean NOT NULL DEFAULT true,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (environment_id, name)
);

CREATE TABLE alert_rules (
    id             uuid PRIMARY KEY,
    environment_id bigint NOT NULL REFERENCES environments,
    name           text NOT NULL,
    rule           jsonb NOT NULL,             -- all fields, as in JSON and TOML
    enabled        boolean NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (environment_id, name)
);

CREATE TABLE alert_silences (
    id             uuid PRIMARY KEY,
    environment_id bigint NOT NULL REFERENCES environments,
    silence        jsonb NOT NULL,             -- scope and recurrence, as in JSON and TOML
    starts_at      timestamptz,
    ends_at        timestamptz,                -- NULL: until it is deleted
    created_by     text NOT NULL DEFAULT '',
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX alert_silences_of_environment ON alert_silences (environment_id);

-- An incident of a rule, with all queues for which the rule fires. A rule has at most one open incident.
CREATE TABLE alert_incidents (
    id              uuid PRIMARY KEY,
    environment_id  bigint NOT NULL REFERENCES environments,
    rule_id         uuid REFERENCES alert_rules ON DELETE SET NULL,
    rule            jsonb NOT NULL,            -- the rule as it was when the incident opened
    severity        text NOT NULL,
    opened_at       timestamptz NOT NULL,
    acknowledged_at timestamptz,
    acknowledged_by text,
    resolved_at     timestamptz,
    resolution      text,                      -- why: cleared, rule deleted, rule disabled, queue deleted
    cause           jsonb,                     -- the cause, its figures, and the checks that were excluded
    chart           bytea,                     -- PNG of the moment
    inhibited_by    uuid,                      -- the open platform incident that explains this one
    silenced        boolean NOT NULL DEFAULT false,
    notified_at     timestamptz,               -- the last notice that was written; NULL: none yet
    notice_count    int NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX alert_incidents_open ON alert_incidents (rule_id) WHERE resolved_at IS NULL;
CREATE INDEX alert_incidents_recent ON alert_incidents (environment_id, opened_at DESC, id);

CREATE TABLE alert_incident_queues (
    incident_id uuid NOT NULL REFERENCES alert_incidents ON DELETE CASCADE,
    queue       text NOT NULL,                 -- empty: the whole environment
    fired_at    timestamptz NOT NULL,
    resolved_at timestamptz,
    value       double precision,              -- that decided
    threshold   double precision,
    summary     text NOT NULL,                 -- one sentence with the figures
    notified_at timestamptz,                   -- the first notice that names the queue
    PRIMARY KEY (incident_id, queue)
);

CREATE TABLE alert_incident_notes (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    incident_id uuid NOT NULL REFERENCES alert_incidents ON DELETE CASCADE,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    author      text NOT NULL DEFAULT '',
    note        text NOT NULL
);
CREATE INDEX alert_incident_notes_of_incident ON alert_incident_notes (incident_id, id);

-- The state of a rule for a queue. A queue whose state is ok has no row, unless its cooldown lasts.
CREATE TABLE alert_states (
    rule_id        uuid NOT NULL REFERENCES alert_rules ON DELETE CASCADE,
    queue          text NOT NULL,              -- empty: the whole environment
    phase          text NOT NULL CHECK (phase IN ('ok', 'pending', 'firing', 'clearing')),
    since          timestamptz NOT NULL,
    in_phase_s     double precision NOT NULL,
    evaluated_at   timestamptz NOT NULL,
    unknown_reason text,                       -- NULL: the state is known
    value          double precision,
    notified_at    timestamptz,                -- the start of the cooldown
    PRIMARY KEY (rule_id, queue)
) WITH (fillfactor = 50);

-- The last evaluation of a rule: how many queues are in which state.
CREATE TABLE alert_rule_status (
    rule_id        uuid PRIMARY KEY REFERENCES alert_rules ON DELETE CASCADE,
    evaluated_at   timestamptz NOT NULL,
    ok             int NOT NULL,
    pending        int NOT NULL,
    firing         int NOT NULL,
    clearing       int NOT NULL,
    unknown        int NOT NULL,
    unknown_reason text
) WITH (fillfactor = 50);

-- The outbox. A notice exists once per incident, transition and channel; the sender delivers it at least once, with its
-- id, which stays the same in every attempt.
CREATE TABLE alert_notices (
    id              uuid PRIMARY KEY,
    environment_id  bigint NOT NULL REFERENCES environments,
    incident_id     uuid REFERENCES alert_incidents ON DELETE CASCADE,   -- NULL: a test notice
    transition      text NOT NULL,             -- opened, update 1, update 2, …, resolved, test
    channel_id      uuid NOT NULL REFERENCES alert_channels ON DELETE CASCADE,
    message         jsonb NOT NULL,            -- everything that a sender needs
    state           text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'sent', 'failed')),
    attempts        int NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until     timestamptz,
    owner           uuid,
    last_error      text,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at         timestamptz,
    UNIQUE (incident_id, transition, channel_id)
) WITH (fillfactor = 50);
CREATE INDEX alert_notices_due ON alert_notices (next_attempt_at) WHERE state = 'pending';
CREATE INDEX alert_notices_recent ON alert_notices (environment_id, created_at DESC, id);
CREATE INDEX alert_notices_of_channel ON alert_notices (channel_id);

-- The evaluator of the cluster, for every broker's metrics.
CREATE TABLE alert_evaluator (
    id               int PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    evaluated_at     timestamptz,              -- when the last evaluation ended
    evaluated_to     timestamptz,              -- the watermark up to which it evaluated
    duration_s       double precision NOT NULL DEFAULT 0,
    evaluations      bigint NOT NULL DEFAULT 0,
    failures         bigint NOT NULL DEFAULT 0,
    last_error       text
);
INSERT INTO alert_evaluator DEFAULT VALUES;

-- Error groups that dead letters of a queue had since an alert first looked at them, and those declared resolved.
CREATE TABLE error_groups (
    environment_id bigint NOT NULL REFERENCES environments,
    queue          text NOT NULL,
    error_key      uuid NOT NULL,
    pattern        text NOT NULL,
    example        text NOT NULL,              -- an error of the group, shortened
    first_seen_at  timestamptz NOT NULL,       -- the oldest dead letter; -infinity: before the first evaluation
    last_seen_at   timestamptz NOT NULL,       -- when an evaluation last had dead letters of it, to the day
    resolved_at    timestamptz,                -- NULL: not resolved, or back
    returned_at    timestamptz,                -- when it came back after it was resolved
    PRIMARY KEY (environment_id, queue, error_key)
);
-- When alerts first looked at the error groups. Groups that existed then are not new.
ALTER TABLE environments ADD COLUMN error_groups_from timestamptz;
