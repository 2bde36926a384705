"""All-gather of torch.distributed (gloo) among n processes: what training without privacy would do in a round.

No noise, no ledger, no TLS, no checks, float64.  ``python -m dpgt_node.bench.gloo JSON`` prints its rounds per second.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from dpgt_node.bench.children import ChildFailed, side_by_side

WARM = 20
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
"""Environment of the group; else gloo takes the interface that this host's name stands for."""


def measure(folder: Path, agents: int, rounds: int, dimension: int) -> dict[str, float]:
    """Of one group, whose processes find each other by a file in ``folder``.  ChildFailed: one did not finish."""
    common = {"folder": str(folder), "agents": agents, "rounds": rounds, "dimension": dimension}
    rate, *_ = side_by_side("gloo", [{**common, "rank": rank} for rank in range(agents)])
    return {"rounds_per_second": rate}


def gather(folder: Path, agents: int, rounds: int, dimension: int, rank: int) -> float:
    """Rounds per second of one process of the group."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=agents)
    mine = torch.full((dimension,), float(rank), dtype=torch.float64)
    everybodys = [torch.empty_like(mine) for _ in range(agents)]
    begin_s = 0.0
    for k in range(WARM + rounds):
        if k == WARM:
            begin_s = time.monotonic()
        distributed.all_gather(everybodys, mine)
    took_s = time.monotonic() - begin_s
    if [float(each[-1]) for each in everybodys] != [float(i) for i in range(agents)]:
        raise ChildFailed("a vector did not arrive")
    distributed.destroy_process_group()
    return rounds / took_s


def main(given: dict[str, Any]) -> Any:
    """The whole group, or with ``rank`` one process of it."""
    folder = Path(given.pop("folder"))
    return gather(folder, **given) if "rank" in given else measure(folder, **given)


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
