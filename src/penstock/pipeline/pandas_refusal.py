"""Keep pandas out of processes that do not need it.

Arrow imports pandas if it is installed, which takes 25 MB. The pipeline converts nothing with it. Rebuilding
days and the capacity report need it, and never run in a process that refuses it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class PandasRefusal(MetaPathFinder):
    """Makes `import pandas` fail. An entry None in `sys.modules` would not: Arrow takes it for the module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("The pipeline does not load pandas.", name=fullname)
        return None


def refuse_pandas() -> None:
    """Refuse pandas in this process and in its forks."""
    sys.meta_path.insert(0, PandasRefusal())
