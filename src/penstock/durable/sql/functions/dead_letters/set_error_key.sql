-- set_error_key_v1: trigger function that gives a new dead letter the key of its error group.
-- A trigger, so that it holds for every writer of dead_letters. A writer that sets error_key itself skips it.
-- Locks: none.
CREATE OR REPLACE FUNCTION set_error_key_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.error_key := md5(error_pattern_v1(NEW.error))::uuid;
    RETURN NEW;
END $$;
