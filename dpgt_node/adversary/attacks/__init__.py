"""Attacks by name, each in one file; imported when they are asked for."""

from __future__ import annotations

ATTACKS: dict[str, str] = {
    "gradients": "dpgt_node.adversary.attacks.gradients:attack",
    "labels": "dpgt_node.adversary.attacks.labels:attack",
    "membership": "dpgt_node.adversary.attacks.membership:attack",
    "lira": "dpgt_node.adversary.attacks.shadowed:lira",
    "lira-model": "dpgt_node.adversary.attacks.shadowed:lira_model",
    "rmia": "dpgt_node.adversary.attacks.shadowed:rmia",
    "population": "dpgt_node.adversary.attacks.population:attack",
    "properties": "dpgt_node.adversary.attacks.properties:attack",
    "generator": "dpgt_node.adversary.attacks.generator:attack",
    "reuse": "dpgt_node.adversary.attacks.reuse:attack",
    "retries": "dpgt_node.adversary.attacks.retries:attack",
    "floats": "dpgt_node.adversary.attacks.floats:attack",
    "conduct": "dpgt_node.adversary.attacks.active.conduct:attack",
    "imprint": "dpgt_node.adversary.attacks.active.imprint:attack",
    "inversion": "dpgt_node.adversary.attacks.inversion:inversion",
    "traffic": "dpgt_node.adversary.decode.traffic:traffic",
}
"""``module:attribute`` of each :class:`~dpgt_node.adversary.attack.Attack`."""
