"""The lag of popped messages (how long they waited): count, sum, maximum and a T-Digest, all mergeable."""

from __future__ import annotations

from collections.abc import Iterable

from fastdigest import TDigest, merge_all

MAX_CENTROIDS = 200
"""Enough for percentiles within 1 %, at most 3 kB."""
MAX_MERGED_CENTROIDS = 1_000
"""For digests merged on reading, so that merging many loses no precision."""
VALUES_PER_FOLD = 2_000
"""Values collected before they are folded into the digest: folding many at once halves the time per value."""

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class LagSummary:
    """Summarizes lags in milliseconds."""

    __slots__ = ("_digest", "_values", "count", "max_ms", "sum_ms")

    def __init__(self) -> None:
        self.count = 0
        self.sum_ms = 0
        self.max_ms = 0
        self._values: list[int] = []
        self._digest: TDigest | None = None

    def add(self, values: list[int]) -> None:
        self.count += len(values)
        self.sum_ms += sum(values)
        self.max_ms = max(self.max_ms, max(values))
        self._values += values
        if len(self._values) >= VALUES_PER_FOLD:
            self._fold()

    @property
    def digest(self) -> TDigest | None:
        """The digest of all values; None without a value."""
        self._fold()
        return self._digest

    def _fold(self) -> None:
        if self._values:
            if self._digest is None:
                self._digest = TDigest(max_centroids=MAX_CENTROIDS)
            self._digest.batch_update(self._values)
            self._values = []


def merge_digests(summaries: Iterable[LagSummary]) -> TDigest | None:
    """Return one digest of all summaries, no larger than one of them; None without a value."""
    digests = [digest for summary in summaries if (digest := summary.digest) is not None]
    if len(digests) > 1:
        return merge_all(digests, max_centroids=MAX_CENTROIDS)
    return digests[0] if digests else None


class LagPercentiles:
    """Merges stored digests by key, and reads percentiles from them."""

    def __init__(self) -> None:
        self._digests: dict[object, TDigest] = {}

    def add(self, key: object, encoded_digests: Iterable[bytes]) -> None:
        digests = [TDigest.from_bytes(encoded) for encoded in encoded_digests]
        if key in self._digests:
            digests.append(self._digests[key])
        self._digests[key] = merge_all(digests, max_centroids=MAX_MERGED_CENTROIDS)

    def get(self, key: object) -> dict[str, float | None]:
        """Return the percentiles in milliseconds by name; None where nothing was measured."""
        digest = self._digests.get(key)
        return {
            name: None if digest is None else round(digest.quantile(level), 3)
            for name, level in QUANTILES.items()
        }
