"""A fuzz target: generated inputs, and a check that fails for an input that shows a defect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

SUITE_EXAMPLES = 200


@dataclass(frozen=True, slots=True)
class FuzzTarget:
    name: str
    inputs: st.SearchStrategy[Any]
    check: Callable[[Any], None]
    """Raises an AssertionError, or any error that the code under test lets through."""
    examples: int = SUITE_EXAMPLES
    """Inputs tried in the suite, and in one round of a long run."""

    def run(self, seed: int | None = None, examples: int | None = None) -> int:
        """Try generated inputs and return their number. Without a seed, they are always the same ones."""
        tried = 0

        def count_and_check(drawn: Any) -> None:
            nonlocal tried
            tried += 1
            try:
                self.check(drawn)
            except Exception as error:
                error.add_note(f"Input: {drawn!r}")
                raise

        test = hypothesis.given(self.inputs)(count_and_check)
        test = hypothesis.settings(
            max_examples=examples or self.examples,
            deadline=None,
            derandomize=seed is None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )(test)
        if seed is not None:
            test = hypothesis.seed(seed)(test)
        test()
        return tried
