"""Embedded PostgreSQL, Valkey and ClickHouse, the Java for Spark, and external servers given by URL."""
