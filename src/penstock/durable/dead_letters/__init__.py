"""Dead letters in PostgreSQL: the store, its counts, and jobs over many dead letters."""
