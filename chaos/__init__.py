"""Fault injection with a history checker: `make chaos`.

Clients run against a whole platform while a nemesis injects faults. Every call and its answer goes to a
history file, which a separate checker reads. The product imports nothing from here.
"""
