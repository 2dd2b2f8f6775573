"""Small realistic JSON messages, each different, so that compression favours no contestant."""

from __future__ import annotations

import random
import uuid

# fmt: off
NOTE_WORDS = (
    "leave", "door", "ring", "twice", "fragile", "care", "call", "before", "delivery", "gift", "second",
    "floor", "gate", "neighbour", "account", "express", "cold", "chain", "signature", "side", "entrance",
)
# fmt: on


def generate_payloads(count: int, seed: int) -> list[str]:
    """Return `count` JSON texts of 150 to 250 bytes."""
    rng = random.Random(seed)
    return [_generate_order(rng, number) for number in range(count)]


def _generate_order(rng: random.Random, number: int) -> str:
    order = uuid.UUID(int=rng.getrandbits(128), version=4)
    lines = ",".join(
        f'{{"sku":"{rng.choice("ABCDEFGH")}{rng.randrange(10**6):06d}","qty":{rng.randrange(1, 9)},'
        f'"price":{rng.randrange(100, 99_999) / 100}}}'
        for _ in range(rng.randrange(1, 3))
    )
    note = " ".join(rng.choices(NOTE_WORDS, k=rng.randrange(3, 9)))
    customer = rng.randrange(10**7)
    return f'{{"order":"{order}","customer":{customer},"lines":[{lines}],"note":"{note}","n":{number}}}'
