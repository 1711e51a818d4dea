# SPDX-License-Identifier: Apache-2.0
"""The provider of AWS (docs/providers/aws.md): what cloud-provider-aws is in Go.

`cloud_conf` reads its cloud.conf, `aws_session` has the clients of botocore, `aws_api` makes a call in a thread, and
each capability is a file of its own. botocore is imported at the start only: only those who choose this provider need
it.
"""

from __future__ import annotations

import logging
from typing import ClassVar

from ccm import cloud
from ccm.cloud import ConfigError, Limits, ProviderConfig

from .aws_api import LAG, Api
from .aws_load_balancers import AwsLoadBalancers
from .aws_session import sdk_problem
from .cloud_conf import Settings
from .ebs_volumes import EbsVolumes
from .ec2_instances import Ec2Instances
from .ec2_tags import Ec2Tags
from .vpc_routes import VpcRoutes

log = logging.getLogger(__name__)

#: Requests in one call of the contract, one after the other, at most: that of a large load balancer.
REQUESTS = 16


class AwsCloud(cloud.Cloud):
    name: ClassVar[str] = "aws"

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        if problem := sdk_problem():
            raise ConfigError([problem])
        settings = self._settings = Settings.parse(config)
        runtime = settings.runtime
        self.limits = Limits(
            runtime.callspersecond,
            runtime.callsburst,
            deadline=REQUESTS * runtime.requesttimeout,
            listing_lag=LAG,
        )
        api = self._api = Api(settings)
        self.instances = Ec2Instances(api)
        self.load_balancers = AwsLoadBalancers(api, self.instances)
        self.routes = VpcRoutes(api, self.instances)
        self.volumes = EbsVolumes(api)
        self.instance_tags = Ec2Tags(api, self.instances)

    async def start(self) -> None:
        for sentence in self._settings.ignored:
            log.warning("%s: %s", self.config.source, sentence)
        await self._api.open()

    async def close(self) -> None:
        await self._api.close()
