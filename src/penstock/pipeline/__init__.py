"""The Spark job that moves metric events from Redis Streams into ClickHouse.

Only this package imports pyspark, so serving needs no JVM. Nothing here may be imported by the broker or the
API.
"""
