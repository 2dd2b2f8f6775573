"""HTTP calls to a running broker, and the JSON documents it returns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, TypedDict, TypeVar, cast
from urllib.parse import quote

import httpx

from penstock.cli.broker_address import CA_VARIABLE, BrokerAddress, find_broker
from penstock.cli.exit_codes import BrokerRefusal, BrokerUnreachable
from penstock.cli.problem_text import describe_problem
from penstock.config import Settings, mask_url
from penstock.errors import InvalidRequest, UnknownEnvironment, UnknownQueue

REQUEST_TIMEOUT_S = 30
TRUST_ADVICE = (
    f"Use a name of the certificate in --url. If its CA is your own, set {CA_VARIABLE} to the CA's file."
)
_ERROR_NUMBER = re.compile(r"^\[Errno -?\d+\] ")

ResponseT = TypeVar("ResponseT")
JsonObject = dict[str, object]


class QueueDocument(TypedDict):
    """The fields that durable queues and run queues share."""

    name: str
    depth: int
    running: int
    paused: bool


class QueuePageDocument(TypedDict):
    queues: list[QueueDocument]


class DurableQueueDocument(QueueDocument):
    partitions: int


class DurableQueuePageDocument(TypedDict):
    queues: list[DurableQueueDocument]
    total: int


class RunQueueDocument(QueueDocument):
    delayed: int
    dead: int
    concurrency: int | None
    oldestAgeMs: float


class RunQueuePageDocument(TypedDict):
    queues: list[RunQueueDocument]
    total: int


class DeadLetterCountDocument(TypedDict):
    queue: str
    kind: str
    consumerGroup: str | None
    deadLetters: int
    oldestFailedAt: str | None


class DeadLetterStatusDocument(TypedDict):
    groups: list[DeadLetterCountDocument]
    missing: str | None


class DeadLetterDocument(TypedDict):
    letterId: str
    kind: str
    queue: str
    consumerGroup: str | None
    partition: str | None
    offset: int | None
    transactionId: str
    firstTransactionId: str
    traceId: str | None
    firstEnqueuedAt: str
    failedAt: str
    timesDead: int | None
    retryCount: int
    totalAttempts: int
    errorMessage: str | None
    errorGroup: str | None
    data: object


class DeadLetterPageDocument(TypedDict):
    messages: list[DeadLetterDocument]
    nextCursor: str | None
    total: int | None
    totalIsExact: bool


class ErrorGroupDocument(TypedDict):
    error: str
    errorGroup: str
    deadLetters: int
    queues: list[str]
    firstFailedAt: str
    lastFailedAt: str
    trend: list[int]
    state: str
    owner: str | None


class PaginationDocument(TypedDict):
    total: int


class ErrorGroupPageDocument(TypedDict):
    groups: list[ErrorGroupDocument]
    pagination: PaginationDocument


class DryRunResultDocument(TypedDict):
    total: int
    totalIsExact: bool


class ChangedErrorGroupDocument(TypedDict):
    errorGroup: str
    queues: list[str]


class JobDocument(TypedDict):
    id: str
    kind: str
    subject: str
    state: str
    changed: int
    skipped: int
    total: int
    totalIsExact: bool
    createdAt: str
    note: str | None


class JobPageDocument(TypedDict):
    jobs: list[JobDocument]


class TokenSecretDocument(TypedDict):
    prefix: str
    expiresAt: str | None


class TokenDocument(TypedDict):
    id: str
    name: str
    state: str
    environment: str
    scopes: list[str]
    queues: list[str] | None
    groups: list[str] | None
    platformAdmin: bool
    quotas: dict[str, int]
    createdBy: str
    createdAt: str
    expiresAt: str | None
    revokedAt: str | None
    lastUsedAt: str | None
    secrets: list[TokenSecretDocument]


class IssuedTokenDocument(TokenDocument):
    secret: str


class TokenPageDocument(TypedDict):
    tokens: list[TokenDocument]


class DeletionDocument(TypedDict):
    requestedAt: str
    step: str
    queues: int
    tasks: int
    rows: int
    note: str | None


class EnvironmentDocument(TypedDict):
    name: str
    createdAt: str
    queues: int
    quotas: dict[str, float]
    deletion: DeletionDocument | None


class QuotaDocument(TypedDict):
    quota: str
    limit: int
    used: float | None
    warning: bool


class QuotaSubjectDocument(TypedDict):
    name: str
    quotas: list[QuotaDocument]


class QuotaWarningDocument(TypedDict):
    environment: str
    quota: str
    limit: int
    used: float


class QuotasDocument(TypedDict):
    environment: QuotaSubjectDocument
    token: QuotaSubjectDocument | None
    warnings: list[QuotaWarningDocument]


class EnvironmentPageDocument(TypedDict):
    environments: list[EnvironmentDocument]


class AuditEntryDocument(TypedDict):
    id: str
    at: str
    environment: str | None
    subject: str | None
    tokenId: str | None
    address: str
    action: str
    object: dict[str, Any]
    status: int
    denied: bool
    before: Any
    after: Any
    requestId: str


class AuditPageDocument(TypedDict):
    entries: list[AuditEntryDocument]
    nextCursor: str | None


class BrokerClient:
    """Calls to one broker. Raises BrokerUnreachable if it does not answer, BrokerRefusal if it refuses.

    A call takes the type of its response. The type describes the fields that the commands use; it does not
    check the response, and fields that it does not name remain in place.
    """

    def __init__(
        self,
        address: BrokerAddress,
        token: str | None = None,
        environment: str | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self._address = address
        self._shown_url = mask_url(address.url)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if environment:
            headers["X-Penstock-Environment"] = quote(environment, safe="/")
        # The broker is on this machine or close to it, so the proxy settings of the environment do not apply.
        self._http = httpx.Client(
            base_url=address.url,
            headers=headers,
            timeout=timeout_s,
            trust_env=False,
            verify=address.create_tls_context(),
        )

    @classmethod
    def from_settings(
        cls, settings: Settings, url: str | None, token: str | None, environment: str | None = None
    ) -> BrokerClient:
        """Call the broker of the command line, of the settings or of the platform on the home."""
        return cls(find_broker(settings, url), token, environment)

    def __enter__(self) -> BrokerClient:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._http.close()

    def get(
        self, path: str, response_type: type[ResponseT], **parameters: str | int | list[str] | None
    ) -> ResponseT:
        query = {name: value for name, value in parameters.items() if value is not None}
        return cast(ResponseT, self._call(self._http.build_request("GET", path, params=query)))

    def get_waiting(self, path: str, timeout_s: float, **parameters: str | int | None) -> JsonObject:
        """Get from a route that waits before it responds; {} if it responds without content."""
        query = {name: value for name, value in parameters.items() if value is not None}
        request = self._http.build_request("GET", path, params=query, timeout=timeout_s)
        return cast(JsonObject, self._call(request))

    def post(
        self,
        path: str,
        response_type: type[ResponseT],
        body: Mapping[str, object] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> ResponseT:
        request = self._http.build_request("POST", path, json=body or {}, timeout=timeout_s)
        return cast(ResponseT, self._call(request))

    def put(self, path: str, response_type: type[ResponseT], body: Mapping[str, object]) -> ResponseT:
        return cast(ResponseT, self._call(self._http.build_request("PUT", path, json=body)))

    def patch(self, path: str, response_type: type[ResponseT], body: Mapping[str, object]) -> ResponseT:
        return cast(ResponseT, self._call(self._http.build_request("PATCH", path, json=body)))

    def delete(self, path: str, response_type: type[ResponseT]) -> ResponseT:
        return cast(ResponseT, self._call(self._http.build_request("DELETE", path)))

    def get_list(self, path: str, **parameters: str | int | None) -> list[JsonObject]:
        """Return the response of a route whose response is a list."""
        return cast(list[JsonObject], self.get(path, dict, **parameters))

    def post_list(self, path: str, body: Mapping[str, object]) -> list[JsonObject]:
        """Post to a route whose response is a list."""
        return cast(list[JsonObject], self.post(path, dict, body))

    def stream_lines(self, path: str, **parameters: str | int | None) -> Iterator[bytes]:
        """Yield the lines of a response. Raises BrokerUnreachable if it ends early."""
        query = {name: value for name, value in parameters.items() if value is not None}
        response = self._send(self._http.build_request("GET", path, params=query), stream=True)
        try:
            if not response.is_success:
                response.read()
                self._read_body(response)
            rest = b""
            for chunk in response.iter_bytes():  # iter_lines also splits at other characters than \n
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
        except httpx.TransportError:
            raise BrokerUnreachable(
                f"The broker at {self._shown_url} stopped before the end of its response. Try again."
            ) from None
        finally:
            response.close()

    def _call(self, request: httpx.Request) -> JsonObject | list[JsonObject]:
        return self._read_body(self._send(request))

    def _send(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        try:
            return self._http.send(request, stream=stream)
        except httpx.TransportError as error:
            reason = _ERROR_NUMBER.sub("", str(error)) or type(error).__name__
            problem, advice = f"No broker answers at {self._shown_url} ({reason})", self._address.advice
            if "CERTIFICATE_VERIFY_FAILED" in reason:
                cause = reason.partition("verify failed: ")[2].partition(" (_ssl")[0].removesuffix(".")
                problem = f"The certificate of the broker at {self._shown_url} is not accepted: {cause}"
                advice = TRUST_ADVICE
            raise BrokerUnreachable(f"{problem}. {advice}") from None

    def _read_body(self, response: httpx.Response) -> JsonObject | list[JsonObject]:
        """Return the JSON of a response, {} if it has no content. Raises BrokerRefusal for a problem."""
        url = self._shown_url
        if response.status_code == httpx.codes.NO_CONTENT:
            return {}
        try:
            body = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict | list):
            raise BrokerUnreachable(
                f"Another program, not Penstock, answers at {url}. {self._address.advice}"
            )
        if response.is_success:
            return body
        problem = body if isinstance(body, dict) else {}
        detail = describe_problem(problem, url, response.status_code)
        for error in (UnknownQueue, UnknownEnvironment):
            if problem.get("code") == error.code:
                raise error(detail)
        raise BrokerRefusal(detail, response.status_code)


def queue_path(queue: str, collection: str) -> str:
    """Return the path of a queue. Raises InvalidRequest for a name that no path can have."""
    if not queue or "/" in queue or queue in (".", ".."):
        raise InvalidRequest(f"{queue!r} is not the name of a queue. Names are not empty and have no slash.")
    return f"/api/v1/{collection}/{quote(queue, safe='')}"
