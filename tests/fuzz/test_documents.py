from __future__ import annotations

import pytest

from tests.fuzz.document_targets import TARGETS
from tests.fuzz.fuzz_run import FuzzRun
from tests.fuzz.fuzz_target import FuzzTarget


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_generated_document_is_accepted_or_explained(target: FuzzTarget, fuzz_run: FuzzRun) -> None:
    fuzz_run.run(target)
