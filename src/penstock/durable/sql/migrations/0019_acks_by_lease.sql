-- Acks of completed messages are passed by lease: ack_completed_v1 has other parameters.
DROP FUNCTION IF EXISTS ack_completed_v1(bigint[], bigint[], uuid[], text[], timestamptz);
