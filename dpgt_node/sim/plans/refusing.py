"""What speaks against a plan before anything is read or tried: the run file and what is asked for, alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpgt_node.accounts.planner import Target, route
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.hard import hard_failures
from dpgt_node.algo.methods import method_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import Privacy, RunConfig, SchemeS2
from dpgt_node.errors import ConfigError, Problem

_PROBE = SchemeS2(alpha=1e-9, beta=1e-9, gamma=1.0, p_m=1.0, samples="full")
"""Steps that every graph allows: what fails with them is no matter of steps."""


def refusals(
    run: RunConfig,
    target: Target,
    samples: Sequence[int | None] | None = None,
    *,
    keep_clip: bool = False,
    keep_steps: bool = False,
) -> tuple[Problem, ...]:
    """Every reason why nothing can be planned for ``run`` and ``target``; () where these two alone give none.

    ``samples``: D of every agent, None: not known yet.  ``keep_clip``, ``keep_steps``: as ``dpgt plan`` has them.
    """
    found = list(target.problems(run.n))
    routed, method = not found, method_of(run)
    if not (method.theorems and method.noisy):
        message = f"a plan sets steps and noise of Algorithm 1 (dpgt), not of {method.name}"
        return (*found, Problem("run file", "algorithm.method", message))
    if run.robust.on:
        message = "a plan reckons with linear mixing: leave [robust] out, plan, and put it back"
        found.append(Problem("run file", "robust", message))
    own = keep_steps and isinstance(run.scheme, SchemeS2)
    if keep_steps and not own:
        found.append(Problem("command line", "--keep-steps", 'needs scheme.kind = "S2" in the run file'))
    judged, D = run if own else replace(run, scheme=_PROBE), samples or (None,) * run.n
    failures = hard_failures(judged, Topology.from_config(run.graph), Schedule.from_config(judged), D)
    found.extend(Problem("run file", key, message) for key, message in failures)
    if routed:
        kept = keep_clip or keep_steps
        try:
            way = route(run if kept else replace(run, privacy=free(run.privacy)), target)
        except ConfigError as error:
            found.extend(error.problems)
        else:
            if keep_steps and says_what(run) and not way.accounted.once:
                option, who = "mechanism", way.mechanism
                if target.mechanism is None:  # the accountant's own
                    option, who = "accountant", f"{way.accountant} is for {way.mechanism}, which"
                message = f"{who} releases in every round, and the run file says otherwise"
                found.append(Problem(target.source, f"--{option}", message))
    return tuple(found)


def free(privacy: Privacy) -> Privacy:
    """Without a clip of its own; an L1 clip is one for every accountant."""
    return replace(privacy, clip_l1=1.0, clip_l2=None, C=None)


def says_what(run: RunConfig) -> bool:
    """Whether the run file says what is released: in which rounds, or that releases differ."""
    own = (run.noise.by_release, run.noise.decay, run.privacy.by_release, run.privacy.decay)
    return run.scheme.apart or run.scheme.first != "gradient" or any(own)
