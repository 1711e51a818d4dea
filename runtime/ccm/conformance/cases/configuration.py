# SPDX-License-Identifier: Apache-2.0
"""The life cycle of a provider: its name, configuration, start and close."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from ccm.cloud import CloudError, ConfigError, ProviderConfig

from ..trial import Failed, Trial, described
from ..world import NotRun, Trouble
from .collection import Collection

COLLECTION = Collection("configuration")
case = COLLECTION.case

UNUSABLE = ("[[[ no configuration at all", "\x00\x01\x02", "no_such_key_of_any_provider: 1\n")

#: The valid keys of `Limits.groups`.
GROUPS = ("instances", "load_balancers", "routes", "volumes", "instance_tags", "quotas")


@case()
async def the_name_is_the_registered_one(trial: Trial) -> None:
    """`Cloud.name` equals the name that selects the provider; metrics, messages and Events use it."""
    if trial.cloud.name != trial.subject.name:
        raise Failed(f"selected as {trial.subject.name!r}, but Cloud.name is {trial.cloud.name!r}")


@case()
async def limits_are_usable(trial: Trial) -> None:
    """Rates, bursts, concurrency and deadline of `Limits` are greater than zero; otherwise the framework could never
    make a call. The keys of `Limits.groups` are names of groups."""
    limits = trial.cloud.limits
    for name in ("calls_per_second", "burst", "concurrency", "deadline"):
        if not getattr(limits, name) > 0:
            raise Failed(f"Limits.{name} is {getattr(limits, name)!r}")
    for group, rate in limits.groups.items():
        if group not in GROUPS or not rate.calls_per_second > 0 or not rate.burst > 0:
            raise Failed(f"Limits.groups has {group!r}: {rate}; groups are {', '.join(GROUPS)}, rates greater than 0")


@case()
async def the_environment_is_the_one_that_is_given(trial: Trial) -> None:
    """Settings come from `ProviderConfig.environment`: the provider can be created without any environment variable of
    the process."""
    with _without_variables():
        try:
            made = trial.subject.create(trial.subject.config)
        except Exception as error:
            what = "cannot create the provider without the process's variables, although the configuration has them"
            raise Failed(f"{what}: {described(error)}") from error
    await made.close()


@case()
async def watched_files_can_be_read(trial: Trial) -> None:
    """Each path of `watched_files` is readable, because changes of an unreadable file would go unnoticed."""
    for path in trial.cloud.watched_files:
        try:
            await asyncio.to_thread(Path(path).read_bytes)
        except (OSError, TypeError, ValueError) as error:
            raise Failed(f"Cloud.watched_files has {path!r}, which cannot be read: {described(error)}") from error


@case()
async def an_unusable_text_is_a_config_error(trial: Trial) -> None:
    """For any file content, the constructor either raises ConfigError with at least one problem, or creates a cloud.
    A provider that has a configuration refuses at least one text that makes no sense."""
    refused = False
    for text in UNUSABLE:
        try:
            made = trial.subject.create(ProviderConfig(text, "unusable.conf"))
        except ConfigError as error:
            refused = True
            if not error.problems or not all(isinstance(problem, str) and problem for problem in error.problems):
                raise Failed(f"{text!r}: a ConfigError with the problems {error.problems!r}") from error
        except Exception as error:
            raise Failed(f"{text!r}: raised {described(error)} instead of ConfigError") from error
        else:
            await made.close()
    if not refused and trial.subject.config.text:
        raise Failed("accepts any text as its configuration: a misspelled key would go unnoticed")


@case()
async def it_closes_without_a_start(trial: Trial) -> None:
    """`close` works on a cloud that was never started."""
    made = trial.subject.create(trial.subject.config)
    try:
        await made.close()
    except Exception as error:
        raise Failed(f"close without a start raised {described(error)}") from error


@case()
async def two_clouds_live_side_by_side(trial: Trial) -> None:
    """A second cloud with the same configuration works while the first one is in use, and after the first one is
    closed, as in a renewal of credentials."""
    async with trial.another() as second:
        await trial.ask(second.start)
        await trial.cloud.close()
        if second.instances is not None:
            await trial.ask(second.instances.list_page, None)


@case()
async def no_secret_is_shown(trial: Trial) -> None:
    """No secret of the configuration appears in a representation or an error, because both reach logs and Events."""
    texts = trial.subject.secret_texts
    if not texts:
        raise NotRun("the configuration has nothing that looks like a secret (set Subject.secrets for others)")
    shown = [("the cloud's representation", repr(trial.cloud)), ("its state", repr(vars(trial.cloud)))]
    try:
        trial.subject.create(ProviderConfig(f"{trial.subject.config.text}\n]no configuration[\n", "broken.conf"))
    except Exception as error:
        shown.append(("the error about a broken configuration", everything_in(error)))
    shown += await _errors_of_calls(trial)
    for where, text in shown:
        if any(secret in text for secret in texts):
            raise Failed(f"{where} contains a secret of the configuration")


@contextlib.contextmanager
def _without_variables() -> Iterator[None]:
    """Remove all environment variables while the context lasts. Run nothing else meanwhile: the variables belong to the
    whole process."""
    kept = dict(os.environ)
    os.environ.clear()
    try:
        yield
    finally:
        os.environ.update(kept)


async def _errors_of_calls(trial: Trial) -> list[tuple[str, str]]:
    """Return the errors for rejected credentials and for a failing cloud, if the world can cause them, as pairs of a
    title and everything in the error."""
    texts: list[tuple[str, str]] = []
    for kind in (Trouble.UNAUTHORIZED, Trouble.SERVER_ERROR, Trouble.PROXY_PAGE, Trouble.CUT_ANSWER):
        try:
            trouble = trial.world.trouble(kind)
        except NotRun:
            continue
        async with trouble, trial.another() as made:
            calls: list[Callable[[], Awaitable[Any]]] = [made.start]
            if made.instances is not None:
                calls.append(functools.partial(made.instances.list_page, None))
            for call in calls:
                try:
                    await trial.ask_once(call)
                except (CloudError, Failed) as error:
                    texts.append((f"the error when {kind.value}", everything_in(error)))
    return texts


def everything_in(error: BaseException) -> str:
    """Return the text of an error, and of everything that a traceback would show with it."""
    text = described(error) + repr(error)
    if isinstance(error, ConfigError):
        text += repr(error.problems)
    following = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return text + (everything_in(following) if following is not None else "")
