# SPDX-License-Identifier: Apache-2.0
"""What this provider knows about each driver of libcloud: arguments, providerIDs, and how its answers are read. Pure.

libcloud gives every cloud the same nodes, and leaves out facts that this provider needs: zone, type, and how many
machines there are in all. These facts come from the cloud's own JSON, which the driver received. A *row* is one machine
in that JSON. A function that takes a row may raise LookupError, TypeError, AttributeError or ValueError if the row has
another shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
#: The key under which each row gets the zone that was listed.
ASKED = "asked-zone"
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


@dataclass(frozen=True)
class Argument:
    """A key of the configuration. Its value becomes the driver's argument `to`. A secret may be in a file instead,
    which the key NAME_file names."""

    to: str
    help: str
    secret: bool = False
    required: bool = True


@dataclass(frozen=True)
class Rows:
    """Where rows are. `where`: a regular expression that matches a part of the request's path and query. `keys`: the
    keys that lead to the rows in the answer's JSON; `*` stands for every value of a mapping.

    `total`: keys that lead to the number of rows of the whole listing. `total_header`: the header that has this number.
    `page`: set if the cloud does not always report the total. Then a listing whose length is a multiple of `page` may
    be one page of several. `more`: whether an answer says that another page follows. `details`: these rows describe
    machines that another request lists.
    """

    where: str
    keys: tuple[str, ...]
    total: tuple[str, ...] = ()
    total_header: str = ""
    page: int = 0
    more: Callable[[Mapping[str, Any]], bool] = lambda answer: False
    details: bool = False


def _nothing(row: Row) -> str:
    return ""


def _no_names(row: Row) -> tuple[str, ...]:
    return ()


def _as_it_is(provider_id: str) -> str:
    return provider_id


@dataclass(frozen=True)
class Driver:
    """One driver. The default of each function is for clouds that do not report the fact.

    `library_class`: module and class below `libcloud.compute.drivers`. `provider_id`: from row and configured
    arguments. `id_form`: a pattern that matches the whole of each providerID that the cloud's own controller writes.
    `canonical`: converts a providerID that `id_form` matches to the spelling of `provider_id`. `row_id`: the ID under
    which libcloud names the machine of a row. `fixed`: further arguments of the driver. `list_with`: arguments of its
    `list_nodes`. `zoned`: how a zone becomes a part of the URL's path, None if one listing has all zones. `shutdown`:
    libcloud's states in which a machine is shut down. `gone`: those in which the cloud lists machines that it has
    deleted. Every other state, known or not, is a machine that exists. `sort_addresses`: the driver reports public
    addresses in random order. `endpoint`: the address to use instead of the driver's own. `note`: a sentence for the
    table of the documentation.
    """

    cloud: str
    library_class: tuple[str, str]
    arguments: Mapping[str, Argument]
    rows: tuple[Rows, ...]
    id_form: str
    provider_id: Callable[[Row, Mapping[str, str]], str]
    controller: str
    zone: Callable[[Row], str] = _nothing
    region: Callable[[Row], str] = _nothing
    type: Callable[[Row], str] = _nothing
    aliases: Callable[[Row], tuple[str, ...]] = _no_names
    canonical: Callable[[str], str] = _as_it_is
    row_id: Callable[[Row], str] = lambda row: str(row["id"])
    fixed: Mapping[str, Any] = field(default_factory=dict)
    list_with: Mapping[str, Any] = field(default_factory=dict)
    zoned: str | None = None
    shutdown: frozenset[str] = frozenset({"stopped"})
    gone: frozenset[str] = frozenset()
    sort_addresses: bool = False
    endpoint: str = ""
    note: str = ""


def _token(what: str) -> dict[str, Argument]:
    return {"token": Argument("key", f"an API token of {what} that may read servers", secret=True)}


def _pair(key: str, secret: str) -> dict[str, Argument]:
    return {
        key: Argument("key", "the access key", secret=key.endswith("key")),
        secret: Argument("secret", "the secret key of the access key", secret=True),
    }


def _last(path: Any) -> str:
    """Return the name at the end of a URL."""
    return str(path).rpartition("/")[2]


def _without_suffix(zone: str) -> str:
    """Return the region of a zone such as europe-west1-b or fr-par-1."""
    return zone.rpartition("-")[0]


def _cloudstack(cloud: str, scheme: str, library_class: tuple[str, str], **others: Any) -> Driver:
    return Driver(
        cloud=cloud,
        library_class=library_class,
        rows=(
            Rows(
                r"[?&]command=listVirtualMachines(&|$)",
                ("listvirtualmachinesresponse", "virtualmachine"),
                total=("listvirtualmachinesresponse", "count"),
                page=100,
            ),
        ),
        # In CloudStack's first releases, IDs are numbers.
        id_form=rf"{scheme}://[0-9a-f][0-9a-f-]{{0,63}}",
        provider_id=lambda row, arguments: f"{scheme}://{row['id']}",
        zone=lambda row: str(row["zonename"]),
        type=lambda row: str(row["serviceofferingname"]),
        sort_addresses=True,
        **others,
    )


def _azure_id(provider_id: str) -> str:
    """Return the providerID with the resource group in lower case, as Azure's controller writes it. Azure ignores
    the case."""
    parts = provider_id.split("/")
    parts[6] = parts[6].lower()
    return "/".join(parts)


def _azure_zone(row: Row) -> str:
    zones = row.get("zones") or ()
    return f"{str(row['location']).lower()}-{zones[0]}" if zones else ""


def _scaleway_zone(row: Row) -> str:
    """Return the zone of a row. If the row names none, as in old answers, it is the zone that was listed."""
    return str(row.get("zone") or row[ASKED])


DRIVERS: Mapping[str, Driver] = {
    "azure": Driver(
        cloud="Azure",
        library_class=("azure_arm", "AzureNodeDriver"),
        arguments={
            "tenant_id": Argument("tenant_id", "the tenant of the service principal"),
            "subscription_id": Argument("subscription_id", "the subscription with the machines"),
            "client_id": Argument("key", "the service principal"),
            "client_secret": Argument("secret", "the secret of the service principal", secret=True),
        },
        rows=(
            Rows(
                r"(?i)/Microsoft\.Compute/virtualMachines(\?|$)",
                ("value",),
                more=lambda answer: bool(answer.get("nextLink")),
            ),
        ),
        id_form=r"azure:///subscriptions/[^/\s]+/resourceGroups/[^/\s]+/providers/Microsoft\.Compute/virtualMachines/"
        r"[^/\s]+",
        provider_id=lambda row, arguments: _azure_id(f"azure://{row['id']}"),
        canonical=_azure_id,
        controller="cloud-provider-azure",
        zone=_azure_zone,
        region=lambda row: str(row["location"]).lower(),
        type=lambda row: str(row["properties"]["hardwareProfile"]["vmSize"]),
        aliases=lambda row: (str(row["properties"]["osProfile"]["computerName"]),),
        note="Machines of scale sets are not listed. A listing takes two requests for each machine, and one for each "
        "public address.",
    ),
    "cloudscale": Driver(
        cloud="cloudscale.ch",
        library_class=("cloudscale", "CloudscaleNodeDriver"),
        arguments=_token("the project"),
        rows=(Rows(r"/v1/servers(\?|$)", (), page=100),),
        row_id=lambda row: str(row["uuid"]),
        id_form=rf"cloudscale://{UUID}",
        provider_id=lambda row, arguments: f"cloudscale://{row['uuid']}",
        controller="cloudscale-cloud-controller-manager",
        zone=lambda row: str((row.get("zone") or {}).get("slug", "")),
        region=lambda row: str((row.get("zone") or {}).get("slug", ""))[:-1],
        type=lambda row: str(row["flavor"]["slug"]),
    ),
    "cloudstack": _cloudstack(
        "Apache CloudStack",
        "external-cloudstack",
        ("cloudstack", "CloudStackNodeDriver"),
        arguments={
            "api_key": Argument("key", "the API key of the user", secret=True),
            "secret_key": Argument("secret", "the secret key of the API key", secret=True),
            "api_url": Argument("url", "the API, such as `https://cloud.example/client/api`"),
        },
        controller="cloudstack-kubernetes-provider",
        note="Use [`cloudstack`](../providers/cloudstack.md): it reads all pages, and has load balancers. This driver "
        "reads only one page. If the cloud reports more machines, the listing is refused.",
    ),
    "digitalocean": Driver(
        cloud="DigitalOcean",
        library_class=("digitalocean", "DigitalOcean_v2_NodeDriver"),
        arguments=_token("the team"),
        rows=(Rows(r"/v2/droplets(\?|$)", ("droplets",), total=("meta", "total")),),
        id_form=r"digitalocean://[1-9][0-9]{0,19}",
        provider_id=lambda row, arguments: f"digitalocean://{int(row['id'])}",
        controller="digitalocean-cloud-controller-manager",
        region=lambda row: str(row["region"]["slug"]),
        type=lambda row: str(row["size_slug"]),
    ),
    "exoscale": _cloudstack(
        "Exoscale",
        "exoscale",
        ("exoscale", "ExoscaleNodeDriver"),
        arguments={
            "api_key": Argument("key", "the API key", secret=True),
            "api_secret": Argument("secret", "the secret of the API key", secret=True),
        },
        controller="exoscale-cloud-controller-manager",
        note="The driver speaks version 1 of the API, which Exoscale calls deprecated.",
    ),
    "gce": Driver(
        cloud="Google Compute Engine",
        library_class=("gce", "GCENodeDriver"),
        arguments={
            "service_account": Argument("user_id", "the e-mail address of the service account"),
            "private_key": Argument("key", "the service account's key, as JSON or PEM", secret=True),
            "project": Argument("project", "the project with the machines"),
        },
        # Without a file of its own, the driver keeps the token below the home directory.
        fixed={
            "auth_type": "SA",
            "credential_file": "/dev/null",
            "scopes": ["https://www.googleapis.com/auth/compute.readonly"],
        },
        rows=(
            Rows(
                r"/aggregated/instances(\?|$)",
                ("items", "*", "instances"),
                more=lambda answer: bool(answer.get("nextPageToken")),
            ),
        ),
        id_form=r"gce://[a-z0-9_:.-]+/[a-z0-9-]+/[a-z0-9-]+",
        provider_id=lambda row, arguments: f"gce://{arguments['project']}/{_last(row['zone'])}/{row['name']}",
        controller="cloud-provider-gcp",
        zone=lambda row: _last(row["zone"]),
        region=lambda row: _without_suffix(_last(row["zone"])),
        type=lambda row: _last(row["machineType"]),
        note="A listing also reads disks and zones.",
    ),
    "linode": Driver(
        cloud="Linode (Akamai)",
        library_class=("linode", "LinodeNodeDriverV4"),
        arguments=_token("the account"),
        rows=(Rows(r"/v4/linode/instances(\?|$)", ("data",), total=("results",)),),
        id_form=r"linode://[1-9][0-9]{0,19}",
        provider_id=lambda row, arguments: f"linode://{int(row['id'])}",
        controller="linode-cloud-controller-manager",
        region=lambda row: str(row["region"]),
        type=lambda row: str(row["type"]),
    ),
    "openstack": Driver(
        cloud="OpenStack",
        library_class=("openstack", "OpenStack_2_NodeDriver"),
        arguments={
            "username": Argument("key", "the user"),
            "password": Argument("secret", "the user's password", secret=True),
            "auth_url": Argument("ex_force_auth_url", "Keystone's URL"),
            "project": Argument("ex_tenant_name", "the project's name"),
            "domain": Argument("ex_domain_name", "the user's domain", required=False),
            "project_domain_id": Argument("ex_tenant_domain_id", "the ID of the project's domain", required=False),
            "region": Argument("ex_force_service_region", "the region", required=False),
        },
        fixed={"ex_force_auth_version": "3.x_password"},
        rows=(
            Rows(
                r"/servers/detail(\?|$)",
                ("servers",),
                more=lambda answer: any(
                    servers_link.get("rel") == "next" for servers_link in answer.get("servers_links", ())
                ),
            ),
        ),
        id_form=r"openstack:///[0-9a-f][0-9a-f-]{0,63}",
        provider_id=lambda row, arguments: f"openstack:///{row['id']}",
        controller="cloud-provider-openstack",
        zone=lambda row: str(row.get("OS-EXT-AZ:availability_zone") or ""),
        note="Use [`openstack`](../providers/openstack.md): it does much more. Nodes get no region and no type, "
        "because this driver uses an old version of Nova's API. Keystone's catalog must call the service `nova`.",
    ),
    "scaleway": Driver(
        cloud="Scaleway",
        library_class=("scaleway", "ScalewayNodeDriver"),
        arguments=_pair("access_key", "secret_key"),
        rows=(Rows(r"/servers(\?|$)", ("servers",), total_header="x-total-count", page=100),),
        id_form=r"scaleway://instance/[a-z0-9-]+/[0-9a-f][0-9a-f-]{0,63}",
        provider_id=lambda row, arguments: f"scaleway://instance/{_scaleway_zone(row)}/{row['id']}",
        controller="scaleway-cloud-controller-manager",
        zone=_scaleway_zone,
        region=lambda row: _without_suffix(_scaleway_zone(row)),
        type=lambda row: str(row.get("commercial_type") or ""),
        zoned="/instance/v1/zones/{zone}",
        endpoint="https://api.scaleway.com",
        note="One listing for each zone in `zones`. Requests go to `api.scaleway.com`, because the driver's address is "
        "outdated.",
    ),
    "upcloud": Driver(
        cloud="UpCloud",
        library_class=("upcloud", "UpcloudDriver"),
        arguments={
            "username": Argument("username", "the user of the API"),
            "password": Argument("password", "the user's password", secret=True),
        },
        rows=(
            Rows(r"1\.2/server(\?|$)", ("servers", "server"), page=100),
            Rows(rf"1\.2/server/{UUID}(\?|$)", ("server",), details=True),
        ),
        row_id=lambda row: str(row["uuid"]),
        id_form=rf"upcloud:////{UUID}",
        provider_id=lambda row, arguments: f"upcloud:////{row['uuid']}",
        controller="upcloud-cloud-controller-manager",
        zone=lambda row: str(row["zone"]),
        region=lambda row: str(row["zone"]),
        type=lambda row: str(row["plan"]),
        aliases=lambda row: (str(row["hostname"]),),
        note="A listing takes one request for each machine.",
    ),
    "vultr": Driver(
        cloud="Vultr",
        library_class=("vultr", "VultrNodeDriverV2"),
        arguments=_token("the account"),
        list_with={"ex_list_bare_metals": False},
        rows=(Rows(r"/v2/instances(\?|$)", ("instances",), total=("meta", "total")),),
        id_form=r"vultr://[0-9a-f][0-9a-f-]{0,63}",
        provider_id=lambda row, arguments: f"vultr://{row['id']}",
        controller="vultr-cloud-controller-manager",
        region=lambda row: str(row["region"]),
        type=lambda row: str(row["plan"]),
        note="Bare-metal machines are not listed.",
    ),
}


def owned(driver: Driver, provider_id: str) -> bool:
    """Return whether the driver's cloud has providerIDs of this form."""
    return len(provider_id) <= 512 and re.fullmatch(driver.id_form, provider_id) is not None
