# SPDX-License-Identifier: Apache-2.0
"""Finds providers: to add one, install a package with an entry point in the group `ccm.providers`."""

from __future__ import annotations

from ccm.base.installed import entry_points

from .contract import Cloud, ProviderConfig
from .errors import ConfigError

GROUP = "ccm.providers"


def names() -> list[str]:
    """Return the names of all installed providers, sorted."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def unknown(name: str) -> str:
    """Return the error message for a provider that is not installed."""
    installed = ", ".join(names()) or "none"
    return (
        f"unknown cloud provider {name!r}: installed providers are {installed}. "
        f"Install a package with an entry point {name!r} in the group {GROUP!r}, or correct --cloud-provider"
    )


def load(name: str) -> type[Cloud]:
    """Return the class of the provider `name`.

    Raises ConfigError if it is unknown, is registered with different values, cannot be imported, or is not a `Cloud`.
    """
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if not points:
        raise ConfigError([unknown(name)])
    if len({point.value for point in points}) > 1:
        values = ", ".join(sorted(point.value for point in points))
        raise ConfigError([f"cloud provider {name!r} is registered more than once ({values}): uninstall all but one"])
    try:
        cls = points[0].load()
    except (Exception, SystemExit) as error:  # the import of a third-party package may raise anything
        raise ConfigError(
            [f"cannot import cloud provider {name!r} ({points[0].value}): {type(error).__name__}: {error}"]
        ) from error
    if not (isinstance(cls, type) and issubclass(cls, Cloud)):
        raise ConfigError([f"cloud provider {name!r} ({points[0].value}) is not a subclass of ccm.cloud.Cloud"])
    return cls


def create(name: str, config: ProviderConfig) -> Cloud:
    """Create the provider. Raises ConfigError with every problem of its configuration."""
    cls = load(name)
    try:
        return cls(config)
    except ConfigError:
        raise
    except Exception as error:  # a bug in the provider; the message may quote the configuration, which contains secrets
        raise ConfigError(
            [f"cloud provider {name!r} failed on the configuration {config.source} with {type(error).__name__}"]
        ) from error
