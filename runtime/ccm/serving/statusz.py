# SPDX-License-Identifier: Apache-2.0
"""`/statusz`: the state of this process as a page, as text, or as JSON."""

from __future__ import annotations

from aiohttp import web

from .status_report import Status

#: Media types of the answer, by the value of `?format=`.
FORMATS = {"html": "text/html", "text": "text/plain", "json": "application/json"}


def chosen(query: str | None, accept: str) -> str | None:
    """Return the format of the answer: that of `?format=`, or of the first known media type in `Accept`; HTML without
    either. None for an unknown `?format=`."""
    if query is not None:
        return query if query in FORMATS else None
    for part in accept.split(","):
        media = part.partition(";")[0].strip().lower()
        for name, known in FORMATS.items():
            if media == known:
                return name
    return "html"


def response(request: web.Request, status: Status) -> web.Response:
    """Return the answer to one request. The modules that render it are imported only here, because most processes never
    get a request."""
    headers = {
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "Vary": "Accept",
    }
    kind = chosen(request.query.get("format"), request.headers.get("Accept", ""))
    if kind is None:
        return web.Response(status=400, text="format must be html, text or json\n", headers=headers)
    if kind == "html":
        from . import status_page

        body, headers["Content-Security-Policy"] = status_page.page(status), status_page.POLICY
    elif kind == "json":
        import msgspec

        body = msgspec.json.encode(status).decode()
    else:
        from . import status_text

        body = "\n".join(status_text.lines(status)) + "\n"
    return web.Response(text=body, content_type=FORMATS[kind], charset="utf-8", headers=headers)
