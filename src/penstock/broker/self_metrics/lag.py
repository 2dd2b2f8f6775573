"""How long popped messages had waited: sum, count, maximum and a T-Digest, in a form that adds up."""

from __future__ import annotations

from collections.abc import Iterable

from fastdigest import TDigest, merge_all

CENTROIDS = 200
"""Enough for percentiles within 1 %, at most 3 kB."""
READ_CENTROIDS = 1_000
"""What digests are merged into, so that merging many loses nothing."""
FOLD_AT = 2_000
"""Values that gather before they are folded: folding many at once takes half the time per value."""

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class Lag:
    """Takes values in milliseconds."""

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
        if len(self._values) >= FOLD_AT:
            self._fold()

    @property
    def digest(self) -> TDigest | None:
        """None if there was no value."""
        self._fold()
        return self._digest

    def _fold(self) -> None:
        if self._values:
            if self._digest is None:
                self._digest = TDigest(max_centroids=CENTROIDS)
            self._digest.batch_update(self._values)
            self._values = []


def merged(lags: Iterable[Lag]) -> TDigest | None:
    """One digest of all of them, no larger than each."""
    digests = [lag.digest for lag in lags]
    found = [digest for digest in digests if digest is not None]
    if len(found) > 1:
        return merge_all(found, max_centroids=CENTROIDS)
    return found[0] if found else None


class Percentiles:
    """Written digests merged on reading, by whatever key they belong to."""

    def __init__(self) -> None:
        self._digests: dict[object, TDigest] = {}

    def add(self, key: object, written: Iterable[bytes]) -> None:
        digests = [TDigest.from_bytes(each) for each in written]
        if key in self._digests:
            digests.append(self._digests[key])
        self._digests[key] = merge_all(digests, max_centroids=READ_CENTROIDS)

    def of(self, key: object) -> dict[str, float | None]:
        """Percentiles in milliseconds by their names; None where nothing was measured."""
        digest = self._digests.get(key)
        return {
            name: None if digest is None else round(digest.quantile(level), 3)
            for name, level in QUANTILES.items()
        }
