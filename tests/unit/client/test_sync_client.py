"""The synchronous client mirrors the asynchronous one."""

from __future__ import annotations

import inspect

from penstock.client import Client, SyncClient


def test_the_synchronous_client_has_every_method_of_the_asynchronous_one() -> None:
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if name.startswith("_") or name == "close":
            continue
        sync_method = getattr(SyncClient, name)
        assert inspect.signature(sync_method) == inspect.signature(method), name
        assert sync_method.__doc__ == method.__doc__
