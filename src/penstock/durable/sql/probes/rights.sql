-- What the role of this session may do in its database, before Penstock's schema exists and after.
-- foreign_owner: the owner of a table that this role can neither change nor replace.
SELECT current_user::text AS role,
       current_database()::text AS database,
       s.schema IS NOT NULL AS has_schema,
       has_database_privilege(current_database(), 'CREATE') AS can_create_schema,
       has_schema_privilege(s.schema, 'USAGE') AND has_schema_privilege(s.schema, 'CREATE') AS can_use_schema,
       (SELECT pg_get_userbyid(c.relowner)::text FROM pg_class c
        WHERE c.relnamespace = s.schema AND c.relkind IN ('r', 'p') AND NOT pg_has_role(c.relowner, 'USAGE')
        LIMIT 1) AS foreign_owner
FROM (SELECT to_regnamespace($1)::oid AS schema) s
