from __future__ import annotations

import pytest

from tests.fuzz.binary_targets import TARGETS
from tests.fuzz.fuzz_run import FuzzRun
from tests.fuzz.fuzz_target import FuzzTarget


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_generated_bytes_are_read_or_refused(target: FuzzTarget, fuzz_run: FuzzRun) -> None:
    fuzz_run.run(target)
