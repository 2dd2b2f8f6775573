"""Request and response bodies of the routes."""
