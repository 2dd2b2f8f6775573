"""Build the guide from docs/ into the package, where the broker serves it at /docs/guide.

`make docs` runs it with --strict: every warning of Sphinx and every broken link is an error. `make up` and
`make wheel` run it with --if-changed, which does nothing while the sources are the same.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from site_links import find_problems

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIGURATION = Path(__file__).parent
TARGET = ROOT / "src" / "penstock" / "console" / "guide"
CACHE = ROOT / "build" / "guide"
"""Output of Sphinx. It builds only the pages that changed since."""

DIGEST_FILE = "sources.sha256"
INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
CONTENT_ROOT = re.compile(r'data-content_root="([^"]*)"')
REMOTE_FONT = re.compile(r"@font-face\s*\{[^}]*https?://[^}]*\}")
NOT_SERVED = shutil.ignore_patterns(".buildinfo", "objects.inv", "_sources")


def main() -> int:
    """Build the guide if necessary. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true", help="warnings and broken links are errors")
    parser.add_argument("--if-changed", action="store_true", help="do nothing if the sources are the same")
    parser.add_argument("--output", type=Path, default=TARGET, help="directory of the site")
    parser.add_argument(
        "--cache", type=Path, default=CACHE, help="directory of Sphinx, which keeps old pages"
    )
    arguments = parser.parse_args()
    digest = digest_sources()
    digest_file = arguments.output / DIGEST_FILE
    if arguments.if_changed and digest_file.is_file() and digest_file.read_text() == digest:
        return 0
    print("Guide: building the pages of /docs/guide", flush=True)
    if exit_code := run_sphinx(arguments.cache, strict=arguments.strict):
        return exit_code
    site = arguments.cache / "site"
    copy_site(arguments.cache / "html", site)
    if arguments.strict and (problems := find_problems(site)):
        print(*problems, sep="\n", file=sys.stderr)
        return 1
    (site / DIGEST_FILE).write_text(digest)
    replace_directory(site, arguments.output)
    pages = len(list(arguments.output.rglob("*.html")))
    print(f"Guide: {pages} pages, {directory_size(arguments.output) / 1e6:.1f} MB")
    return 0


def digest_sources() -> str:
    """A digest of everything that the site is made from."""
    digest = hashlib.sha256()
    sources = [*DOCS.rglob("*"), *CONFIGURATION.rglob("*"), ROOT / "requirements-docs.txt"]
    for path in sorted(path for path in sources if path.is_file() and path.suffix != ".pyc"):
        digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def run_sphinx(cache: Path, *, strict: bool) -> int:
    """Write the pages as Sphinx and the theme make them. Return the exit code."""
    command: list[str | Path] = [sys.executable, "-m", "sphinx", "--builder", "html"]
    command += ["--conf-dir", CONFIGURATION, "--doctree-dir", cache / "doctrees"]
    command += ["--quiet", "--fresh-env", "--fail-on-warning"] if strict else ["--silent"]
    return subprocess.run([*command, DOCS, cache / "html"], env={**os.environ, "NO_COLOR": "1"}).returncode


def copy_site(html: Path, site: Path) -> None:
    """Copy the pages so that the broker's policy allows them: no inline scripts, no fonts of other hosts."""
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(html, site, ignore=NOT_SERVED)
    for page in site.rglob("*.html"):
        page.write_text(_move_inline_scripts(page.read_text(), site))
    for sheet in site.rglob("*.css"):
        sheet.write_text(REMOTE_FONT.sub("", sheet.read_text()))


def _move_inline_scripts(text: str, site: Path) -> str:
    content_root = CONTENT_ROOT.search(text)

    def move(script: re.Match[str]) -> str:
        name = f"_static/inline-{hashlib.sha256(script[1].encode()).hexdigest()[:8]}.js"
        (site / name).write_text(script[1])
        return f'<script src="{content_root[1] if content_root else ""}{name}"></script>'

    return INLINE_SCRIPT.sub(move, text)


def replace_directory(source: Path, target: Path) -> None:
    """Move a directory to a place where an older one may be."""
    outdated = target.with_name(f"{target.name}.old")
    shutil.rmtree(outdated, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        target.rename(outdated)
    shutil.move(source, target)
    shutil.rmtree(outdated, ignore_errors=True)


def directory_size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


if __name__ == "__main__":
    sys.exit(main())
