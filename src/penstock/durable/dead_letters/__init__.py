"""Dead letters in PostgreSQL: queries, changes, counts and jobs."""
