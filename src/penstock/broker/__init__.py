"""What the broker does between HTTP and PostgreSQL: push, pop, ack, and what they tell the metrics.

It knows neither HTTP nor SQL.
"""
