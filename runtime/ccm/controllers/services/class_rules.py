# SPDX-License-Identifier: Apache-2.0
"""Decide which Services of type LoadBalancer are ours, by their class. No I/O.

Without a declaration, our Services are those without a class, as in upstream. If classes are declared
(`--load-balancer-class`, `--default-load-balancer-provider`), an administrator has divided the Services among
controllers. Those of other classes that have no load balancer of ours are left alone in every state, even while they
are being deleted, because all controllers use the same finalizer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from ccm.engine.objects import Service


class ServedClasses(msgspec.Struct, frozen=True):
    """The Services that are ours, by their class. `names`: the classes that are ours. `without_class`: whether Services
    without a class are ours. `are_shared`: whether another cloud of this process may serve those that are not ours."""

    names: frozenset[str] = frozenset()
    without_class: bool = True
    are_shared: bool = False

    @property
    def are_declared(self) -> bool:
        return bool(self.names) or not self.without_class or self.are_shared

    def include(self, service: Service) -> bool:
        """Return whether the Service is of type LoadBalancer, and ours by its class."""
        name = service.spec.load_balancer_class
        return service.spec.type == "LoadBalancer" and (name in self.names if name else self.without_class)

    def exclude(self, service: Service) -> bool:
        """Return whether the Service is of type LoadBalancer, and belongs to another controller by its class."""
        return service.spec.type == "LoadBalancer" and not self.include(service)

    def leave_alone(self, service: Service) -> bool:
        """Return whether nothing of the Service concerns us, even if it has our finalizer."""
        return self.are_declared and self.exclude(service)

    def __str__(self) -> str:
        """Return which Services these are, for messages: "without a class, or of class a or b"."""
        named = f"of class {' or '.join(sorted(self.names))}" if self.names else ""
        return ", or ".join(filter(None, ["without a class" if self.without_class else "", named]))


#: The Services that are ours if no flag sets classes.
UNDECLARED = ServedClasses()


def together(parts: Iterable[ServedClasses]) -> ServedClasses:
    """Return the classes that any of several clouds serves."""
    every = list(parts)
    names = frozenset(name for each in every for name in each.names)
    return ServedClasses(names, any(each.without_class for each in every), any(each.are_shared for each in every))


def is_handed_over(service: Service, classes: ServedClasses, former: Collection[str]) -> bool:
    """Return whether the Service was ours, and is not any more although the Service itself did not change.

    `former`: the classes that leaders served. The load balancer of such a Service stays, because a flag that somebody
    removed must not delete it. If the Service itself got another class, its load balancer is deleted, except where
    another cloud of this process may serve that class. Two clouds with one project see the load balancers of both.
    """
    name = service.spec.load_balancer_class
    is_excluded = classes.exclude(service) and service.metadata.deletion_timestamp is None
    return is_excluded and (not name or name in former or classes.are_shared)


def recalled(note: str | None) -> frozenset[str]:
    """Return the classes that a note names. `note`: what `noted` returned, None if there is no note."""
    return frozenset(filter(None, (note or "").split(",")))


def noted(former: Collection[str], classes: ServedClasses) -> str | None:
    """Return the note to write: all classes that leaders have served; None if the present note names all of them.
    `former`: the classes in the present note. `classes`: those that this leader serves."""
    return None if classes.names <= frozenset(former) else ",".join(sorted({*former, *classes.names}))


def why_kept(service: Service, balancer: str, classes: ServedClasses) -> str:
    """Return the message about a Service that was handed over. `balancer`: the name of its load balancer."""
    name = service.spec.load_balancer_class
    whose = f"of class {name}" if name else "without a class"
    return (
        f"Services {whose} are no longer served by this controller, which serves those {classes}. Load balancer "
        f"{balancer} stays, is not updated any more, and is deleted with the Service. To serve the Service again, "
        + (f"set --load-balancer-class={name}" if name else "unset --default-load-balancer-provider")
    )
