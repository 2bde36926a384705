"""Which test runs each shell block of the pages, and the stories that run those which no other test does.

A story is a shell script.  ``@0`` in it stands for its first block as the page has it, ``@1.2`` for the third command
of its second block.  What a block takes for granted, a table or a run, the script makes before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HIDDEN = {"build", "dist", "node_modules", "runs"}
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\S+\$ )?dpgt [a-z]", re.MULTILINE)

Block = tuple[str, str]
"""A page and the first command of the block."""


@dataclass(frozen=True)
class Story:
    """``swaps``: words of the blocks that are others here."""

    name: str
    blocks: tuple[Block, ...]
    script: str
    swaps: tuple[tuple[str, str], ...] = ()


README, OWN, TAP, AUDIT = "README.md", "docs/howto/own-data.md", "docs/howto/eavesdrop.md", "docs/howto/audit.md"
ALONE, RESULTS, EXPERIMENTS = "docs/explanation/alone.md", "docs/results.md", "docs/howto/experiments.md"
BUDGET, RESUME, WATCH = "docs/howto/budget.md", "docs/howto/resume.md", "docs/howto/watch.md"

RUN_FILE = "sed 's/^iterations = 200/iterations = 30/' examples/demo.toml"
TABLE = """
python - <<'END'
import random
draw = random.Random(1)
rows = [(draw.gauss(3 * (i % 3), 1), draw.gauss(-2 * (i % 3), 1), "fir oak elm".split()[i % 3]) for i in range(300)]
for name, some in (("my.csv", rows), ("new.csv", rows[:20])):
    with open(name, "w") as file:
        file.write("height,girth,species\\n" + "".join(f"{a:.2f},{b:.2f},{kind}\\n" for a, b, kind in some))
END
"""
BEGINS = "until test -s runs/s2/metrics.csv; do sleep 0.1; done\n"

STORIES = (
    Story(
        "a table",
        (
            (README, "dpgt init --data my.csv --label species --agents 3 --epsilon 3 --bounds table"),
            (OWN, "dpgt init --data my.csv --label species --agents 3 --epsilon 3 --bounds table"),
            (OWN, "dpgt export runs/first --out model"),
            (WATCH, "dpgt status --watch --run runs/mine"),
            (WATCH, "dpgt launch run.toml --out runs/mine --http 8080"),
        ),
        TABLE + "@0\nrm -r run.toml runs model\n@1\nrm -r model\n@2\nrm -r runs\n@4\n@3\n",
        swaps=(("--http 8080", "--http 0"),),
    ),
    Story(
        "a tapped run",
        (
            (README, "dpgt launch run.toml --out runs/a --insecure --tap a.pcap"),
            (AUDIT, "dpgt eavesdrop audit capture.transcript --run out --ledger out --out out/adversary"),
            (BUDGET, "dpgt ledger agents/agent-1/state"),
            (BUDGET, "dpgt ledger agents/agent-1/state --what-if next.toml --node node.toml"),
        ),
        RUN_FILE
        + " > run.toml\n@0\ncp a.transcript capture.transcript\nln -s runs/a out\n@1\ncd runs/a\n@2\n"
        + "cp run.toml next.toml\ncp agents/agent-1/node.toml node.toml\n@3\n",
        swaps=(("agents/agent-1/state --what-if", '"$PWD"/agents/agent-1/state --what-if'),),
    ),
    Story(
        "a hidden run",
        ((TAP, "dpgt launch RUN.toml --out runs/hidden --tap hidden.pcap"),),
        RUN_FILE
        + ' > RUN.toml\nprintf \'[traffic]\\npad_to = "power-of-two"\\ncover = "all-pairs"\\n\' >> RUN.toml\n@0\n',
    ),
    Story(
        "spanning trees",
        ((TAP, "dpgt launch examples/spanning-trees.toml --out runs/a --insecure --tap a.pcap"),),
        "@0\n",
    ),
    Story(
        "an agent that attacks",
        (("docs/howto/active-adversaries.md", "dpgt simulate examples/robust.toml --out runs/robust"),),
        "@0\n",
    ),
    Story(
        "a study that is attacked",
        (
            (TAP, "dpgt launch examples/study-attack.toml --out runs/study --insecure --tap study.pcap"),
            (AUDIT, "dpgt eavesdrop audit capture.transcript --run out --noise --out out/adversary"),
        ),
        "@0\ncp study.transcript capture.transcript\nln -s runs/study out\n@1\n",
    ),
    Story(
        "two agents that look",
        (("docs/explanation/threat-model.md", "dpgt launch RUN.toml --out runs/a"),),
        RUN_FILE
        + ' > RUN.toml\nprintf \'[adversary]\\nsemi_honest = ["agent-1", "agent-3"]\\ntruth = true\\n\' '
        + ">> RUN.toml\n@0\n",
    ),
    Story(
        "alone",
        ((ALONE, "dpgt simulate RUN.toml --out DIR --alone"), (ALONE, "dpgt data alone NODE.toml")),
        RUN_FILE + " > RUN.toml\n@0.0\nrm -r DIR\n@0.1\ncd DIR/agents/agent-1\ncp node.toml NODE.toml\n@1\n",
    ),
    Story(
        "interrupted, paused, stopped",
        (
            (RESUME, "dpgt launch examples/paper-s2.toml --out runs/s2"),
            (RESUME, "dpgt status --run runs/s2"),
        ),
        f"@0.0 &\n{BEGINS}kill -TERM $!\nwait $! && exit 1\n@0.1 &\nsleep 2\n{BEGINS}"
        "until dpgt status --run runs/s2 | grep -q running; do sleep 0.2; done\n@1\nwait $! && exit 1\ntrue\n",
    ),
    Story(
        "planned without data",
        ((OWN, "dpgt plan run.toml --epsilon 1 --shape 8,3,1000 > private.toml"),),
        'sed \'s/^dataset = .*/dataset = "csv:own.csv"\\nlabel = "outcome"\\nclasses = 3/\' examples/demo.toml '
        "> run.toml\n"
        "@0\ndpgt check private.toml\n",
    ),
    Story(
        "a figure of the paper",
        (
            (EXPERIMENTS, "dpgt experiment fig3 --dataset digits --iterations 200 --seeds 2 --out runs/paper"),
            (EXPERIMENTS, "dpgt experiment status runs/paper"),
        ),
        "@0\n@1\n",
    ),
    Story(
        "a study of membership",
        (
            (
                "docs/howto/study.md",
                "dpgt eavesdrop study examples/study-membership.toml --out runs/membership --grid 0.5,1,2",
            ),
        ),
        "@0\n",
        (("--grid 0.5,1,2", "--grid 1 --shadows 8"),),
    ),
    Story(
        "schemas and the counterexample",
        (
            ("docs/reference/configuration.md", "dpgt schema run > run.schema.json"),
            (AUDIT, "dpgt eavesdrop audit --preset counterexample"),
        ),
        '@0\npython -c \'import json; [json.load(open(f"{n}.schema.json")) for n in ("run", "node")]\'\n@1\n',
    ),
)

ELSEWHERE = {
    "docs/tutorial.md": "tests/test_docs.py::test_the_tutorial_runs_as_it_stands",
    "examples/two-owners/README.md": "tests/e2e/test_two_owners.py::test_the_page_s_commands_run_as_they_stand",
    "docs/howto/hosts.md": "tests/hosts/test_walkthrough.py",
}
"""Pages all of whose blocks another test runs."""

FIGURES = {RESULTS: "measurements: minutes to hours, and data sets that are fetched"}
"""Pages none of whose blocks are run, and why."""

_HOSTS = "needs several hosts, or a second terminal; tests/hosts and tests/e2e/test_two_owners.py run the same"
_DATA = "needs a data set that is fetched, and minutes to hours"
NOT_RUN: dict[Block, str] = {
    (README, "dpgt pki init run.toml --out hosts --host coordinator=10.77.0.1:7700 --host agent-1=10.77.0.1:7701 \\"):
        _HOSTS,
    ("docs/howto/certificates.md", "trusted$ dpgt pki init run.toml --out hosts --keys coordinator --host "
     "coordinator=c.example --host agent-1=a.example ..."): _HOSTS,
    ("deploy/kubernetes/README.md", "dpgt pki init deploy/run.toml --out hosts --host coordinator=coordinator --host "
     "agent-1=agent-1 --host agent-2=agent-2 \\"): "needs a cluster; tests/deploy reads it",
    (WATCH, "dpgt status --watch --coordinator coordinator.lab.example:7700 --tls operator"): _HOSTS,
    (WATCH, "dpgt node --config NODE.toml --log-format json"): _HOSTS,
    (WATCH, "dpgt coordinator --config run.toml --listen 0.0.0.0:7700 --out runs/mine --tls coordinator --metrics "
     "9400"): _HOSTS,
    (OWN, "dpgt export state --run run.toml --out model"): _HOSTS,
    (OWN, "dpgt export agent-1/state --run agent-1/run.toml --data agent-1/own.csv --out model"): _HOSTS,
    (TAP, "dpgt eavesdrop decode a.pcap [b.pcap ...] --out a.transcript [--run RUN.toml|DIR] [--keys KEYLOG] \\"):
        "a synopsis",
    (TAP, "dpgt eavesdrop lab examples/spanning-trees.toml --out runs/lab \\"):
        "needs root; tests/hosts/test_eavesdrop_lab.py runs the lab",
    (TAP, "dpgt eavesdrop attack DIR/capture.pcap --attack traffic --run RUN.toml"):
        "needs a capture of the lab; tests/hosts/test_eavesdrop_lab.py has one",
    (TAP, "dpgt eavesdrop sidecar --tls agent-1 --keylog agent-1.keys --serve 192.0.2.1:7100=127.0.0.1:7100 \\"):
        _HOSTS,
    (EXPERIMENTS, "dpgt experiment ours --dataset mnist --agents 5 --partition iid --epsilon 1 --budget 4 --out "
     "runs/ours"): _DATA,
    ("docs/howto/own-model.md", "dpgt data fetch mnist"): _DATA,
    ("docs/howto/own-model.md", "dpgt plan net.toml --epsilon 8 --keep-steps > run.toml"):
        "needs torch; tests/torch/test_torch_page.py runs it",
}  # fmt: skip
"""Why a block is not run; tests/test_docs.py parses its commands all the same."""


def pages() -> Iterator[tuple[str, str]]:
    """Every page by its path from the root, with its text."""
    for path in sorted(ROOT.rglob("*.md")):
        parts = path.relative_to(ROOT).parts
        if not any(part.startswith(".") or part in HIDDEN for part in parts):
            yield "/".join(parts), path.read_text(encoding="utf-8")


def blocks(page: str, text: str) -> dict[Block, str]:
    """The shell blocks of a page that hold a command of ours, without their indent."""
    found: dict[Block, str] = {}
    for indent, language, body in FENCED.findall(text):
        bare = "".join(line.removeprefix(indent) for line in body.splitlines(keepends=True))
        if language in ("", "sh", "bash") and (first := COMMAND.search(bare)):
            found.setdefault((page, bare[first.start() :].splitlines()[0].split("  #")[0].rstrip()), bare)
    return found


def unplaced(page: str, text: str) -> list[Block]:
    """Blocks of a page that no story tells, no other test runs, and nobody says why not; or of which two do."""
    told = [block for story in STORIES for block in story.blocks]
    if page in ELSEWHERE or page in FIGURES:
        return [block for block in (*told, *NOT_RUN) if block[0] == page]
    return [block for block in blocks(page, text) if (told.count(block) + (block in NOT_RUN)) != 1]


def script(story: Story) -> str:
    """What is typed."""
    held = dict(item for page, text in pages() for item in blocks(page, text).items())

    def body(match: re.Match[str]) -> str:
        text = held[story.blocks[int(match[1])]]
        return text if match[2] is None else text.replace("\\\n", " ").splitlines()[int(match[2])]

    made = re.sub(r"@(\d)(?:\.(\d))?", body, story.script)
    for word, other in story.swaps:
        assert word in made, word
        made = made.replace(word, other)
    return made
