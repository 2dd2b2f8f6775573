"""Quotas of environments and tokens: what they limit, what is used, and when a request is refused."""
