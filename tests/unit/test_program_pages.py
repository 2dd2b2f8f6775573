from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.program_pages import _read_only_mappings

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def mapping(
    permissions: str, inode: int, *, resident_kb: int = 8, anonymous_kb: int = 0, swap_kb: int = 0
) -> str:
    return (
        f"7f0000001000-7f0000003000 {permissions} 00002000 fe:00 {inode}     /usr/lib/library.so\n"
        f"Size:                  8 kB\nRss:                   {resident_kb} kB\n"
        f"Anonymous:             {anonymous_kb} kB\nSwap:                  {swap_kb} kB\n"
        "THPeligible:           0\nVmFlags: rd mr mw me \n"
    )


@pytest.mark.parametrize("permissions", ["r--p", "r-xp"])
def test_unchanged_pages_of_files_are_released(permissions: str) -> None:
    smaps = mapping("rw-p", 0) + mapping(permissions, 77)
    assert list(_read_only_mappings(smaps.encode())) == [(0x7F0000001000, 0x7F0000003000, 8192)]


@pytest.mark.parametrize(
    "kept",
    [
        mapping("r--p", 77, anonymous_kb=4),
        mapping("r--p", 77, swap_kb=4),
        mapping("rw-p", 77),
        mapping("r--s", 77),
        mapping("r-xp", 0),
        mapping("r-xp", 77, resident_kb=0),
    ],
    ids=["changed", "changed and swapped out", "writable", "shared", "no file", "not in memory"],
)
def test_pages_that_are_not_as_in_their_file_are_kept(kept: str) -> None:
    assert list(_read_only_mappings(kept.encode())) == []


PROGRAM = """
import re
import numpy
import pyarrow
from penstock.program_pages import release_program_pages

def file_kb():
    with open("/proc/self/smaps_rollup") as rollup:
        return int(re.search(r"Pss_File: +(\\d+)", rollup.read())[1])

before = file_kb()
released = release_program_pages()
print(released > 0, file_kb() < before / 2)
print(numpy.arange(1000).sum(), pyarrow.array([1, 2, 3]).sum())
"""


@linux_only
def test_a_program_works_after_its_pages_were_released() -> None:
    command = [sys.executable, "-c", PROGRAM]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == ["True True", "499500 6"]
