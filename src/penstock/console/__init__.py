"""The console: static pages that the broker serves.

It is plain HTML, CSS and ES modules, with a vendored charting library. It needs no build step and loads
nothing from other hosts. It uses the public API only, without privileged access.
"""

from __future__ import annotations

from pathlib import Path

STATIC: Path = Path(__file__).parent / "static"
"""The directory of `index.html`, served at `/`, and of the files it refers to, served under `/static/`."""
