"""Read and create files in an object store (`s3://`, `gs://`, `az://`), without locks and renames."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore, from_url

from penstock.errors import ConfigError, PenstockError

TIMEOUT = timedelta(seconds=10)
RETRY_TIMEOUT = timedelta(seconds=15)
ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT")


class ObjectStoreUnavailable(PenstockError):
    """The object store does not answer, or refuses a request."""

    code = "object_store_unavailable"
    title = "Object store unavailable"


class ObjectFiles:
    """The files under one URL. Credentials come from the provider's usual environment variables.

    Methods raise ObjectStoreUnavailable when the store does not answer or refuses.
    """

    def __init__(self, url: str) -> None:
        """Raises ConfigError if the URL cannot be used. Nothing is sent yet."""
        self.url = url.rstrip("/")
        is_plain_http = any(os.environ.get(name, "").startswith("http://") for name in ENDPOINT_VARIABLES)
        try:
            self._store: ObjectStore = from_url(
                self.url,
                client_options={"timeout": TIMEOUT, "allow_http": is_plain_http},
                retry_config={"max_retries": 3, "retry_timeout": RETRY_TIMEOUT},
            )
        except BaseError as error:
            raise ConfigError(f"Cannot use {self.url} as an object store: {_first_line(error)}") from error

    def list_paths(self, directory: str) -> list[str]:
        """Return the paths of all files in a directory, relative to it."""
        prefix = f"{directory}/"
        with self._report_unavailable():
            return [str(entry["path"]).removeprefix(prefix) for entry in self._store.list(prefix).collect()]

    def read(self, path: str) -> bytes:
        with self._report_unavailable():
            return self._store.get(path).bytes().to_bytes()

    def create(self, path: str, content: bytes) -> bool:
        """Create a file; returns False, and changes nothing, if it exists with another content."""
        try:
            with self._report_unavailable():
                self._store.put(path, content, mode="create")
        except AlreadyExistsError:
            # A request whose response was lost is repeated and finds its own file.
            return self.read(path) == content
        return True

    def replace(self, path: str, content: bytes) -> None:
        with self._report_unavailable():
            self._store.put(path, content)

    def copy(self, source: str, target: str) -> None:
        with self._report_unavailable():
            self._store.copy(source, target)

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        try:
            with self._report_unavailable():
                self._store.delete(path)
        except FileNotFoundError:
            return

    @contextmanager
    def _report_unavailable(self) -> Iterator[None]:
        try:
            yield
        except AlreadyExistsError:
            raise
        except BaseError as error:
            raise ObjectStoreUnavailable(
                f"The object store at {self.url} does not work: {_first_line(error)}. "
                "Check the URL, the network and the credentials in the environment",
            ) from error


def _first_line(error: Exception) -> str:
    """Return the message without the details for programmers that follow it."""
    return str(error).partition("\n")[0].rstrip(".")
