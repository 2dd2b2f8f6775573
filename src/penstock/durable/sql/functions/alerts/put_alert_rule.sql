-- put_alert_rule_v1: create a rule, or replace the rule with this id. A changed rule starts with new states.
-- Returns: created, replaced, or name_taken if another rule of the environment has the name.
-- Raises: PK006 the environment does not exist.
CREATE OR REPLACE FUNCTION put_alert_rule_v1(
    p_organization text, p_project text, p_environment text, p_rule_id uuid, p_rule jsonb
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_environment_id bigint := require_environment_v1(p_organization, p_project, p_environment);
    v_old jsonb;
BEGIN
    SELECT r.rule INTO v_old FROM alert_rules r
    WHERE r.id = p_rule_id AND r.environment_id = v_environment_id FOR UPDATE;
    IF FOUND THEN
        -- Where a notice goes does not change what the rule measures.
        IF v_old - '{channels,description,labels,runbook,severity}'::text[]
           IS DISTINCT FROM p_rule - '{channels,description,labels,runbook,severity}'::text[] THEN
            DELETE FROM alert_states s WHERE s.rule_id = p_rule_id AND s.phase IN ('ok', 'pending');
        END IF;
        UPDATE alert_rules r SET name = p_rule ->> 'name', rule = p_rule, updated_at = clock_timestamp(),
               enabled = coalesce((p_rule ->> 'enabled')::boolean, true)
        WHERE r.id = p_rule_id;
        RETURN 'replaced';
    END IF;
    INSERT INTO alert_rules (id, environment_id, name, rule, enabled)
    VALUES (p_rule_id, v_environment_id, p_rule ->> 'name', p_rule, coalesce((p_rule ->> 'enabled')::boolean, true));
    RETURN 'created';
EXCEPTION WHEN unique_violation THEN
    RETURN 'name_taken';
END $$;
