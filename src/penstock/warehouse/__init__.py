"""ClickHouse: the client, the schema and its migrations, the tiers, and the series read from them.

No other package imports the ClickHouse driver. This one never uses PostgreSQL or Redis.
"""
