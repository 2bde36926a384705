"""Online DSGD: the output form of sampled DSGD on samples that arrive one a round.

    x_{k+1} = (1 - alpha_k s_i) x_k + alpha_k sum_{j != i} w_ij (x_j + noise)_k - gamma_k g_k               (od,1)
    g_k = mean of the gradients of the first k+1 samples

A sample takes part in every gradient since it arrived, so it moves g_k by C/(k+1) for all k from then on, and no
sampling hides it.  The first sample pays most.  K < D.  Toys have no samples: there g_k is what the toy says.
"""

from __future__ import annotations

from dpgt_node.algo.methods.base import Demand, Method, Setting
from dpgt_node.algo.methods.derived import CONNECTED, LAZY, NEIGHBOURS, closure_couplings
from dpgt_node.algo.methods.states.forms import ReleasedForm, StateForm
from dpgt_node.algo.methods.states.pace import DecayOptions
from dpgt_node.privacy.mechanisms import RELEASED_STATE, STATE_NOISE


def _too_few(setting: Setting) -> tuple[str, ...]:
    held = zip(setting.topology.names, setting.samples, strict=True)
    K = setting.schedule.K
    return tuple(f"{name} (D = {D}, K = {K})" for name, D in held if D is not None and D <= K)


ONLINE_DSGD = Method(
    name="online-dsgd",
    title="decentralised SGD on samples that arrive one a round, noise on x",
    status="ours",
    source="Chen and Wang 2024, from the abstract; weights and exponents are ours",
    rules={STATE_NOISE.name: StateForm, RELEASED_STATE.name: ReleasedForm},
    sends=(NEIGHBOURS,),
    demands=(CONNECTED, LAZY, Demand("K < D, as a sample arrives every round", "algorithm.iterations", _too_few)),
    couplings=closure_couplings,
    options=DecayOptions,
    theorems=False,
)
