"""Storage of tokens, sessions, environments and the audit log."""
