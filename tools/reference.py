"""Write what follows from the code: reference pages and the Grafana dashboard. `make reference` runs it."""

from __future__ import annotations

import runpy
from pathlib import Path

from penstock.config import PREFIX, Settings
from penstock.definitions import DEFINITIONS, MetricDefinition
from penstock.telemetry import EXPORTED_METRICS, WorkerAggregation

ACROSS = {
    WorkerAggregation.SHARED: "all know the same",
    WorkerAggregation.SUM: "added up",
    WorkerAggregation.MAX: "the largest",
    WorkerAggregation.WORKER: "each for itself",
}

FOLDER = Path(__file__).parents[1] / "docs" / "reference"


def settings_page() -> str:
    rows = []
    for name, field in Settings.model_fields.items():
        default = field.default
        shown = (
            "empty" if default == "" else f"`{str(default).lower() if default in (True, False) else default}`"
        )
        rows.append(f"| `{PREFIX}{name.upper()}` | `{name}` | {shown} | {field.description} |")
    return "\n".join(
        [
            "# Settings",
            "",
            "Each setting is an environment variable, or a key of a TOML file that `PENSTOCK_CONFIG` names.",
            "A variable wins over the file. An unknown key is refused, with the nearest known one.",
            "`penstock config` prints what is in force and where each value comes from, secrets masked.",
            "",
            "| Variable | TOML key | Default | What it is |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def metrics_page() -> str:
    lines = [
        "# Metrics",
        "",
        "What Penstock measures, as declared in `penstock/definitions.py`. A counter is summed; a gauge",
        "keeps its largest and its last value; of samples the sum, count, maximum and a T-Digest are kept.",
        "There are three tiers: 5 seconds for 2 days, 1 minute for 31 days, 1 hour for 400 days.",
        "",
    ]
    for definition in DEFINITIONS:
        lines += _definition(definition)
    lines += [
        "## For Prometheus: `GET /metrics`",
        "",
        "In the OpenMetrics format. Any of the broker processes behind a port answers for all of them; the",
        "last column says how. A counter's sample has `_total` behind its name.",
        "",
        "| Metric | Kind | Labels | What it is | Processes |",
        "|---|---|---|---|---|",
        *(
            f"| `{e.name}` | {e.type} | {', '.join(e.all_labels) or '–'} | {e.help} | {ACROSS[e.aggregation]} |"
            for e in EXPORTED_METRICS
        ),
        "",
    ]
    return "\n".join(lines)


def _definition(definition: MetricDefinition) -> list[str]:
    kinds = {
        "dimension": definition.dimensions,
        "counter": definition.counters,
        "gauge": definition.gauges,
        "samples": definition.samples,
    }
    return [
        f"## `{definition.name}`",
        "",
        f"Streams `{definition.stream_keys[0]}` to `{definition.stream_keys[-1]}`, "
        f"at most about {definition.max_stream_length:,} entries each; "
        f"{definition.bucket_ms // 1000}-second buckets.",
        "",
        "| Kind | Name | On the wire | What it is |",
        "|---|---|---|---|",
        *(
            f"| {kind} | `{measure.name}` | `{measure.wire}` | {measure.help} |"
            for kind, measures in kinds.items()
            for measure in measures
        ),
        "",
    ]


PAGES = {"settings.md": settings_page, "metrics.md": metrics_page}
DASHBOARD = Path(__file__).parents[1] / "deploy" / "grafana" / "penstock.json"

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file_name, page in PAGES.items():
        (FOLDER / file_name).write_text(page())
        print(f"wrote docs/reference/{file_name}")
    DASHBOARD.write_text(runpy.run_path(str(Path(__file__).parent / "grafana.py"))["dashboard_page"]())
    print("wrote deploy/grafana/penstock.json")
