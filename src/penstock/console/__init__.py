"""The console and the guide: static pages that the broker serves.

The console is plain HTML, CSS and ES modules, with vendored libraries for components, templates, server-sent
events and charts. It needs no build step and loads nothing from other hosts. It uses the public API only,
without privileged access.
"""

from __future__ import annotations

from pathlib import Path

STATIC: Path = Path(__file__).parent / "static"
"""`index.html` is served at `/` and below `/console/`, the other files under `/static/`."""

GUIDE: Path = Path(__file__).parent / "guide"
"""The directory of the guide, served at `/docs/guide/`. `make docs` builds it from docs/."""
