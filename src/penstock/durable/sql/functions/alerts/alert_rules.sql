-- alert_rules_v1: the rules of an environment with their last evaluation, by name. p_rule_id selects one of them.
CREATE OR REPLACE FUNCTION alert_rules_v1(
    p_organization text, p_project text, p_environment text, p_rule_id uuid DEFAULT NULL
) RETURNS TABLE (id uuid, rule jsonb, created_at timestamptz, updated_at timestamptz, evaluated_at timestamptz,
                 ok int, pending int, firing int, clearing int, unknown int, unknown_reason text)
LANGUAGE sql STABLE AS $$
    SELECT r.id, r.rule, r.created_at, r.updated_at, s.evaluated_at, s.ok, s.pending, s.firing, s.clearing, s.unknown,
           s.unknown_reason
    FROM alert_rules r LEFT JOIN alert_rule_status s ON s.rule_id = r.id
    WHERE r.environment_id = environment_id_v1(p_organization, p_project, p_environment)
      AND (p_rule_id IS NULL OR r.id = p_rule_id)
    ORDER BY r.name
$$;
