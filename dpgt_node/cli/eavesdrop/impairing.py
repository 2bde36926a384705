"""``--impair`` of the lab: an adversarial network's schedule, link by link and second by second."""

from __future__ import annotations

import ipaddress
import math

from dpgt_node.adversary.taps.proxy import host_ip
from dpgt_node.adversary.taps.switch import Rule
from dpgt_node.cli.eavesdrop.tapped_launch import parse_links
from dpgt_node.config import RunConfig
from dpgt_node.errors import ConfigError

_OPTION = "--impair"
_LIMITS = {"loss": 1.0, "reorder": 1.0, "delay-ms": math.inf, "from": math.inf, "until": math.inf}


def parse_rule(text: str, run: RunConfig) -> Rule:
    """``A>B loss=1 from=2 until=5``: of a link of ``run``.  ConfigError for anything else."""
    link, *given = text.split() or [""]
    (chosen,) = parse_links(link.partition(",")[0], run, _OPTION)
    values: dict[str, float] = {}
    for one in given:
        key, _, value = one.partition("=")
        try:
            values[key] = float(value) if key in _LIMITS and key not in values else math.nan
        except ValueError:
            values[key] = math.nan
        if not 0.0 <= values[key] <= _LIMITS.get(key, 0.0) or math.isinf(values[key]):
            message = f"{one!r}: must be one of {', '.join(_LIMITS)}, each once, = a number >= 0, probabilities up to 1"
            raise ConfigError.one("command line", _OPTION, message)
    names = run.graph.agents
    ends = (host_ip(names.index(name) + 1) for name in (chosen.sender, chosen.receiver))
    source, target = (ipaddress.IPv4Address(ip).packed for ip in ends)
    return Rule(
        (source, target),
        values.get("delay-ms", 0.0),
        values.get("loss", 0.0),
        values.get("reorder", 0.0),
        values.get("from", 0.0),
        values.get("until", math.inf),
    )
