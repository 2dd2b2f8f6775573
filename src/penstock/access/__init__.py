"""Access control: tokens, environments, people, quotas and the audit log."""
