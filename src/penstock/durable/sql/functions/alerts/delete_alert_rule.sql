-- delete_alert_rule_v1: delete a rule. Its open incident is resolved by the next evaluation.
-- Returns: whether there was such a rule.
CREATE OR REPLACE FUNCTION delete_alert_rule_v1(
    p_organization text, p_project text, p_environment text, p_rule_id uuid
) RETURNS boolean
LANGUAGE sql AS $$
    WITH deleted AS (
        DELETE FROM alert_rules r
        WHERE r.id = p_rule_id AND r.environment_id = environment_id_v1(p_organization, p_project, p_environment)
        RETURNING 1)
    SELECT EXISTS (SELECT FROM deleted)
$$;
