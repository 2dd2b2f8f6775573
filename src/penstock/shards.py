"""Assign keys to shards by consistent hashing."""

from __future__ import annotations

from hashlib import blake2b

_MASK = 0xFFFFFFFFFFFFFFFF


def shard_of(key: str, shards: int) -> int:
    """Return the shard of `key`. All processes agree, and adding a shard moves only 1/n of the keys.

    The events of one queue therefore share a stream, whose ids order them, and the run queues of one
    environment share a Redis Cluster slot.
    """
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return jump_hash(int.from_bytes(digest, "little"), shards)


def jump_hash(key: int, buckets: int) -> int:
    """Lamping and Veach's jump consistent hash of a 64-bit key."""
    chosen, candidate = -1, 0
    while candidate < buckets:
        chosen = candidate
        key = (key * 2862933555777941757 + 1) & _MASK
        candidate = int((chosen + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return chosen
