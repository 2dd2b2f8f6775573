"""The servers Penstock brings along for one machine, and the supervisor that keeps them running.

Every part can be somebody's own server instead; nothing above this package knows the difference.
"""
