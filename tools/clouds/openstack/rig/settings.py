# SPDX-License-Identifier: Apache-2.0
"""Writes the services' configuration files. Passwords need not be secret: the services listen only on loopback, and the
proxy there or, for a test bed, on the bed's bridge."""

from __future__ import annotations

import configparser
from dataclasses import dataclass
from pathlib import Path

from rig import environment
from rig.places import Ports

REGION = "RegionOne"
PASSWORD = "secret"
# Compute hosts, each in an availability zone of its own.
HOSTS = {"rig-a": "zone-a", "rig-b": "zone-b", "rig-c": "zone-c"}
DATABASES = ("keystone", "placement", "neutron", "glance", "octavia", "cinder", "nova_api", "nova_cell0", "nova_cell1")

Sections = dict[str, dict[str, object]]


@dataclass(frozen=True)
class Settings:
    """Where the files of the OpenStack services are, and where the services listen."""

    data: Path
    venv: Path
    ports: Ports

    @property
    def folder(self) -> Path:
        return self.data / "etc"

    @property
    def knobs(self) -> Path:
        """The file that tells the load balancer driver how long changes take and which objects end in ERROR. The driver
        reads it at each operation.
        """
        return self.data / "run" / "load-balancers.json"

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.conf"

    def write(self) -> None:
        for name in ("lock", "images", "stage", "tasks", "nova", "neutron", "cinder"):
            (self.data / "state" / name).mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(exist_ok=True)
        for name, sections in self._all().items():
            parser = configparser.RawConfigParser(default_section="none")
            parser.read_dict({section: _texts(options) for section, options in sections.items()})
            with self.file(name).open("w") as file:
                parser.write(file)

    def database(self, name: str) -> str:
        return f"mysql+pymysql://os:os@127.0.0.1:{self.ports.database}/{name}"

    def environment(self, service: str) -> dict[str, str]:
        """Return the environment variables by which the service finds its files."""
        etc = str(self.folder)
        wires = {"RIG_WIRES": str(self.data / "wires")}
        found = {
            "identity": {"OS_KEYSTONE_CONFIG_FILES": str(self.file("keystone"))},
            "placement": {"OS_PLACEMENT_CONFIG_DIR": etc},
            "network": {"OS_NEUTRON_CONFIG_DIR": etc, "OS_NEUTRON_CONFIG_FILES": "neutron.conf", **wires},
            "image": {"OS_GLANCE_CONFIG_DIR": etc},
            "load-balancer": {"RIG_LB_KNOBS": str(self.knobs), **wires},
            "compute": {
                "OS_NOVA_DISABLE_EVENTLET_PATCHING": "true",
                "OS_NOVA_CONFIG_DIR": "/",
                "OS_NOVA_CONFIG_FILES": f"{self.venv}/etc/nova/api-paste.ini;{self.file('nova')}",
                "RIG_HOSTS": ",".join(HOSTS),
            },
            "block-storage": {"RIG_ZONES": ",".join(HOSTS.values())},
        }
        return environment.variables() | found[service]

    def _all(self) -> dict[str, Sections]:
        return {
            "keystone": self._keystone(),
            "placement": self._placement(),
            "neutron": self._neutron(),
            "glance-api": self._glance(),
            "octavia": self._octavia(),
            "nova": self._nova(),
            "cinder": self._cinder(),
        }

    def _auth(self, **more: object) -> dict[str, object]:
        """Return the credentials with which services call one another directly, not through the proxy."""
        return {
            "auth_url": self.ports.internal_url("identity"),
            "auth_type": "password",
            "username": "services",
            "password": PASSWORD,
            "project_name": "service",
            "user_domain_id": "default",
            "project_domain_id": "default",
            "region_name": REGION,
            **more,
        }

    def _common(self, name: str) -> Sections:
        uri = self.ports.public_url("identity")
        return {
            "DEFAULT": {"log_file": self.data / "log" / f"{name}.log"},
            "keystone_authtoken": self._auth(www_authenticate_uri=uri, interface="internal"),
            "oslo_concurrency": {"lock_path": self.data / "state" / "lock"},
        }

    def _keystone(self) -> Sections:
        return {
            "DEFAULT": {"log_file": self.data / "log" / "keystone.log"},
            "database": {"connection": self.database("keystone")},
            "fernet_tokens": {"key_repository": self.data / "keys" / "fernet"},
            "credential": {"key_repository": self.data / "keys" / "credential"},
            "token": {"provider": "fernet", "expiration": 86400},
            "identity": {"password_hash_rounds": 4},
            "cache": {"enabled": True, "backend": "dogpile.cache.memory"},
        }

    def _placement(self) -> Sections:
        common = self._common("placement")
        return {
            **common,
            "api": {"auth_strategy": "keystone"},
            "placement_database": {"connection": self.database("placement")},
        }

    def _neutron(self) -> Sections:
        common = self._common("neutron")
        unlimited = "network subnet port router floatingip security_group security_group_rule"
        return {
            **common,
            "DEFAULT": {
                **common["DEFAULT"],
                "core_plugin": "ml2",
                "service_plugins": "router,revisions,tag,timestamp,port_forwarding",
                "transport_url": "fake://",
                "api_paste_config": self.venv / "etc/neutron/api-paste.ini",
                "state_path": self.data / "state/neutron",
                "notify_nova_on_port_status_changes": True,
                "notify_nova_on_port_data_changes": True,
                "network_auto_schedule": False,
                "router_auto_schedule": False,
                "max_routes": 2000,  # of a router: one for each node
            },
            "database": {"connection": self.database("neutron")},
            "ml2": {
                "type_drivers": "local,flat",
                "tenant_network_types": "local",
                "mechanism_drivers": "rig",
                "extension_drivers": "port_security",
            },
            "ml2_type_flat": {"flat_networks": "*"},
            "quotas": {f"quota_{name}": -1 for name in unlimited.split()},
            "nova": self._auth(endpoint_type="internal"),
        }

    def _glance(self) -> Sections:
        common = self._common("glance")
        return {
            **common,
            "DEFAULT": {**common["DEFAULT"], "enabled_backends": "files:file"},
            "database": {"connection": self.database("glance")},
            "glance_store": {"default_backend": "files"},
            "files": {"filesystem_store_datadir": self.data / "state/images"},
            "os_glance_staging_store": {"filesystem_store_datadir": self.data / "state/stage"},
            "os_glance_tasks_store": {"filesystem_store_datadir": self.data / "state/tasks"},
            "paste_deploy": {"flavor": "keystone", "config_file": self.venv / "etc/glance/glance-api-paste.ini"},
        }

    def _octavia(self) -> Sections:
        common = self._common("octavia")
        return {
            **common,
            "DEFAULT": {**common["DEFAULT"], "transport_url": "fake://"},
            "database": {"connection": self.database("octavia")},
            "api_settings": {
                "auth_strategy": "keystone",
                "api_base_uri": self.ports.public_url("load-balancer"),
                "enabled_provider_drivers": "rig:nothing behind it,ovn:by name only",
                "default_provider_driver": "rig",
            },
            "service_auth": self._auth(),
            "neutron": {
                "region_name": REGION,
                "endpoint_override": self.ports.internal_url("network"),
                "auth_section": "service_auth",
            },
            "controller_worker": {"network_driver": "allowed_address_pairs_driver"},
            "certificates": {"cert_manager": "noop_cert_manager"},
            "quotas": {"default_load_balancer_quota": -1, "default_listener_quota": -1, "default_pool_quota": -1},
        }

    def _nova(self) -> Sections:
        common = self._common("nova")
        internal = self._auth(valid_interfaces="internal")
        return {
            **common,
            "DEFAULT": {
                **common["DEFAULT"],
                "state_path": self.data / "state/nova",
                "transport_url": "fake://",
                "compute_driver": "fake.RigDriver",
                "my_ip": "127.0.0.1",
                "sync_power_state_interval": -1,  # a fake hypervisor forgets its servers when it restarts
                "resume_guests_state_on_host_boot": True,
            },
            "api": {"auth_strategy": "keystone"},
            "api_database": {"connection": self.database("nova_api")},
            "database": {"connection": self.database("nova_cell1")},
            "wsgi": {"api_paste_config": self.venv / "etc/nova/api-paste.ini"},
            "placement": internal,
            "neutron": internal,
            "glance": internal,
            # without it, neutron lets no project delete a server's port
            "service_user": {**self._auth(), "send_service_user_token": True},
            "vnc": {"enabled": False},
            "spice": {"enabled": False},
            "quota": {"driver": "nova.quota.NoopQuotaDriver"},
        }

    def _cinder(self) -> Sections:
        common = self._common("cinder")
        default = {
            "auth_strategy": "keystone",
            "transport_url": "fake://",
            "state_path": self.data / "state/cinder",
            "api_paste_config": self.venv / "etc/cinder/api-paste.ini",
        }
        return {
            **common,
            "DEFAULT": {**common["DEFAULT"], **default},
            "database": {"connection": self.database("cinder")},
        }


def _texts(options: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}
