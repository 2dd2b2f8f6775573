"""Serve the files of the console compressed, and let browsers revalidate them.

Each file is compressed once per process and kept in memory; all files together have less than a megabyte. A
browser asks at every visit whether its copy is current (`no-cache`) and gets 304 if it is, so that an upgrade
never mixes modules of two versions.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from functools import lru_cache
from mimetypes import guess_type
from pathlib import Path
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import Scope

from penstock.api.http.compression import accepts_gzip

COMPRESSIBLE_SUFFIXES = (".css", ".html", ".js", ".json", ".mjs", ".svg", ".txt")
MAX_FILES = 1_000


class FileContent(NamedTuple):
    """A file in memory. `compressed` is None if compression does not make it smaller."""

    plain: bytes
    compressed: bytes | None
    etag: str


class ConsoleFiles(StaticFiles):
    """The files in a directory. A file that changes on disk is read again."""

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        """Find a file. Starlette calls this in a thread, so the file is compressed here."""
        full_path, status = super().lookup_path(path)
        if status is not None and Path(full_path).is_file():
            _read_file(full_path, status.st_mtime_ns, status.st_size)
        return full_path, status

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        content = _read_file(os.fspath(full_path), stat_result.st_mtime_ns, stat_result.st_size)
        return file_response(content, str(full_path), Headers(scope=scope), status_code)


def read_file(path: Path) -> FileContent:
    """Read and compress a file, or return it from memory."""
    status = path.stat()
    return _read_file(str(path), status.st_mtime_ns, status.st_size)


def file_response(
    content: FileContent, path: str, request_headers: Headers, status_code: int = 200
) -> Response:
    """Return the file, compressed if the client accepts it; 304 if the client has it."""
    headers = {"Cache-Control": "no-cache", "ETag": content.etag, "Vary": "Accept-Encoding"}
    known_etags = [tag.strip() for tag in request_headers.get("if-none-match", "").split(",")]
    if content.etag in known_etags:
        return NotModifiedResponse(Headers(headers))
    body = content.plain
    if content.compressed is not None and accepts_gzip(request_headers):
        body = content.compressed
        headers["Content-Encoding"] = "gzip"
    media_type = guess_type(path)[0] or "application/octet-stream"
    return Response(body, status_code, headers, media_type)


def compress_content(plain: bytes) -> FileContent:
    """Compress a text."""
    compressed = gzip.compress(plain, mtime=0)
    return FileContent(plain, compressed if len(compressed) < len(plain) else None, _etag(plain))


@lru_cache(maxsize=MAX_FILES)
def _read_file(path: str, modified_ns: int, size: int) -> FileContent:
    """The time and size are part of the key, so that a changed file is read again."""
    plain = Path(path).read_bytes()
    if path.endswith(COMPRESSIBLE_SUFFIXES):
        return compress_content(plain)
    return FileContent(plain, None, _etag(plain))


def _etag(plain: bytes) -> str:
    """A weak tag: the compressed and the plain file share it."""
    return f'W/"{hashlib.sha256(plain).hexdigest()[:20]}"'
