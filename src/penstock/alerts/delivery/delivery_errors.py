"""Errors of an attempt to deliver a notice. Their texts are stored and shown: they contain no secrets."""

from __future__ import annotations

from penstock.errors import PenstockError


class DeliveryFailed(PenstockError):
    """The receiver did not accept the notice. The sender tries again later, unless `is_final`."""

    code = "delivery_failed"
    status = 502
    title = "Delivery failed"

    def __init__(
        self, detail: str, *, requested_delay_s: float | None = None, is_final: bool = False
    ) -> None:
        super().__init__(detail)
        self.requested_delay_s = requested_delay_s
        """The delay that the receiver asks for with Retry-After."""
        self.is_final = is_final


class AddressRefused(DeliveryFailed):
    """The receiver's name leads to addresses that channels may not use."""

    code = "address_refused"
    title = "Address refused"
