"""The capacity report: how loaded each queue is, how much room it has, and when its room runs out.

A batch job. `tiers` and `archive` read the same measurements into frames of hours; `load`, `trend` and
`verdict` are pure functions of frames; `page` makes one HTML file of the result; `job` runs them in order.
Nothing here writes to ClickHouse or to the archive.
"""
