"""HTTP below the framework: the server protocol, the direct path of hot requests, request parsing, responses."""
