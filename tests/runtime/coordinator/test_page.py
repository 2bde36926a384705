"""The live page: what it is told, how tables are tailed, and how it looks to a browser."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpgt_node.runtime.coordinator import page as page_module
from dpgt_node.runtime.coordinator import watchers
from dpgt_node.runtime.coordinator.page import LivePage, piece
from dpgt_node.runtime.watching.httpd import Refused
from dpgt_node.runtime.watching.sites import HTTP, Sites
from tests.runtime.cluster import cluster, make_run
from tests.runtime.coordinator.browser import browser
from tests.runtime.coordinator.pages import many


@pytest.mark.parametrize("limit", [1, 7, 11, 1000])
def test_pieces_of_a_table_are_the_table(tmp_path: Path, limit: int) -> None:
    path, lines = tmp_path / "t.csv", [f"{'x' * (i % 7)},{i}" for i in range(40)]
    path.write_text("\n".join(lines) + "\ntorn")
    whole, at = b"", 0
    while True:
        text, after, size = piece(path, at, max(limit, 11))
        whole += text
        if after == at:
            break
        at = after
    assert whole.decode().splitlines() == lines and size == path.stat().st_size
    with path.open("a") as file:
        file.write(" no more\n")
    assert piece(path, at, 100)[0] == b"torn no more\n"
    for start in range(size):  # from anywhere: whole lines only
        assert set(piece(path, start, 1000)[0].decode().splitlines()) <= {*lines, "torn no more"}
    assert piece(path, 10_000, 10) == (b"", size + 9, size + 9) and piece(tmp_path / "none", 5, 10) == (b"", 0, 0)


async def test_the_state_is_made_once_for_any_number_of_pages_and_offsets_are_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = many(4, 20, tmp_path, late=(1,))
    made.recorder = SimpleNamespace(spent=lambda name, k: {"agent-1": 0.25, "agent-2": 0.5}.get(name, 1.0) * k)  # type: ignore[assignment]
    pages = LivePage(made.run, made, tmp_path).pages()  # type: ignore[arg-type]
    first = json.loads((await pages["/state.json"]({})).body)
    made.k = 21
    assert json.loads((await pages["/state.json"]({})).body) == first
    assert first["agents"][1]["missing_s"] == 12.5 and first["gives_up_s"] == 47.5 and len(first["events"]) == 3
    assert [agent["epsilon_of_run"] for agent in first["agents"]] == [100.0, 200.0, 400.0, 400.0], "of K = 400"
    assert not [key for key in str(first).split("'")[1::2] if "loss" in key or "norm" in key], (
        "nothing of training data"
    )
    graph = json.loads((await pages["/graph.json"]({})).body)
    assert graph["R"] == sorted(graph["R"], key=lambda e: (e[1], e[0])) and [0, 1] in graph["R"] and graph["study"]
    monkeypatch.setattr(page_module, "PIECE_BYTES", 100)
    assert 50 < len((await pages["/metrics.csv"]({"limit": "100000"})).body) <= 100, "one answer is never large"
    for text in ("-1", "x", "9" * 20, "", "1.5", "٣"):
        with pytest.raises(Refused):
            await pages["/metrics.csv"]({"from": text})
    assert set(pages) == {"/", "/live.js", "/live.css", "/report.css", "/icon.svg", "/graph.json", "/state.json",
                          "/metrics.csv", "/phases.csv"}  # fmt: skip


async def test_an_open_page_is_told_the_end_and_nobody_waits_for_one_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchers, "LATE_S", 60.0)
    monkeypatch.setattr(watchers, "FAREWELL_S", 60.0)
    made, leave = many(3, 20, tmp_path), asyncio.Event()
    live = LivePage(made.run, made, tmp_path)  # type: ignore[arg-type]
    state = live.pages()["/state.json"]
    async with asyncio.timeout(30):
        await made.watchers.farewell(leave, finished=True)
        await live.farewell(leave)
        for page in ("a", "b", "x" * 99):  # the last is nobody's name, and is not waited for
            await state({"page": page, "every": "1000"})
        made.state, made.k = "finished", 400
        leaving = asyncio.ensure_future(made.watchers.farewell(leave, finished=True))
        for page in ("a", "b"):
            await asyncio.sleep(page_module.SAME_S)
            assert not leaving.done()
            told = json.loads((await state({"page": page})).body)
            assert (told["k"], told["state"], told["over"]) == (400, "finished", True)
        await leaving
        await live.farewell(leave)


async def test_a_page_that_is_opened_when_a_short_run_is_over_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "OPEN_S", 600.0)
    made, leave = many(3, 20, tmp_path), asyncio.Event()
    made.state, made.k = "finished", 400
    live = LivePage(made.run, made, tmp_path)  # type: ignore[arg-type]
    async with asyncio.timeout(30):
        waiting = asyncio.ensure_future(live.latecomer(leave))
        await live.pages()["/state.json"]({})  # a program's, no page
        await asyncio.sleep(0)
        assert not waiting.done()
        assert json.loads((await live.pages()["/state.json"]({"page": "a"})).body)["over"]
        await waiting
        await live.farewell(leave)
        again = LivePage(made.run, made, tmp_path)  # type: ignore[arg-type]
        waiting = asyncio.ensure_future(again.latecomer(leave))
        leave.set()  # a signal
        await waiting
        monkeypatch.setattr(page_module, "OPEN_S", 0.0)
        await LivePage(made.run, made, tmp_path).latecomer(asyncio.Event())  # type: ignore[arg-type]


async def test_a_real_run_s_page_and_its_address(tmp_path: Path) -> None:
    sites = Sites({HTTP: "127.0.0.1:0"})
    async with cluster(tmp_path, make_run(1_000_000), sites=sites) as c:
        c.start_all()
        await c.reached(20)
        assert json.loads((c.out / "coordinator.json").read_text())["http"] == sites.urls()["http"]
        pages = sites._servers[HTTP].pages
        state = json.loads((await pages["/state.json"]({})).body)
        assert state["state"] == "running" and [a["name"] for a in state["agents"]] == list(c.run.graph.agents)
        assert (await pages["/metrics.csv"]({})).body.startswith(b"agent,k,")
        c.stop.set()
        assert c.serving is not None
        await asyncio.gather(c.serving, *c.agents.values(), return_exceptions=True)
    assert not sites._servers[HTTP]._open


@pytest.mark.browser
async def test_a_hundred_agents_in_a_browser_at_both_widths_light_and_dark_and_past_a_restart(tmp_path: Path) -> None:
    first, again = many(100, 120, tmp_path, late=(3, 40)), many(100, 250, tmp_path)
    sites = Sites({HTTP: "127.0.0.1:0"})
    await sites.open()
    sites.add(HTTP, LivePage(first.run, first, tmp_path).pages(), "/")  # type: ignore[arg-type]
    url = sites.urls()["http"]
    async with browser() as tab:
        for width, dark in ((1400, False), (400, True), (1400, True), (400, False)):
            await tab.open(url, width, dark=dark)
            await tab.until("!!document.querySelector('#phasesOver svg') && !!document.querySelector('#graphC svg')")
            assert await tab.value("document.documentElement.scrollWidth") <= width, "cut off on the right"
            paper = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((a, b) => a + Number(b), 0)"
            assert (await tab.value(paper) < 384) == dark
        words = await tab.value("document.body.innerText")
        assert "Missing: agent-4 for 13 s, agent-41 for 13 s. The run ends in 48 s unless they come." in words
        assert "120 of 400" in words and "98 of 100" in words and "event <b>2</b> of agent-1" in words
        assert await tab.value("document.querySelectorAll('#graphC .node').length") == 100
        assert await tab.value("document.querySelectorAll('#graphC .node.late').length") == 2
        late = await tab.value("document.querySelector('#graphC .edge.late').getAttribute('d').match(/M/g).length")
        assert late == sum(len(agent.waits_for) for agent in first.stands().agents) > 0
        drawn = "document.querySelector('#curve-accuracy_test .line').getAttribute('d').match(/[ML]/g).length"
        assert await tab.value(drawn) == 26, "one point an evaluation"
        assert tab.said == []
        await sites.close()
        await tab.until("document.body.innerText.includes('No answer from the coordinator')")
        back = Sites({HTTP: url.removeprefix("http://").rstrip("/")})
        await back.open()
        back.add(HTTP, LivePage(again.run, again, tmp_path).pages(), "/")  # type: ignore[arg-type]
        await tab.until("document.body.innerText.includes('250 of 400')")
        assert await tab.value("document.body.innerText.includes('No answer')") is False
        again.state, again.k, again.late = "finished", 400, (1,)
        await again.watchers.farewell(asyncio.Event(), finished=True)
        await back.close()
        await tab.until("document.body.innerText.includes('The run ended: finished at')")
        words = await tab.value("document.body.innerText")
        assert "round 400 of 400" in words and "No answer" not in words and "Missing" not in words
        await asyncio.sleep(2.5)  # it does not ask any more, and keeps what it knows
        assert await tab.value("document.body.innerText") == words
        assert await tab.value("document.querySelectorAll('.bad, .late:not(.swatch)').length") == 0
        await back.close()
