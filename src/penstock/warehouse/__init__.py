"""ClickHouse: client, migrations made from metric definitions, tier routing and series.

The only package that imports the ClickHouse driver. It never talks to PostgreSQL or Redis.
"""
