"""Tables of quotas: their limit, their use and a bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.listing import Listing

if TYPE_CHECKING:
    from penstock.cli.broker_client import QuotaDocument, QuotasDocument, QuotaWarningDocument

BAR_WIDTH = 20


def quota_listing(document: QuotasDocument) -> RenderableType:
    """Build the tables of the quotas of an environment and of the token that the command used."""
    environment, token = document["environment"], document["token"]
    if not environment["quotas"]:
        tables: list[RenderableType] = [Text(f"Environment {environment['name']} has no quotas.")]
    else:
        tables = [Text(f"Quotas of environment {environment['name']}\n"), _listing(environment["quotas"])]
    if token is not None and token["quotas"]:
        tables += [Text(f"\nQuotas of token {token['name']}\n"), _listing(token["quotas"])]
    return Group(*tables)


def _listing(quotas: Sequence[QuotaDocument]) -> Listing:
    listing = Listing("Quota", "Used", "Limit", "")
    for quota in quotas:
        colour = _colour(quota)
        used = "–" if quota["used"] is None else f"{quota['used']:,.0f}"
        listing.add_row(
            quota["quota"], Text(used, style=colour), f"{quota['limit']:,}", Text(_bar(quota), style=colour)
        )
    return listing


def _bar(quota: QuotaDocument) -> str:
    if quota["used"] is None:
        return "not known yet"
    share = quota["used"] / quota["limit"] if quota["limit"] else 1.0
    filled = min(BAR_WIDTH, round(share * BAR_WIDTH))
    return f"{'█' * filled}{'░' * (BAR_WIDTH - filled)} {share:4.0%}"


def _colour(quota: QuotaDocument) -> str:
    if quota["used"] is not None and quota["used"] >= quota["limit"]:
        return "red"
    return "yellow" if quota["warning"] else ""


def format_quota_warnings(warnings: Sequence[QuotaWarningDocument]) -> list[Text]:
    """Describe the quotas of environments that are nearly used up, one line each."""
    return [
        Text(
            f"Environment {warning['environment']} uses {warning['used']:,.0f} of {warning['limit']:,} "
            f"{warning['quota']}.",
            style="yellow",
        )
        for warning in warnings
    ]
