"""Append numbered records to a journal, endlessly or a given number, as a process that tests can kill.

Arguments: directory, name, how many at a time, how many in all (0: endlessly). Prints the number of each
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

    async def append(number: int) -> None:
        await journal.append([f"{name} {number} ".encode() + b"x" * (number % 3000)])
        os.write(1, f"{number}\n".encode())

    while True:
        batch = [next(numbers) for _ in range(int(at_a_time))]
        await asyncio.gather(*map(append, batch))
        if int(total) and batch[-1] + 1 >= int(total):
            break
    await journal.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
