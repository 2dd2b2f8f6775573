"""The long version: `python -m tests.fuzz --minutes 10 --seed 7`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from tests.fuzz.fuzz_run import PLUGIN_NAME, LongFuzzRun


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="time for all targets together")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first round of every target")
    parser.add_argument("--target", default="", help="expression that selects targets, as pytest -k takes it")
    parser.add_argument("--folder", type=Path, default=Path("fuzz-failures"), help="where failing inputs go")
    options = parser.parse_args()
    run = LongFuzzRun(options.minutes, options.seed, options.folder)
    arguments = ["tests/fuzz", "-q", "-p", "no:cacheprovider", "--timeout", str(options.minutes * 60 + 600)]
    arguments += ["-k", options.target] if options.target else []
    return pytest.main(arguments, plugins=[_Registration(run)])


class _Registration:
    """Registers the run under the name by which the fixture finds it."""

    def __init__(self, run: LongFuzzRun) -> None:
        self._run = run

    def pytest_configure(self, config: pytest.Config) -> None:
        config.pluginmanager.register(self._run, PLUGIN_NAME)


if __name__ == "__main__":
    sys.exit(main())
