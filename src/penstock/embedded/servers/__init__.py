"""Embedded servers: PostgreSQL, Valkey, ClickHouse and Java, and external ones given by URL."""
