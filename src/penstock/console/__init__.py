"""The dashboard: static files that any web server could serve, and where they are.

Plain HTML, CSS and ES modules, with the charting library vendored beside them: no build step, nothing
fetched from elsewhere. It learns everything from the public API and has no privileged way in.
"""

from __future__ import annotations

from pathlib import Path

STATIC: Path = Path(__file__).parent / "static"
"""Holds `index.html`, served at `/`, and everything it refers to, served under `/static/`."""
