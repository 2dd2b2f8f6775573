"""HTTP below the framework: the server protocol, the fast path of hot requests, request parsing, responses.

Routes and schemas import from here; decisions about queues and messages live in the broker.
"""
