"""Append numbered records to a journal for ever, or so many, as a process that can be killed.

Arguments: directory, name, how many at a time, how many in all (0 is for ever). A line is printed for each
record whose append has returned.
"""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count
from pathlib import Path

from penstock.broker.journal.push_journal import Journal


async def main(directory: str, name: str, at_a_time: str, total: str) -> None:
    journal = Journal(Path(directory), 1 << 30)
    numbers = count()

    async def one(number: int) -> None:
        await journal.append([f"{name} {number} ".encode() + b"x" * (number % 3000)])
        os.write(1, f"{number}\n".encode())

    while True:
        some = [next(numbers) for _ in range(int(at_a_time))]
        await asyncio.gather(*map(one, some))
        if int(total) and some[-1] + 1 >= int(total):
            break
    await journal.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
