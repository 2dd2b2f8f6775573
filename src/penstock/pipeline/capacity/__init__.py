"""The capacity report: how loaded each queue is, how much capacity is free, and when it is used up.

A batch job. `tier_hours` and `archive_hours` read the same measurements into data frames of hours.
`utilisation`, `trend` and `verdict` are pure functions of data frames. `page` writes the result as one HTML
file. `report_job` runs these steps in order. Nothing here writes to ClickHouse or to the archive.
"""
