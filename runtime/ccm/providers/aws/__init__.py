# SPDX-License-Identifier: Apache-2.0
"""The provider of AWS (docs/providers/aws.md), the counterpart of cloud-provider-aws, which is written in Go.

`settings` reads cloud.conf, `session` has botocore's clients, `api` makes a call in a thread, and each capability has a
file or a folder of its own. botocore is imported only when this provider starts, because no other provider needs it.
"""

from typing import ClassVar

from ccm.cloud import ConfigError, ProviderConfig
from ccm.cloud.toolkit.connected_cloud import ConnectedCloud
from ccm.cloud.toolkit.limit_settings import limits_of

from .api import LAG, Api
from .errors import TIMEOUT
from .instance_tags import Ec2Tags
from .instances import Ec2Instances
from .load_balancers.load_balancers import AwsLoadBalancers
from .routes import VpcRoutes
from .session import sdk_problem
from .settings import Settings
from .volumes import EbsVolumes

#: A call of the contract has time for this many requests in sequence, because a write of a large load balancer needs
#: that many.
REQUESTS = 16


class AwsCloud(ConnectedCloud):
    name: ClassVar[str] = "aws"

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        if problem := sdk_problem():
            raise ConfigError([problem])
        settings = Settings.parse(config)
        self.limits = limits_of(settings.runtime, requests=REQUESTS, set_by=TIMEOUT, listing_lag=LAG)
        api = self._api = Api(settings)
        self._connect(api, settings.ignored, source=config.source)
        self.instances = Ec2Instances(api)
        self.load_balancers = AwsLoadBalancers(api, self.instances)
        self.routes = VpcRoutes(api, self.instances)
        self.volumes = EbsVolumes(api)
        self.instance_tags = Ec2Tags(api, self.instances)
