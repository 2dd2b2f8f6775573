"""The journal: pushes kept on local disk while PostgreSQL is unreachable."""
