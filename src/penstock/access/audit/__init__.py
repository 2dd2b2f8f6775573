"""The audit log: who changed what, and which calls were denied. Entries are only ever appended."""
