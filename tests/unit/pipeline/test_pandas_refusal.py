from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from penstock.pipeline.pandas_refusal import refuse_pandas
refuse_pandas()
import pyarrow
print(pyarrow.array(["x"]).to_pylist(), "pandas" in sys.modules)
"""


def test_arrow_converts_objects_without_loading_pandas() -> None:
    completed = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert completed.stdout == "['x'] False\n"
