# SPDX-License-Identifier: Apache-2.0
"""Calls to the CloudStack API, each a signed form, and its errors, pages and jobs. Nothing here waits for a job."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ccm.cloud import (
    CloudError,
    ConfigError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    QuotaExceeded,
    RateLimited,
    RetryAfter,
    Transient,
    Unauthorized,
)
from ccm.cloud.toolkit.json_api import Dialect, Failure, JsonApi, JsonPage, every_row
from ccm.cloud.toolkit.untrusted_text import quoted

from .settings import TIMEOUT, Settings
from .signatures import signed

#: Commands that list the parts of one object, and so do not accept the parameters of `scope`.
WITHOUT_SCOPE = frozenset({"listLoadBalancerRuleInstances"})
QUOTED = 200
#: Codes of ApiErrorCode that do not mean what their status usually means.
CODES: Mapping[str, type[CloudError]] = {
    "430": Invalid,
    "431": Invalid,
    "432": Unauthorized,  # the role does not contain the command
    "530": Transient,
    "531": Forbidden,
    "532": QuotaExceeded,
    "533": QuotaExceeded,
    "534": Transient,
    "535": QuotaExceeded,
    "536": RetryAfter,
    "537": Conflict,
}
#: Matches a status 5xx with the same code in the answer. Then the API itself failed, not a proxy in front of it.
OWN_FAILURE = re.compile(r": (5\d\d) \1\b")
PAUSE = re.compile(r"retry after (\d{1,9}) ms")


class Job(NamedTuple):
    """A job in the cloud. `id`: the ID of the object that it creates, "" if it creates none. `job`: the job's ID."""

    id: str
    job: str


def failure(answer: Any) -> Failure | None:
    """Return the code and the text of the API's own error, which are in the answer's only field."""
    (content,) = answer.values()
    return Failure(str(int(content["errorcode"])), str(content["errortext"]))


DIALECT = Dialect(failure=failure, codes=CODES, secret_fields=frozenset({"apiKey", "signature"}))


class Api(JsonApi):
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._secret = settings.common.secret_key
        super().__init__(
            settings.common.api_url,
            DIALECT,
            self._headers,
            source=settings.source,
            timeout=settings.runtime.request_timeout,
            set_by=TIMEOUT,
            ca_file=settings.common.ca_file,
            verify=not settings.common.ssl_no_verify,
        )

    async def _headers(self, renew: bool) -> Mapping[str, str]:
        return {"User-Agent": "outoftree-ccm"}

    async def open(self) -> None:
        """Check the keys with one call. Raises Unauthorized, Transient, ConfigError."""
        if path := self.settings.common.secret_key_file:
            self._secret = await asyncio.to_thread(_read_secret, path)
        await super().open()
        await self.ask("listCapabilities")

    async def ask(self, command: str, /, **fields: str) -> Mapping[str, Any]:
        """Send a command and return the API's answer. Raises CloudError."""
        form = signed(command, fields, self.settings.common.api_key, self._secret, time.time())
        try:
            answer = await self.call("POST", "", form=form, name=command)
        except RateLimited as error:
            if error.retry_after is None and (pause := PAUSE.search(str(error))):
                error.retry_after = int(pause[1]) / 1000
            raise
        except Transient as error:
            if OWN_FAILURE.search(str(error)) and not command.startswith(("list", "query")):
                error.scope = "object"  # a write depends on one object; reads are the same for all
            raise
        body = answer.get(f"{command.lower()}response") if isinstance(answer, dict) else None
        if not isinstance(body, dict):
            raise Transient(f"{command}: the answer is not one to this command; is a proxy in between?")
        return body

    async def rows_page(self, command: str, rows_of: str, token: str | None, /, **fields: str) -> JsonPage:
        """Return one page of a listing of the user or the project. `rows_of`: the key of its rows. `token`: the number
        of the page, None for the first. Raises CloudError."""
        number, size = int(token or "1"), self.settings.runtime.page_size
        scope = {} if command in WITHOUT_SCOPE else self.scope
        answer = await self.ask(command, **scope, **fields, page=str(number), pagesize=str(size))
        rows = answer.get(rows_of, [])
        try:
            # Without rows, the API also leaves out their number.
            total = int(answer["count"]) if rows or "count" in answer else 0
        except (LookupError, TypeError, ValueError):
            raise Transient(f"{command}: the answer has no number of rows") from None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise Transient(f"{command}: the answer has no list of {rows_of}")
        return JsonPage(rows, str(number + 1) if rows and number * size < total else None, total)

    async def every_row(self, command: str, rows_of: str, /, **fields: str) -> list[Any]:
        """Return the rows of all pages of a listing. Raises Transient if the listing is not complete."""
        return await every_row(lambda token: self.rows_page(command, rows_of, token, **fields), command)

    async def one(self, command: str, rows_of: str, id_: str, /, **fields: str) -> Mapping[str, Any]:
        """Return the object with this ID. Raises NotFound if the API reports that there is none, with an empty listing
        or with its message that refuses this ID. Raises Transient if the answer has other objects."""
        try:
            page = await self.rows_page(command, rows_of, None, id=id_, **fields)
        except Invalid as error:
            if is_missing(str(error), id_):
                raise NotFound(f"{command}: there is no object with the ID {id_}") from None
            raise
        if page.total == 0 and not page.rows:
            raise NotFound(f"{command}: there is no object with the ID {id_}")
        if [row.get("id") for row in page.rows] != [id_]:
            raise Transient(f"{command}: the answer is about something else than {id_}")
        return dict(page.rows[0])

    async def start(self, command: str, /, **fields: str) -> Job:
        """Send a command that starts a job, and return the job. Raises CloudError."""
        answer = await self.ask(command, **fields)
        job = answer.get("jobid")
        if not isinstance(job, str) or not job:
            raise Transient(f"{command}: the answer names no job")
        return Job(str(answer.get("id") or ""), job)

    async def outcome(self, job: str, what: str) -> bool | CloudError:
        """Return whether a job is done, or the error with which it failed. A job that the cloud does not know any more
        counts as done. Raises CloudError if the cloud does not report the state of the job."""
        try:
            answer = await self.ask("queryAsyncJobResult", jobid=job)
        except Invalid as error:
            if is_missing(str(error), job):
                return True  # the cloud forgets old jobs
            raise
        match answer.get("jobstatus"):
            case 0:
                return False
            case 1:
                return True
            case 2:
                return failed(what, answer.get("jobresult"), self.soon)
        raise Transient(f"queryAsyncJobResult: the answer does not contain the state of the job ({what})")

    @property
    def soon(self) -> float:
        """How long to wait before a job is read again, in seconds."""
        return self.settings.runtime.job_interval

    @property
    def project(self) -> dict[str, str]:
        """Return the parameter that names the project, {} if no project is configured."""
        return {"projectid": project_id} if (project_id := self.settings.common.project_id) else {}

    @property
    def scope(self) -> dict[str, str]:
        """The parameters that make a listing cover everything that the user or the project may use."""
        return {"listall": "true", **self.project}


def is_missing(message: str, id_: str) -> bool:
    """Return whether the API refuses an ID because no object has it. The API has no code for that, so CloudStack's own
    clients compare the message, too."""
    return f"value={id_} " in message and "entity does not exist" in message


def failed(what: str, result: Any, soon: float) -> CloudError:
    """Return the error for a job that failed. `soon`: when to try again, in seconds, if the job failed only because the
    cloud was busy."""
    code, text = "", ""
    if isinstance(result, dict):
        code, text = str(result.get("errorcode", "")), str(result.get("errortext", ""))
    message = f"{what} failed: {code or 'without a code'} {quoted(text[:QUOTED])}"
    kind = CODES.get(code, Transient)
    if issubclass(kind, RetryAfter):
        return kind(message, soon)
    # The request was accepted, so the credentials are right, and the error concerns only this object.
    if kind in (Unauthorized, Forbidden):
        return Conflict(message)
    return Transient(message, scope="object") if kind is Transient else kind(message)


def _read_secret(path: str) -> str:
    try:
        secret = Path(path).read_text().strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError([f"secret-key-file: cannot read {path}: {reason}"]) from None
    if not re.fullmatch(r"[!-~]+", secret):
        raise ConfigError([f"secret-key-file: {path} contains no secret key"])
    return secret
