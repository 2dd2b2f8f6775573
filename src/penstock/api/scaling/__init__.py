"""How many workers a queue needs: live depth from the broker, service times from the metrics."""
