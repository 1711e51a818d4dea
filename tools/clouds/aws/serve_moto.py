# SPDX-License-Identifier: Apache-2.0
"""Runs moto, which simulates AWS, as a server, and adds what moto lacks: `python serve_moto.py PORT [ADDRESS]`, with
moto on PYTHONPATH.

moto derives names from addresses, has neither slow nor failed load balancers, and shows no route as a blackhole. Its
host names, attributes, listeners and health checks of load balancers differ from those of AWS, and cloud-provider-aws
reads some that moto does not have at all. A POST to /ccm-control makes changes that AWS would make by itself.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.responses import ActionResult
from moto.ec2.exceptions import DependencyViolationError
from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import Instance
from moto.ec2.models.route_tables import Route
from moto.ec2.models.security_groups import SecurityGroupBackend
from moto.ec2.models.subnets import Subnet
from moto.ec2.responses import EC2Response
from moto.elb.exceptions import ELBClientError, LoadBalancerNotFoundError
from moto.elb.models import ELBBackend, FakeBackend, FakeHealthCheck, elb_backends
from moto.elb.models import FakeListener as ClassicListener
from moto.elb.models import LoadBalancer as ClassicBalancer
from moto.elb.responses import ELBResponse
from moto.elbv2.exceptions import ValidationError
from moto.elbv2.models import ELBv2Backend, FakeListener, FakeLoadBalancer, FakeTargetGroup, elbv2_backends
from moto.elbv2.responses import ELBV2Response
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

REGION = "eu-central-1"
#: `seconds`: until a new load balancer is active. `groups in use until`: the time before which no security group can be
#: deleted.
settings = {"seconds": 0.0, "groups in use until": 0.0}

_derived_name = Instance.private_dns_name.fget
_activate = FakeLoadBalancer.activate
_state = Route.state.fget
_ranges = Subnet.ipv6_cidr_block_association_set.fget


def _name(self: Any) -> Any:
    return getattr(self, "ccm_name", None) or _derived_name(self)


def _become_active(self: Any) -> None:
    self.ccm_since = getattr(self, "ccm_since", time.monotonic())
    if self.state != "failed" and time.monotonic() - self.ccm_since >= settings["seconds"]:
        _activate(self)


def _route_state(self: Any) -> str:
    gone = self.instance is not None and self.instance.state in ("terminated", "shutting-down")
    return "blackhole" if gone else str(_state(self))


def _ipv6_ranges(self: Any) -> list[dict[str, Any]]:
    """Return the IPv6 ranges of a subnet, each with the state `associated`. moto nests the state one level too deep."""
    return [{**each, "ipv6CidrBlockState": {"state": "associated"}} for each in _ranges(self)]


Instance.private_dns_name = property(_name)
FakeLoadBalancer.activate = _become_active
Route.state = property(_route_state)
Subnet.ipv6_cidr_block_association_set = property(_ipv6_ranges)


def _also(kind: type, change: Callable[[Any], None]) -> None:
    """Call `change` with each object of this kind after it was created."""
    create = kind.__init__

    def create_and_change(self: Any, *arguments: Any, **more: Any) -> None:
        create(self, *arguments, **more)
        change(self)

    kind.__init__ = create_and_change


def _complete(balancer: Any) -> None:
    """Add to a load balancer what moto leaves out. The host name matters because cloud-provider-aws recognises the type
    of a load balancer by the end of that name."""
    balancer.attrs["access_logs.s3.enabled"] = "false"
    if balancer.type == "network":
        balancer.dns_name = f"{balancer.name}-{balancer.arn.rpartition('/')[2]}.elb.{REGION}.amazonaws.com"


def _forget_policy(listener: Any) -> None:
    if listener.protocol not in ("TLS", "HTTPS"):
        listener.ssl_policy = None


def _add_attributes(group: Any) -> None:
    if group.protocol in ("TCP", "TLS", "UDP"):
        group.attributes |= {"preserve_client_ip.enabled": "true", "proxy_protocol_v2.enabled": "false"}


def _complete_classic(balancer: Any) -> None:
    balancer.health_check = FakeHealthCheck("5", "10", "2", "30", f"TCP:{balancer.listeners[0].instance_port}")
    balancer.attributes["connection_draining"]["timeout"] = 300
    prefix = "internal-" if balancer.scheme == "internal" else ""
    balancer.dns_name = f"{prefix}{balancer.name}-1234567890.{REGION}.elb.amazonaws.com"


_also(FakeLoadBalancer, _complete)
_also(FakeListener, _forget_policy)
_also(FakeTargetGroup, _add_attributes)
_also(ClassicBalancer, _complete_classic)

_modify_listener = ELBv2Backend.modify_listener


def _modify(
    self: Any,
    arn: str,
    port: Any = None,
    protocol: Any = None,
    policy: Any = None,
    certs: Any = None,
    actions: Any = None,
) -> Any:
    """Change a listener. Unlike moto, which accepts TLS only for a new listener, also accept a change to TLS."""
    found = _modify_listener(self, arn, port, None if protocol == "TLS" else protocol, policy, certs, actions)
    found.protocol = protocol or found.protocol
    if protocol == "TLS" and certs:
        found.certificates = [each["CertificateArn"] for each in certs]
    _forget_policy(found)
    return found


ELBv2Backend.modify_listener = _modify

_create_group = ELBv2Backend.create_target_group
_add_tags = ELBV2Response.add_tags
_describe_groups = ELBv2Backend.describe_target_groups


def _describe_used_groups(self: Any, *arguments: Any, **more: Any) -> Any:
    """Describe target groups with the load balancers whose listeners use them now. moto adds a load balancer to a group
    with a listener, but does not remove it with the listener. Deleted load balancers stay as moto has them."""
    for group in self.target_groups.values():
        gone = [each for each in group.load_balancer_arns if each not in self.load_balancers]
        group.load_balancer_arns = gone + [
            arn for arn, each in self.load_balancers.items() if group.arn in _groups_of(self, each)
        ]
    return _describe_groups(self, *arguments, **more)


def _groups_of(backend: Any, balancer: Any) -> set[str]:
    return {
        arn
        for listener in balancer.listeners.values()
        for action in listener.default_actions
        if action.type == "forward"
        for arn in backend._get_target_group_arns_from(action_data=action.data)
    }


def _create_or_return_group(self: Any, name: str, **asked: Any) -> Any:
    """Create a target group, or return the existing one of the same name and settings, as AWS does."""
    for each in self.target_groups.values():
        has = (each.protocol, int(each.port), each.vpc_id, str(each.health_check_port), each.health_check_path)
        wants = (asked["protocol"], int(asked["port"]), asked["vpc_id"], str(asked["healthcheck_port"]))
        if each.name == name and has == (*wants, asked["healthcheck_path"]):
            return each
    return _create_group(self, name, **asked)


def _tag_one_resource(self: Any) -> ActionResult:
    if len(self._get_param("ResourceArns", [])) != 1:
        raise ValidationError("Only one resource can be tagged at a time")
    return _add_tags(self)


ELBv2Backend.describe_target_groups = _describe_used_groups
ELBv2Backend.create_target_group = _create_or_return_group
ELBV2Response.add_tags = _tag_one_resource


# Classic Load Balancers: moto does not store the instances' protocol, the type of a policy, or node ports that are
# added later. It deletes only one listener in a call, and answers with a server error if a load balancer is missing.


class InvalidInstance(ELBClientError):
    code = "InvalidInstance"
    message = "Could not find EC2 instance"


def _is_terminated(id: str) -> bool:
    return ec2_backends[DEFAULT_ACCOUNT_ID][REGION].get_instance(id).state == "terminated"


def _instances(change: str) -> Callable[[Any], ActionResult]:
    def answer(self: Any) -> ActionResult:
        asked = [each["InstanceId"] for each in self._get_param("Instances", [])]
        if any(_is_terminated(each) for each in asked):
            raise InvalidInstance
        balancer = self.elb_backend.get_load_balancer(self._get_param("LoadBalancerName"))
        kept = [each for each in balancer.instance_sparse_ids if each not in asked]
        balancer.instance_sparse_ids = kept + (asked if change == "register" else [])
        return ActionResult({"Instances": balancer.instances})

    return answer


def _of_a_port(self: ELBResponse, port: dict[str, Any]) -> None:
    """Complete the listener that moto made from a request."""
    balancer = self.elb_backend.get_load_balancer(self._get_param("LoadBalancerName"))
    for each in balancer.listeners:
        if int(each.load_balancer_port) == int(port["LoadBalancerPort"]):
            each.ccm_instance_protocol = (port.get("InstanceProtocol") or port["Protocol"]).upper()
    if not any(int(each.instance_port) == int(port["InstancePort"]) for each in balancer.backends):
        balancer.backends.append(FakeBackend(port["InstancePort"]))


def _and_its_ports(answer: Callable[[Any], ActionResult]) -> Callable[[Any], ActionResult]:
    def answer_and_complete(self: Any) -> ActionResult:
        found = answer(self)
        for port in self._get_param("Listeners", []):
            _of_a_port(self, port)
        return found

    return answer_and_complete


def _delete_listeners(self: Any, name: str, ports: list[int]) -> Any:
    balancer = self.get_load_balancer(name)
    balancer.listeners = [each for each in balancer.listeners if int(each.load_balancer_port) not in ports]
    return balancer


def _get_classic(self: Any, name: str) -> Any:
    if name not in self.load_balancers:
        raise LoadBalancerNotFoundError(name)
    return _without_terminated(self.load_balancers[name])


def _without_terminated(balancer: Any) -> Any:
    balancer.instance_sparse_ids = [each for each in balancer.instance_sparse_ids if not _is_terminated(each)]
    return balancer


_describe_classic = ELBBackend.describe_load_balancers


def _add_tag(self: Any, key: str, value: str) -> None:
    """Add a tag without moto's limit, which is older than that of AWS."""
    self.tags[key] = value


_delete_group = SecurityGroupBackend._delete_security_group


def _delete_unused_group(self: Any, vpc: Any, id: str) -> None:
    """Delete a security group, but refuse one that a Classic Load Balancer or a rule uses, as AWS does. After the
    command `hold groups`, refuse all of them for a while."""
    balancers = elb_backends[DEFAULT_ACCOUNT_ID][REGION].load_balancers.values()
    rules = [rule for groups in self.groups.values() for each in groups.values() for rule in each.ingress_rules]
    is_used = any(id in each.security_groups for each in balancers) or any(
        (rule.source_group or {}).get("GroupId") == id for rule in rules
    )
    if is_used or time.monotonic() < settings["groups in use until"]:
        raise DependencyViolationError(f"resource {id} has a dependent object")
    _delete_group(self, vpc, id)


_verify_rules = SecurityGroupBackend._verify_group_will_respect_rule_count_limit
#: The account's quota of rules in a security group. moto has AWS's default; AWS raises it on request, to at most this.
RULES, DEFAULT_RULES = 1000, 60


def _verify_quota(self: Any, group: Any, count: int, *args: Any, **options: Any) -> None:
    _verify_rules(self, group, count - (RULES - DEFAULT_RULES), *args, **options)


ELBResponse.register_instances_with_load_balancer = _instances("register")
ELBResponse.deregister_instances_from_load_balancer = _instances("deregister")
ELBResponse.create_load_balancer = _and_its_ports(ELBResponse.create_load_balancer)
ELBResponse.create_load_balancer_listeners = _and_its_ports(ELBResponse.create_load_balancer_listeners)
ELBBackend.delete_load_balancer_listeners = _delete_listeners
ELBBackend.get_load_balancer = _get_classic
ELBBackend.describe_load_balancers = lambda self, names: [
    _without_terminated(each) for each in _describe_classic(self, names)
]
ClassicBalancer.add_tag = _add_tag
ClassicListener.instance_protocol = property(lambda self: getattr(self, "ccm_instance_protocol", self.protocol))
SecurityGroupBackend._delete_security_group = _delete_unused_group
SecurityGroupBackend._verify_group_will_respect_rule_count_limit = _verify_quota
#: For instances of most types, AWS answers with an empty list, too.
EC2Response.describe_instance_topology = lambda self: ActionResult({"Instances": []})


def control(command: dict[str, Any]) -> dict[str, Any]:
    ec2, elb = ec2_backends[DEFAULT_ACCOUNT_ID][REGION], elbv2_backends[DEFAULT_ACCOUNT_ID][REGION]
    match command["do"]:
        case "name":
            ec2.get_instance(command["instance"]).ccm_name = command["name"]
        case "addresses":
            _set_interfaces(ec2.get_instance(command["instance"]), command["interfaces"])
        case "slow":
            settings["seconds"] = command["seconds"]
        case "hold groups":
            settings["groups in use until"] = time.monotonic() + command["seconds"]
        case "fail":
            for balancer in elb.load_balancers.values():
                if balancer.name == command["name"]:
                    balancer.state = "failed"
    return {}


def _set_interfaces(instance: Any, interfaces: list[dict[str, Any]]) -> None:
    """Set IPv6 addresses and further private addresses of the interfaces, by their index."""
    for each in interfaces:
        nic = instance.nics[each["index"]]
        nic.ipv6_addresses = list(each.get("ipv6", ()))
        for address in each.get("more", ()):
            nic.private_ip_addresses.append({"Primary": False, "PrivateIpAddress": address})


class QuietHandler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *args: Any) -> None:
        """Log nothing: only moto's own tests read this log. Our tests read the proxy's."""


if __name__ == "__main__":
    moto = DomainDispatcherApplication(create_backend_app)

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"] != "/ccm-control":
            return moto(environ, start_response)
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        answer = json.dumps(control(json.loads(body))).encode()
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))])
        return [answer]

    port, *address = sys.argv[1:]
    run_simple(*(address or ["127.0.0.1"]), int(port), application, threaded=True, request_handler=QuietHandler)
