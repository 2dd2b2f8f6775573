"""Quotas of environments and tokens: what they limit, how much of it is used, and when a request is refused."""
