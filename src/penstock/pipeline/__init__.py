"""The Spark job that carries metric events from Redis Streams into ClickHouse.

The only package that imports pyspark, so serving needs no JVM.
"""
