-- Messages given back with the ack status `retry` have a counter of their own; they are not failed attempts.
-- Brokers of earlier versions leave it null.
ALTER TABLE queue_lag_metrics ADD COLUMN released bigint;

-- Completed messages per queue and group, next to the finished ones, which include dead, expired and skipped messages.
-- The metrics of completed messages are compared with it.
ALTER TABLE tallies ADD COLUMN completed bigint NOT NULL DEFAULT 0;

-- Its result has one more column.
DROP FUNCTION IF EXISTS queue_minute_metrics_v1(text, text, text, timestamptz, timestamptz, interval, text, text);
