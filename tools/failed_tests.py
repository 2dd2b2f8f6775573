"""Print the tests that failed in the last run of pytest, one per line. Exit with 1 if it recorded none."""

from __future__ import annotations

import json
import sys
from pathlib import Path

LAST_FAILED = Path(__file__).parents[1] / ".pytest_cache" / "v" / "cache" / "lastfailed"


def main() -> int:
    if not LAST_FAILED.exists():
        return 1
    tests = sorted(json.loads(LAST_FAILED.read_text()))
    print("\n".join(tests))
    return 0 if tests else 1


if __name__ == "__main__":
    sys.exit(main())
