"""The systems that are compared: each pushes and consumes the same messages in its own best way."""
