# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from ccm.app import auth
from ccm.app.auth import Authorizer
from ccm.engine.errors import UnavailableError

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
PROMETHEUS = "system:serviceaccount:monitoring:prometheus"


class FakeClient:
    """An API server that knows `users` by token and allows those in `allowed`."""

    def __init__(self):
        self.users = {"good": (PROMETHEUS, ["system:authenticated"]), "poor": ("poor", [])}
        self.allowed = {PROMETHEUS}
        self.asked = []
        self.down = False

    async def ask(self, path, body, type):
        self.asked.append((path, body))
        if self.down:
            raise UnavailableError(0, "", "connection refused")
        if path == TOKENS:
            name, groups = self.users.get(body["spec"]["token"], ("", []))
            status = {"authenticated": bool(name), "user": {"username": name, "groups": groups, "uid": "1"}}
        else:
            assert path == ACCESS
            status = {"allowed": body["spec"]["user"] in self.allowed, "reason": "RBAC"}
        return msgspec.convert({"kind": body["kind"], "status": status}, type)


class Clock:
    now = 50.0

    def __call__(self):
        return self.now


@pytest.fixture
def client():
    return FakeClient()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def authorizer(client, clock):
    return Authorizer(client, clock=clock)


async def test_a_token_that_may(authorizer, client):
    assert await authorizer.check("Bearer good", "/metrics") == (200, "")
    assert client.asked == [
        (
            TOKENS,
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "good"}},
        ),
        (
            ACCESS,
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": PROMETHEUS,
                    "groups": ["system:authenticated"],
                    "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
                },
            },
        ),
    ]


async def test_a_token_that_may_not(authorizer):
    assert await authorizer.check("bearer  poor ", "/metrics") == (
        403,
        "user 'poor' may not get the nonResourceURL /metrics",
    )


async def test_an_unknown_token(authorizer, client):
    assert await authorizer.check("Bearer s3cret", "/metrics") == (401, "the API server does not know this token")
    assert [path for path, _ in client.asked] == [TOKENS]


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Bearer   ", "Basic Z29vZA==", "good", "BearerX good"])
async def test_no_token(authorizer, client, header):
    status, reason = await authorizer.check(header, "/metrics")
    assert (status, reason) == (401, "give a bearer token that may get the nonResourceURL /metrics")
    assert client.asked == []


async def test_an_api_server_that_does_not_answer_allows_nobody_and_is_asked_again(authorizer, client):
    client.down = True
    status, reason = await authorizer.check("Bearer good", "/metrics")
    assert (status, reason) == (500, "the API server could not be asked: connection refused")
    assert "good" not in reason
    client.down = False
    assert (await authorizer.check("Bearer good", "/metrics"))[0] == 200


@pytest.mark.parametrize(("token", "status"), [("good", 200), ("poor", 403), ("unknown", 401)])
async def test_answers_are_remembered_for_ten_seconds(authorizer, client, clock, token, status):
    assert (await authorizer.check(f"Bearer {token}", "/metrics"))[0] == status
    asked = len(client.asked)
    clock.now += 9.9
    assert (await authorizer.check(f"Bearer {token}", "/metrics"))[0] == status
    assert len(client.asked) == asked
    clock.now += 0.1
    client.users.clear()
    assert (await authorizer.check(f"Bearer {token}", "/metrics"))[0] == 401
    assert len(client.asked) == asked + 1


async def test_an_answer_is_for_its_token_and_path_alone(authorizer, client):
    await authorizer.check("Bearer good", "/metrics")
    assert (await authorizer.check("Bearer poor", "/metrics"))[0] == 403
    await authorizer.check("Bearer good", "/debug")
    assert client.asked[-1][1]["spec"]["nonResourceAttributes"]["path"] == "/debug"


async def test_the_memory_is_bounded_and_holds_no_token(authorizer, client, monkeypatch):
    monkeypatch.setattr(auth, "_CACHE_SIZE", 10)
    for number in range(35):
        await authorizer.check(f"Bearer s3cret-{number}", "/metrics")
        assert len(authorizer._cache) <= 10
    assert "s3cret" not in repr(authorizer._cache)
