"""People and services of an identity provider: login through OpenID Connect, JWTs, and their roles.

The libraries for JWTs and HTTP are imported when they are first needed: most brokers use neither.
"""
