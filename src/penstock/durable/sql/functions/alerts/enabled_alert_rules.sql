-- enabled_alert_rules_v1: the enabled alert rules of all environments.
-- Cost: follows the rules.
CREATE OR REPLACE FUNCTION enabled_alert_rules_v1()
RETURNS TABLE (environment_id bigint, organization text, project text, environment text, rule_id uuid, rule jsonb)
LANGUAGE sql STABLE AS $$
    SELECT e.id, e.organization, e.project, e.name, r.id, r.rule
    FROM alert_rules r JOIN environments e ON e.id = r.environment_id
    WHERE r.enabled
    ORDER BY e.id, r.name
$$;
