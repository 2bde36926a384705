"""The keys of [method] that make steps decay and batches grow; ``Schedule`` reads them."""

from __future__ import annotations

from typing import Annotated

from dpgt_node.config.declare.keys import Key
from dpgt_node.config.declare.kinds import Number
from dpgt_node.values import dataclass

_POWER = Number(at_least=0.0, at_most=64.0)


@dataclass(frozen=True, slots=True)
class DecayOptions:
    """alpha_k = alpha (k+1)^-power_alpha, gamma_k likewise; 0: constant steps."""

    power_alpha: Annotated[float, Key("alpha_k = alpha (k+1)^-power_alpha", _POWER)] = 0.0
    power_gamma: Annotated[float, Key("gamma_k = gamma (k+1)^-power_gamma", _POWER)] = 0.0


@dataclass(frozen=True, slots=True)
class SampledOptions(DecayOptions):
    """Two time scales, and m_k = floor(samples_factor k^samples_power) + 1."""

    samples_power: Annotated[
        float | None,
        Key(
            "m_k = floor(samples_factor k^samples_power) + 1 in place of the scheme's m", _POWER, absent="the scheme's"
        ),
    ] = None
    samples_factor: Annotated[float, Key("see samples_power", Number(above=0.0, at_most=1e9))] = 1.0


@dataclass(frozen=True, slots=True)
class TrackedOptions(DecayOptions):
    """The same with beta_k = beta (k+1)^-power_beta."""

    power_beta: Annotated[float, Key("beta_k = beta (k+1)^-power_beta", _POWER)] = 0.0
