# SPDX-License-Identifier: Apache-2.0
import datetime

import msgspec
import pytest

from ccm.engine.api_errors import ForbiddenError, NotFoundError, UnavailableError
from ccm.serving import access_reviews
from ccm.serving.authorization import ANONYMOUS, MASTERS, Authorizer, ClientCas, Lifetimes, user_of
from ccm.serving.certificates import CertificateError

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

    async def ask(self, path, body, type, **_):
        self.asked.append((path, body))
        if self.down:
            raise UnavailableError(0, "", "connection refused")
        if path == TOKENS:
            name, groups = self.users.get(body["spec"]["token"], ("", []))
            extra = {"scopes": ["read"]} if name else {}
            user = {"username": name, "groups": groups, "uid": "1", "extra": extra}
            status = {"authenticated": bool(name), "user": user}
        else:
            assert path == ACCESS
            status = {"allowed": body["spec"]["user"] in self.allowed, "reason": "RBAC"}
        return msgspec.convert({"kind": body["kind"], "status": status}, type)


class Clock:
    time = 50.0

    def monotonic(self):
        return self.time

    def now(self):
        return datetime.datetime.fromtimestamp(self.time, datetime.UTC)


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
    assert await authorizer.check("/metrics", "Bearer good") == (200, "")
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
                    "uid": "1",
                    "extra": {"scopes": ["read"]},
                    "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
                },
            },
        ),
    ]


async def test_a_token_that_may_not(authorizer):
    assert await authorizer.check("/metrics", "bearer  poor ") == (
        403,
        "user 'poor' may not get the nonResourceURL /metrics",
    )


async def test_an_unknown_token(authorizer, client):
    assert await authorizer.check("/metrics", "Bearer s3cret") == (401, "the API server does not accept this token")
    assert [path for path, _ in client.asked] == [TOKENS]


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Bearer   ", "Basic Z29vZA==", "good", "BearerX good"])
async def test_C19_who_brings_no_token_is_anonymous(authorizer, client, header):
    status, reason = await authorizer.check("/metrics", header)
    assert (status, reason) == (403, "user 'system:anonymous' may not get the nonResourceURL /metrics")
    [(path, body)] = client.asked
    assert (path, body["spec"]["groups"]) == (ACCESS, ["system:unauthenticated"])
    client.allowed.add(ANONYMOUS.name)
    assert (await authorizer.check("/other", header))[0] == 200


async def test_an_api_server_that_does_not_answer_allows_nobody_and_is_asked_again(authorizer, client):
    client.down = True
    status, reason = await authorizer.check("/metrics", "Bearer good")
    assert (status, reason) == (500, "cannot query the API server: connection refused")
    assert "good" not in reason
    client.down = False
    assert (await authorizer.check("/metrics", "Bearer good"))[0] == 200


@pytest.mark.parametrize(("token", "status"), [("good", 200), ("poor", 403), ("unknown", 401)])
async def test_answers_are_remembered_for_ten_seconds(authorizer, client, clock, token, status):
    assert (await authorizer.check("/metrics", f"Bearer {token}"))[0] == status
    asked = len(client.asked)
    clock.time += 9.9
    assert (await authorizer.check("/metrics", f"Bearer {token}"))[0] == status
    assert len(client.asked) == asked
    clock.time += 0.1
    client.users.clear()
    assert (await authorizer.check("/metrics", f"Bearer {token}"))[0] == 401
    assert len(client.asked) == asked + 1


async def test_an_answer_is_for_its_token_and_path_alone(authorizer, client):
    await authorizer.check("/metrics", "Bearer good")
    assert (await authorizer.check("/metrics", "Bearer poor"))[0] == 403
    await authorizer.check("/debug", "Bearer good")
    assert client.asked[-1][1]["spec"]["nonResourceAttributes"]["path"] == "/debug"


async def test_the_memory_is_bounded_and_holds_no_token(client, clock, monkeypatch):
    monkeypatch.setattr(access_reviews, "CACHE_SIZE", 10)
    authorizer = Authorizer(client, lifetimes=Lifetimes(token=1000, allowed=1000, refused=1000), clock=clock)
    client.users |= {f"s3cret-{number}": (f"user-{number}", []) for number in range(35)}
    kept = [getattr(memory, name) for memory in (authorizer._users, authorizer._answers) for name in ("_good", "_bad")]
    for number in range(70):
        clock.time += 1
        status, _ = await authorizer.check("/metrics", f"Bearer s3cret-{number}", peer=str(number))
        assert status == (403 if number < 35 else 401)
        assert max(map(len, kept)) <= 10 and len(authorizer._strangers._peers) <= 10
    assert list(map(len, kept)) == [10, 10, 0, 10]
    assert "s3cret" not in repr(kept) + repr(authorizer._acquaintances._until)


CERTIFICATE = {"subject": ((("organizationName", "ops"),), (("organizationName", "dev"),), (("commonName", "jane"),))}
ROOT = {"subject": ((("organizationName", MASTERS),), (("commonName", "kubernetes-admin"),))}


async def test_a_client_certificate_names_user_and_groups(authorizer, client):
    client.allowed.add("jane")
    assert await authorizer.check("/metrics", "Bearer unknown", CERTIFICATE) == (200, "")
    [(path, body)] = client.asked
    assert (path, body["spec"]["user"]) == (ACCESS, "jane")
    assert body["spec"]["groups"] == ["ops", "dev", "system:authenticated"]
    assert user_of({}) is None


async def test_masters_may_always(authorizer, client):
    client.down = True
    assert await authorizer.check("/metrics", certificate=ROOT) == (200, "")
    client.down = False
    client.users["root"] = ("root", [MASTERS])
    assert await authorizer.check("/metrics", "Bearer root") == (200, "")
    assert [path for path, _ in client.asked] == [TOKENS]


async def test_two_identities():
    tokens, access = FakeClient(), FakeClient()
    assert (await Authorizer(tokens, access).check("/metrics", "Bearer good"))[0] == 200
    assert ([path for path, _ in tokens.asked], [path for path, _ in access.asked]) == ([TOKENS], [ACCESS])


async def test_C19_broken_authorisation_is_a_500():
    tokens, access = FakeClient(), FakeClient()
    access.down = True
    assert (await Authorizer(tokens, access).check("/metrics", "Bearer good"))[0] == 500


@pytest.mark.parametrize(
    ("lifetimes", "token", "asked"),
    [
        (Lifetimes(token=100), "good", [ACCESS]),
        (Lifetimes(token=0, allowed=100), "good", [TOKENS]),
        (Lifetimes(token=0, refused=100), "good", [TOKENS, ACCESS]),
        (Lifetimes(token=0, refused=100), "poor", [TOKENS]),
        (Lifetimes(token=100, allowed=100, refused=100), "unknown", []),
    ],
)
async def test_each_answer_lives_as_long_as_its_flag_says(client, clock, lifetimes, token, asked):
    authorizer = Authorizer(client, lifetimes=lifetimes, clock=clock)
    await authorizer.check("/metrics", f"Bearer {token}")
    client.asked.clear()
    clock.time += 50
    await authorizer.check("/metrics", f"Bearer {token}")
    assert [path for path, _ in client.asked] == asked


class Publishing:
    def __init__(self, answer):
        self.answer = answer

    async def get(self, path, type):
        assert path == "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
        if isinstance(self.answer, Exception):
            raise self.answer
        return msgspec.convert({"data": self.answer}, type)


async def test_client_cas_of_the_file_and_of_the_cluster(tmp_path):
    file = tmp_path / "ca.crt"
    file.write_text("MINE")
    cas = ClientCas(str(file), Publishing({"client-ca-file": "THEIRS", "requestheader-client-ca-file": "FRONT"}))
    await cas.look_up()
    assert cas.bundle() == b"MINE\nTHEIRS"
    file.write_text("NEW")
    assert cas.bundle() == b"NEW\nTHEIRS"
    file.unlink()
    with pytest.raises(CertificateError, match=r"cannot read --client-ca-file .*ca\.crt: No such file"):
        cas.bundle()


async def test_what_the_lookup_comes_to():
    cas = ClientCas("", None)
    await cas.look_up()
    assert cas.bundle() == b""
    cas = ClientCas("", Publishing(NotFoundError(404, "NotFound", "no such ConfigMap")))
    await cas.look_up()
    assert cas.bundle() == b""
    with pytest.raises(ForbiddenError):
        await ClientCas("", Publishing(ForbiddenError(403, "Forbidden", "no"))).look_up()


async def test_the_cluster_rotates_its_ca():
    publishing = Publishing({"client-ca-file": "ONE"})
    cas = ClientCas("", publishing)
    await cas.look_up()
    seen = []
    answers = iter([UnavailableError(0, "", "down"), {"client-ca-file": "TWO"}])

    async def sleep(seconds):
        seen.append(cas.bundle())
        publishing.answer = next(answers)

    with pytest.raises(RuntimeError, match="StopIteration"):
        await cas.follow(sleep)
    assert seen == [b"ONE", b"ONE", b"TWO"]
