"""``PRIVACY.md``: privacy.json in words, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dpgt_node import figures
from dpgt_node.accounts.towards import ASSUMPTIONS, Towards
from dpgt_node.privacy.accountants.lemma5 import LEMMA5
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, APPROXIMATE
from dpgt_node.record import epsilons
from dpgt_node.report.publishing.all_runs import all_runs, more_than_this_run

NO_NOISE: Final = "the noise was switched off"
"""Why there is no guarantee, then no accountant either."""


def statement(data: Mapping[str, Any]) -> str:
    """``PRIVACY.md`` from ``export.document``, without the hash of ``privacy.json`` itself."""
    run, release = data["run"], data["release"]
    lines = [f"# Privacy of this model ({run['name']})", ""]
    if data["guarantee"]:
        lines += [_claim(data), ""]
    else:
        lines += [f"**No guarantee: {data['no_guarantee_because']}.**", ""]
    if data["delta_warning"] not in (None, data["no_guarantee_because"]):
        lines += [f"**WARNING: {data['delta_warning']}.**", ""]
    lines += [f"Model: {release['what']}", ""]
    if data["no_guarantee_because"] == NO_NOISE:
        lines += [f"Mechanism {run['mechanism']}, {epsilons.rounds_words(data)}, without noise.", "", *all_runs(data)]
    else:
        lines += _accounted(data)
    lines += [*(f"- {note}" for note in data["notes"]), *([""] if data["notes"] else [])]
    lines += [
        f"Run {run['run_id']}, run file SHA-256 {run['run_sha256']} as its agents knew it. The one here does not say "
        "where data lie.",
    ]
    lines += [f"{name}: SHA-256 {digest}" for name, digest in data["files"].items()]
    return "\n".join(lines) + "\n"


def _accounted(data: Mapping[str, Any]) -> list[str]:
    """What every accountant says of each agent, and what that rests on."""
    run = data["run"]
    valued = {name for agent in data["agents"] for name, value in agent["epsilon"].items() if value is not None}
    listed = [name for name, one in ACCOUNTANTS.items() if name in valued or not one.aside]
    lines = [
        f"Adjacent data sets: {data['adjacency']}; {_enforcement(data)}. Mechanism {run['mechanism']}, "
        f"{epsilons.noise_words(data['law'], run['mechanism'])}, {epsilons.released_words(data)}.",
        "",
        "| agent | data set | " + " | ".join(listed) + " |",
        "|---|---|" + "---|" * len(listed),
    ]
    for agent in data["agents"]:
        cells = " | ".join(_cell(agent["epsilon"][name], agent["strength"][name]) for name in listed)
        lines.append(f"| {agent['name']} | {agent['data_id'] or '-'} | {cells} |")
    return [
        *lines,
        "",
        *_towards(data),
        *all_runs(data),
        f"lemma5 is {LEMMA5.label}: it is not a guarantee. {epsilons.no_guarantee_either(listed)}zcdp and gdp hold "
        "with the delta above, the others are pure; `-`: no value.",
        "",
    ]


def _towards(data: Mapping[str, Any]) -> list[str]:
    """The table of epsilon towards any t of the others, with what it rests on; nothing where no noise is shared."""
    found = data.get("towards")
    if found is None:
        return []
    epsilons = tuple(tuple(map(float, row)) for row in found["epsilon"])
    words = tuple(tuple(map(str, row)) for row in found["strength"])
    t = tuple(map(int, found["colluding"]))
    whom = Towards(str(found["accountant"]), float(found["delta"]), t, epsilons, words)
    rows = (
        f"| {agent['name']} | {' | '.join(_cell(*pair) for pair in row)} |"
        for agent, row in zip(data["agents"], whom.rows, strict=True)
    )
    return [
        f"{whom.title}:",
        "",
        f"| agent | {' | '.join(whom.heads)} |",
        "|---|" + "---|" * len(whom.heads),
        *rows,
        "",
        whom.rests_on,
        "",
        *(f"- {text}" for text in ASSUMPTIONS),
        "",
    ]


def _claim(data: Mapping[str, Any]) -> str:
    headline, delta = data["headline"], data["delta"]
    worst = max(agent["epsilon"][headline] for agent in data["agents"])
    alone = f"{data['agents'][0]['name']} (what the others' cost is theirs to say)"
    whose = "every agent" if len(data["agents"]) > 1 else alone
    kind = f"delta {delta:g}" if headline in APPROXIMATE else "pure"
    spent = f"epsilon {figures.epsilon(worst)} ({data['strength']}), {kind}"
    claim = f"ifferential privacy for one replaced sample of {whose}: {spent}"
    # A declared C is whoever wrote the run file saying so: the claim must not be shorter than its condition.
    believed = not data["enforced"] and data["C"] is not None
    claim = (f"Only if no gradient exceeds the declared C = {data['C']:g}: d" if believed else "D") + claim
    return f"**{claim} (accountant {headline}).**{more_than_this_run(data)}"


def _enforcement(data: Mapping[str, Any]) -> str:
    if data["enforced"]:
        return "enforced: every per-sample gradient is clipped"
    return "no C: every epsilon is null" if data["C"] is None else "declared, not enforced"


def _cell(value: float | str | None, word: str) -> str:
    return "-" if value is None else f"{value if isinstance(value, str) else figures.epsilon(value)} ({word})"
