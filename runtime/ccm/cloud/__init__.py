# SPDX-License-Identifier: Apache-2.0
"""The contract between the framework and a provider, and its errors.

Providers import nothing else of `ccm`, except the helpers of `ccm.cloud.toolkit`.
"""

from .backends import Backends
from .blocking import BlockingCalls
from .contract import (
    Cloud,
    Limits,
    ProviderConfig,
    Rate,
    Route,
    Routes,
    VolumeRef,
    Volumes,
    Webhook,
)
from .errors import (
    CloudError,
    ConfigError,
    Conflict,
    Forbidden,
    ImplementedElsewhere,
    Invalid,
    NotFound,
    NotImplementedByCloud,
    QuotaExceeded,
    RateLimited,
    RetryAfter,
    Transient,
    Unauthorized,
)
from .instance_contract import (
    Address,
    AddressType,
    CanonicalIds,
    Instance,
    InstanceRef,
    Instances,
    InstanceState,
    Page,
)
from .load_balancer_contract import (
    AllocatesAddresses,
    Allocations,
    Backend,
    ComparesLoadBalancers,
    Ingress,
    IngressPort,
    LoadBalancer,
    LoadBalancers,
    LoadBalancerSpec,
    Port,
)
from .quota_contract import Quota, Quotas
from .tag_contract import InstanceTags

__all__ = [
    "Address",
    "AddressType",
    "AllocatesAddresses",
    "Allocations",
    "Backend",
    "Backends",
    "BlockingCalls",
    "CanonicalIds",
    "Cloud",
    "CloudError",
    "ComparesLoadBalancers",
    "ConfigError",
    "Conflict",
    "Forbidden",
    "ImplementedElsewhere",
    "Ingress",
    "IngressPort",
    "Instance",
    "InstanceRef",
    "InstanceState",
    "InstanceTags",
    "Instances",
    "Invalid",
    "Limits",
    "LoadBalancer",
    "LoadBalancerSpec",
    "LoadBalancers",
    "NotFound",
    "NotImplementedByCloud",
    "Page",
    "Port",
    "ProviderConfig",
    "Quota",
    "QuotaExceeded",
    "Quotas",
    "Rate",
    "RateLimited",
    "RetryAfter",
    "Route",
    "Routes",
    "Transient",
    "Unauthorized",
    "VolumeRef",
    "Volumes",
    "Webhook",
]
