"""Sessions of people in the console: a cookie, and a CSRF token for requests that change something."""
