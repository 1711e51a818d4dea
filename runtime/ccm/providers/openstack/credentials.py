# SPDX-License-Identifier: Apache-2.0
"""Credentials for the cloud: [Global] of cloud.conf, and a clouds.yaml, as options of the SDK."""

from __future__ import annotations

import importlib.util
import os
import re
from typing import TYPE_CHECKING, Any

from ccm.cloud import CloudError, ConfigError

from .errors import plain
from .name_patterns import engine_problem
from .settings import Settings
from .settings_sections import Global

if TYPE_CHECKING:
    from openstack.config.cloud_region import CloudRegion

#: Keys of [Global] that name a file.
FILES = ("clouds-file", "ca-file", "cert-file", "key-file")
#: Options of the SDK that are secrets.
SECRET = re.compile(r"password|passcode|secret|token")


def sdk_problem() -> str:
    """Return the message about a required package that is not installed, "" if all are installed."""
    if importlib.util.find_spec("openstack") is not None:
        return engine_problem()
    return "the provider openstack needs the package openstacksdk: pip install 'outoftree-ccm[openstack]'"


def cloud_region(settings: Settings) -> CloudRegion:
    """Return the SDK's configuration. Environment variables are not read. Raises ConfigError."""
    from openstack.config import OpenStackConfig
    from openstack.exceptions import ConfigException

    auth = settings.auth
    if problems := missing_files(settings):
        raise ConfigError(problems)
    options = {**sdk_options(auth), "api_timeout": settings.metadata.request_timeout}
    try:
        if not auth.use_clouds:
            return OpenStackConfig(load_yaml_config=False, load_envvars=False).get_one(**options)
        files = [os.path.expanduser(auth.clouds_file)] if auth.clouds_file else None
        return OpenStackConfig(config_files=files, load_envvars=False).get_one(cloud=auth.cloud, **options)
    except ConfigException as error:
        where = auth.clouds_file or "clouds.yaml"
        raise ConfigError([f"{settings.source}: [Global] cloud {auth.cloud!r} of {where}: {plain(error)}"]) from None
    except CloudError:
        raise
    except Exception as error:  # from YAML, file access or keystoneauth's options; its text may quote the file
        raise ConfigError([f"{settings.source}: [Global] cannot be used: {type(error).__name__}"]) from None


def secrets_of(region: CloudRegion) -> tuple[str, ...]:
    """Return the secrets that a request for a token contains. A clouds.yaml may have set them."""
    auth: dict[str, Any] = region.config.get("auth") or {}
    return tuple(str(text) for name, text in auth.items() if text and SECRET.search(name))


def named_files(settings: Settings) -> list[str]:
    """Return the files that [Global] names."""
    named = (getattr(settings.auth, spelt.replace("-", "_")) for spelt in FILES)
    return [os.path.expanduser(path) for path in named if path]


def missing_files(settings: Settings) -> list[str]:
    """Return a problem for each unreadable file that [Global] names, because errors of later requests would not name
    the file."""
    problems = []
    for spelt in FILES:
        path = os.path.expanduser(getattr(settings.auth, spelt.replace("-", "_")))
        if path and not (os.path.isfile(path) and os.access(path, os.R_OK)):
            where = f"{settings.source}: line {settings.lines[spelt]}: [Global] {spelt}"
            problems.append(f"{where}: file {path} does not exist or is not readable")
    return problems


def sdk_options(auth: Global) -> dict[str, Any]:
    """Return [Global] as options of the SDK. Keys that are not set are omitted, so that clouds.yaml may set them."""
    user_domain = {
        "user_domain_id": auth.user_domain_id or ("" if auth.user_domain_name else auth.domain_id),
        "user_domain_name": auth.user_domain_name or ("" if auth.user_domain_id else auth.domain_name),
    }
    if auth.user_id:
        user_domain = {}
    project = {"project_id": auth.tenant_id, "project_name": auth.tenant_name}
    if auth.tenant_name:
        project |= {
            "project_domain_id": auth.tenant_domain_id or ("" if auth.tenant_domain_name else auth.domain_id),
            "project_domain_name": auth.tenant_domain_name or ("" if auth.tenant_domain_id else auth.domain_name),
        }
    user = {"user_id": auth.user_id, "username": auth.username, **user_domain}
    kind = ""
    credentials: dict[str, str] = {}
    if auth.application_credential_id or auth.application_credential_name:
        kind = "v3applicationcredential"
        credentials = {
            "application_credential_id": auth.application_credential_id,
            "application_credential_name": auth.application_credential_name,
            "application_credential_secret": auth.application_credential_secret,
            **(user if auth.application_credential_name else {}),
        }
    elif auth.trust_id:
        kind = "v3password"
        trustee = {"user_id": auth.trustee_id} if auth.trustee_id else user
        password = auth.trustee_password or auth.password
        credentials = {"trust_id": auth.trust_id, **trustee, "password": password}
    elif auth.token:
        kind = "v3token"
        credentials = {"token": auth.token, **project}
    elif auth.password:
        kind = "v3password"
        credentials = {**user, "password": auth.password, **project}
    elif auth.use_clouds:
        credentials = {**user, **project}
    options: dict[str, Any] = {
        "auth": {name: value for name, value in {"auth_url": auth.auth_url, **credentials}.items() if value}
    }
    if kind:
        options["auth_type"] = kind
    if auth.region:
        options["region_name"] = auth.region
    if auth.os_endpoint_type or not auth.use_clouds:
        options["interface"] = auth.os_endpoint_type or "public"
    if auth.ca_file:
        options["cacert"] = auth.ca_file
    if auth.cert_file:
        options |= {"cert": auth.cert_file, "key": auth.key_file}
    if auth.tls_insecure is not None or auth.ca_file:  # ca-file implies that the cloud's certificates are verified
        options |= {"verify": not auth.tls_insecure, "insecure": bool(auth.tls_insecure)}
    return options
