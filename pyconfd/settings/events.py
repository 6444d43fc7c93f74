"""``[events]``: whether refused objects are told so in the cluster."""

from dataclasses import dataclass
from typing import Annotated

from pyconfd.settings.kinds import Boolean, Seconds
from pyconfd.settings.setting import Setting


@dataclass(frozen=True, slots=True)
class EventSettings:
    """Kubernetes Events on objects that are refused, for who may look at the cluster and not at the balancer."""

    enabled: Annotated[
        bool, Setting("write a Kubernetes Event on each refused object; needs the right to create events", Boolean())
    ] = False
    every_s: Annotated[float, Setting("least time between two Events for the same cause", Seconds())] = 3600.0
