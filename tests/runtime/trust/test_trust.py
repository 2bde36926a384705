"""Who is believed, on real sockets: dates, uses, authorities, identities, revocation at both ends, renewal in a run."""

from __future__ import annotations

import asyncio
import datetime
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from dpgt_node.errors import PeerError, PeerLost, Untrusted
from dpgt_node.protocol.messages import Resume
from dpgt_node.runtime.launch.launcher import held_port
from dpgt_node.runtime.trust import credentials as credentials_module
from dpgt_node.runtime.trust import files, guard, pinned, probe
from dpgt_node.runtime.trust.certificates import target_name_override
from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, Security, agent_identity
from dpgt_node.runtime.trust.guard import Guard, Refusals
from dpgt_node.runtime.trust.pki import Registry
from dpgt_node.runtime.trust.tls import CertificateAuthority
from dpgt_node.wire import codec, services
from dpgt_node.wire.options import ping_timeout_s, server_options
from tests.runtime.agent.test_links import Link, Up
from tests.runtime.cluster import cluster, eventually, make_run
from tests.runtime.trust import parties as trust
from tests.runtime.trust.parties import enrol, minted, relay, say, serial, served_by, serving, talk
from tests.wire import vectors

LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials_module, "POLL_S", 0.02)
    monkeypatch.setattr(probe, "EXPLAIN_S", 30.0)  # on a loaded machine a cause may take its time
    monkeypatch.setattr(probe, "TIMEOUT_S", 30.0)


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority.create()


async def eventually_await(what: str, attempt: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not await attempt():
            await asyncio.sleep(0.02)


# --- a broken handshake gets its cause ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("expired", "expired on {end:%Y-%m-%d %H:%M:%S} UTC, 2 days ago (this host's clock says "),
        ("not yet valid", "is valid from {start:%Y-%m-%d %H:%M:%S} UTC on, in 3 h: is this host's clock right?"),
    ],
)
async def test_dates_are_named_at_both_ends(
    authority: CertificateAuthority, tmp_path: Path, kind: str, words: str
) -> None:
    start, end = trust.DATES[kind]
    words = words.format(start=start, end=end)
    good, bad = (minted(authority, tmp_path / dates, "agent-2", dates) for dates in ("good", kind))
    async with serving(bad.server_credentials()) as (echo, address):
        said = await talk(good, address)
        assert said.startswith(f"UNAVAILABLE: the certificate shown at {address} ") and words in said
        assert echo.heard == []
    async with serving(good.server_credentials()) as (echo, address):
        said = await talk(bad, address)
        assert f"{address} closes the connection where it judges this host's certificate, which " in said
        assert words in said
        assert await talk(good, address) == ""
        assert echo.heard == ["dpgt:agent:agent-2"]


async def test_another_authority_is_named_at_both_ends(authority: CertificateAuthority, tmp_path: Path) -> None:
    ours = minted(authority, tmp_path / "ours", "agent-2", "good")
    theirs = minted(CertificateAuthority.create(), tmp_path / "theirs", "agent-2", "good")
    async with serving(theirs.server_credentials()) as (echo, address):
        assert "was not issued by the authority trusted here" in await talk(ours, address)
        (tmp_path / "theirs" / "ca.pem").write_bytes(authority.cert_pem)  # as a client it now trusts our servers
        async with serving(ours.server_credentials()) as (_, honest):
            said = await talk(trust.as_if_good(theirs, tmp_path / "theirs"), honest)
        assert "closes the connection where it judges this host's certificate, serial " in said
        assert "trust the same authority" in said
    assert echo.heard == []


async def test_who_answers_as_another_is_named(authority: CertificateAuthority, tmp_path: Path) -> None:
    """An agent's certificate is not the pinned coordinator's, nor another agent's."""
    agent = minted(authority, tmp_path / "agent", "agent-2", "good")
    async with serving(agent.server_credentials()) as (echo, address):
        for identity in (COORDINATOR_IDENTITY, agent_identity("agent-3")):
            with pytest.raises(Untrusted, match=f"is dpgt:agent:agent-2's, not {identity}'s"):
                async with agent.dialler(identity)(address) as channel:
                    await say(services.exchange(channel, "-"))
    assert echo.heard == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), "is not allowed to serve"),
        (x509.BasicConstraints(ca=True, path_length=None), "is an authority's, not a process's"),
        (x509.SubjectAlternativeName([x509.DNSName("agent-2.agent.dpgt")]), "exactly one dpgt: identity"),
    ],
    ids=["extended key usage", "basic constraints", "no identity"],
)
async def test_a_certificate_for_other_uses_is_named(
    authority: CertificateAuthority, tmp_path: Path, change: x509.ExtensionType, words: str
) -> None:
    good = minted(authority, tmp_path / "good", "agent-1", "good")
    minted(authority, tmp_path / "bad", "agent-2", "good")
    bad = trust.resigned(authority, tmp_path / "bad", change)
    async with serving(bad.server_credentials()) as (_, address):
        with pytest.raises(PeerError, match=words):
            await probe.look(address, good.credentials, agent_identity("agent-2"))  # type: ignore[arg-type]


async def test_a_server_without_tls_and_nobody_at_all(authority: CertificateAuthority, tmp_path: Path) -> None:
    ours = minted(authority, tmp_path / "ours", "agent-2", "good")
    async with serving(None) as (_, address):
        assert "does not speak TLS as a node does" in await talk(ours, address)
    said = await talk(ours, address)
    assert said.startswith("UNAVAILABLE: ") and "certificate" not in said


# --- not for ever -----------------------------------------------------------------------------------------------------


async def test_a_link_without_trust_ends_and_says_its_cause_once(
    authority: CertificateAuthority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = minted(authority, tmp_path / "ours", "agent-1", "good")
    theirs = minted(CertificateAuthority.create(), tmp_path / "theirs", "agent-2", "good")

    async with serving(theirs.server_credentials()) as (_, address):
        dialler = ours.dialler(agent_identity("agent-2"))
        link = Link(open_channel=dialler, patience_s=1.0, peer="agent-2")
        link.dial(address)
        with pytest.raises(
            PeerLost, match=r"no trust between here and agent-2 for 1 s: .* not issued by the authority"
        ):
            async with asyncio.timeout(LIMIT_S):
                await link.ended
    assert caplog.text.count("(trying again)") == 1


async def test_an_agent_gives_a_coordinator_without_trust_up_and_names_the_cause(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    ours = minted(authority, tmp_path / "ours", "agent-1", "good")
    theirs = tmp_path / "theirs"
    authority.write_folder(theirs, COORDINATOR_IDENTITY, valid=trust.DATES["expired"])
    coordinator = trust.as_if_good(Security.from_folder(theirs), theirs)
    async with serving(coordinator.server_credentials()) as (_, address):
        dialler = ours.dialler(COORDINATOR_IDENTITY)

        with pytest.raises(PeerError, match=r"no coordinator at .* for 0\.2 s: the certificate shown .* expired on"):
            async with asyncio.timeout(LIMIT_S):
                await Up(address, [], first_s=0.2, then_s=0.2, open_channel=dialler).ended


# --- revocation: servers ----------------------------------------------------------------------------------------------


async def who_gets_in(folder: Path) -> dict[str, str]:
    """What a server with a revocation list says to agent-1, to agent-3 (revoked), and to agent-3 with a new one."""
    made = trust.registry(folder)
    server, one, three = (enrol(made, folder, name) for name in ("agent-2", "agent-1", "agent-3"))
    made.revoke([serial(three)])
    made.copy_list(folder / "agent-2")
    said = {}
    async with served_by(server) as (_, address):
        said["agent-1"] = await talk(one, address)
        said["revoked"] = await talk(three, address)
        for _ in range(4):
            assert await talk(three, address) == said["revoked"]
        made.issue(agent_identity("agent-3"), [], folder / "new", days=10)
        said["replaced"] = await talk(Security.from_folder(folder / "new"), address)
    return said


async def test_a_revoked_client_is_refused_and_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said = await who_gets_in(tmp_path)
    assert said.pop("revoked").startswith("PERMISSION_DENIED: this certificate is revoked (serial ")
    assert said == {"agent-1": "", "replaced": ""}
    assert caplog.text.count("refused dpgt:agent:agent-3 at ipv4:127.0.0.1:") == 1


async def test_a_server_that_does_not_look_at_the_list_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: the test above would fail."""
    monkeypatch.setattr(Guard, "_revoked", lambda *_: False)
    assert (await who_gets_in(tmp_path))["revoked"] == ""


async def test_a_call_is_cut_when_its_certificate_is_revoked(tmp_path: Path) -> None:
    made = trust.registry(tmp_path)
    server, one, three = (enrol(made, tmp_path, name) for name in ("agent-2", "agent-1", "agent-3"))
    async with served_by(server) as (_, address):
        pin = agent_identity("agent-2")
        async with one.opener(pin)(address) as first, three.opener(pin)(address) as second:
            stays, goes = services.exchange(first, "-"), services.exchange(second, "-")
            assert await say(stays) == await say(goes) == 2
            made.revoke([serial(three)])
            made.copy_list(tmp_path / "agent-2")
            with pytest.raises(PeerError, match="this certificate is revoked") as caught:
                async with asyncio.timeout(LIMIT_S):
                    await goes.read()
            assert caught.value.grpc_status == "PERMISSION_DENIED"
            assert await say(stays, 5) == 5


async def test_a_call_that_is_refused_cuts_the_others_of_that_certificate(tmp_path: Path) -> None:
    """No look at the files is due yet: what one call brought to light counts for all."""
    made = trust.registry(tmp_path)
    server, three = (enrol(made, tmp_path, name) for name in ("agent-2", "agent-3"))
    async with (
        serving(server.server_credentials(), server.guard) as (_, address),
        three.opener(agent_identity("agent-2"))(address) as channel,
    ):
        before = services.exchange(channel, "-")
        assert await say(before) == 2
        made.revoke([serial(three)])
        made.copy_list(tmp_path / "agent-2")
        for call in (services.exchange(channel, "-"), before):
            with pytest.raises(PeerError, match="this certificate is revoked"):
                async with asyncio.timeout(LIMIT_S):
                    await call.read()


# --- revocation: clients ----------------------------------------------------------------------------------------------


@asynccontextmanager  # type: ignore[arg-type]
async def stolen(folder: Path):  # type: ignore[no-untyped-def]
    """agent-2 was renewed because its key had been stolen; agent-1 knows.  Yields agent-1, agent-2, the thief."""
    made = trust.registry(folder)
    one, thief = (enrol(made, folder, name) for name in ("agent-1", "agent-2"))
    made.issue(agent_identity("agent-2"), [], folder / "renewed", days=10)
    made.revoke([serial(thief)])
    made.copy_list(folder / "agent-1")
    honest = Security.from_folder(folder / "renewed")
    async with serving(thief.server_credentials()) as bad, serving(honest.server_credentials()) as good:
        yield one, good, bad


async def test_a_revoked_server_is_refused_by_its_clients(tmp_path: Path) -> None:
    async with stolen(tmp_path) as (one, (_, good), (echo, bad)):
        assert "the certificate shown at" in (said := await talk(one, bad)) and "is revoked (serial " in said
        assert echo.heard == []
        assert await talk(one, good) == ""


async def test_a_thief_between_the_look_and_the_call_is_refused_in_the_handshake(tmp_path: Path) -> None:
    """The look reaches the honest server, gRPC's own connection the thief: its certificate lacks the pinned name."""
    async with stolen(tmp_path) as (one, (_, good), (echo, bad)):
        async with relay(good, bad, good) as between:
            assert (await talk(one, between)).startswith("UNAVAILABLE")
        assert echo.heard == []


async def test_a_client_that_pins_only_the_identity_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant of the test above: the thief hears agent-1."""
    monkeypatch.setattr(pinned, "pinned_name", lambda _: target_name_override(agent_identity("agent-2")))
    async with stolen(tmp_path) as (one, (_, good), (echo, bad)):
        async with relay(good, bad) as between:
            assert await talk(one, between) == ""
        assert echo.heard == ["dpgt:agent:agent-1"]


async def test_a_channel_is_left_when_its_server_is_revoked(tmp_path: Path) -> None:
    made = trust.registry(tmp_path)
    one, two = (enrol(made, tmp_path, name) for name in ("agent-1", "agent-2"))
    watch = asyncio.ensure_future(one.watch())
    async with serving(two.server_credentials()) as (_, address):
        dialler = one.dialler(agent_identity("agent-2"))
        with pytest.raises(Untrusted, match="the revocation list changed"):
            async with asyncio.timeout(LIMIT_S), dialler(address) as channel:
                call = services.exchange(channel, "-")
                assert await say(call) == 2
                made.revoke([serial(two)])
                made.copy_list(tmp_path / "agent-1")
                await call.read()
        assert "is revoked" in await talk(one, address)
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


async def test_a_foreign_made_certificate_is_not_taken_when_there_is_a_list(tmp_path: Path) -> None:
    """Without a name of its own nothing ties gRPC's connection to the certificate that was looked at."""
    made = trust.registry(tmp_path)
    one, two, gone = (enrol(made, tmp_path, name) for name in ("agent-1", "agent-2", "agent-3"))
    identity = x509.UniformResourceIdentifier(agent_identity("agent-2"))
    names = x509.SubjectAlternativeName([identity, x509.DNSName("agent-2.agent.dpgt")])
    two = trust.resigned(made.authority, tmp_path / "agent-2", names)
    async with serving(two.server_credentials()) as (_, address):
        assert await talk(one, address) == ""
        made.revoke([serial(gone)])
        made.copy_list(tmp_path / "agent-1")
        assert "has no name of its own" in await talk(one, address)


# --- renewal ----------------------------------------------------------------------------------------------------------


async def test_a_server_outlives_its_certificate_when_it_is_renewed(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    """An open call goes on through expiry; new ones are refused until the renewal; all in one server."""
    one = minted(authority, tmp_path / "one", "agent-1", "good")
    two = minted(authority, tmp_path / "two", "agent-2", "good")
    async with serving(two.server_credentials(), two.guard) as (_, address):
        async with one.opener(agent_identity("agent-2"))(address) as channel:
            call = services.exchange(channel, "-")
            assert await say(call) == 2
            minted(authority, tmp_path / "late", "agent-2", "expired")
            trust.as_if_good(two, tmp_path / "late")  # as if time had passed
            assert "expired on" in await talk(one, address)
            assert await say(call, 7) == 7
            authority.write_folder(tmp_path / "two", agent_identity("agent-2"))
            assert await talk(one, address) == ""
            assert await say(call, 9) == 9
        assert one.credentials is not None
        seen = await probe.look(address, one.credentials, agent_identity("agent-2"))
        assert seen.serial_number == serial(two)


async def test_a_client_presents_its_renewed_certificate_at_the_next_connection(tmp_path: Path) -> None:
    made = trust.registry(tmp_path)
    one, two = (enrol(made, tmp_path, name) for name in ("agent-1", "agent-2"))
    seen: list[int] = []

    class Noting(Guard):
        def _check(self, call: guard._Call) -> None:
            seen.append(call.certificate.serial_number)

    async with serving(two.server_credentials(), Noting(two.credentials)) as (_, address):
        before = serial(one)
        assert await talk(one, address) == ""
        made.issue(agent_identity("agent-1"), [], tmp_path / "agent-1", days=10)
        assert await talk(one, address) == ""
    assert seen == [before, serial(one)] and seen[0] != seen[1]


def test_half_a_renewal_changes_nothing_and_is_named_once_if_it_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = trust.registry(tmp_path)
    one = enrol(made, tmp_path, "agent-1")
    before = serial(one)
    _, key = made.authority.issue(agent_identity("agent-1"))
    (tmp_path / "agent-1" / "key.pem").write_bytes(key)
    assert serial(one) == before and caplog.text == ""
    for _ in range(3):
        assert serial(one) == before
    assert caplog.text.count("is not the key of") == 1
    made.revoke([12345])
    made.copy_list(tmp_path / "agent-1")  # counts all the same
    assert one.credentials is not None and len(one.credentials.material().revoked) == 1
    made.issue(agent_identity("agent-1"), [], tmp_path / "agent-1", days=10)
    assert serial(one) != before


async def test_expiry_is_announced_and_said_once(
    authority: CertificateAuthority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = minted(authority, tmp_path, "agent-1", "good")
    assert one.credentials is not None
    start, end = (NOW := datetime.datetime.now(datetime.UTC)) - datetime.timedelta(days=300), trust.DATES["good"][1]
    authority.write_folder(tmp_path, agent_identity("agent-1"), valid=(start, NOW + datetime.timedelta(days=3)))
    watch = asyncio.ensure_future(one.watch())
    await eventually("it warns", lambda: "cert.pem expires in 3 days" in caplog.text)
    minted(authority, tmp_path / "late", "agent-1", "expired")
    trust.as_if_good(one, tmp_path / "late")
    await eventually("it says so", lambda: "expired on" in caplog.text)
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    assert caplog.text.count("expires in") == caplog.text.count("no new one will come up") == 1 and end > NOW


# --- a whole run ------------------------------------------------------------------------------------------------------


async def test_y_on_an_edge_of_R_alone_is_refused_over_mtls_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """agent-1 -> agent-2 carries x̆ only; agent-3 -> agent-2 nothing.  x̆ of agent-1 goes on."""
    async with cluster(tmp_path, make_run(5), secure=True) as c:
        c.start("agent-2")  # agent-1 is played here: its own process would replace the streams
        await eventually("agent-2 is in the run", lambda: c.round("agent-2") >= 0)
        address = c.nodes["agent-2"]._advertise
        for stream in ("X", "Y", "Y", "Y", "X", "Y"):
            async with c.security(agent_identity("agent-1")).opener(agent_identity("agent-2"))(address) as channel:
                call = services.exchange(channel, "-")
                resume = await call.read()
                assert isinstance(resume, Resume)
                k = resume.x_from if stream == "X" else resume.y_from
                payload = vectors.payload(stream, k, 3)  # type: ignore[arg-type]
                for frame in codec.encode_vectors(resume.run_id, "agent-1", [payload]):
                    await call.write(frame)
                if stream == "X":
                    await call.done_writing()
                    assert await call.read() is None
                    continue
                with pytest.raises(PeerError, match="stream Y is not on") as caught:
                    while await call.read() is not None:
                        pass
                assert caught.value.grpc_status == "PERMISSION_DENIED"
        for _ in range(3):
            async with c.security(agent_identity("agent-3")).opener(agent_identity("agent-2"))(address) as channel:
                with pytest.raises(PeerError, match="there is no edge from agent-3 to agent-2"):
                    await services.exchange(channel, "-").read()
    assert caplog.text.count("stream Y is not on") == caplog.text.count("there is no edge from agent-3") == 1


# --- one line each ----------------------------------------------------------------------------------------------------


def test_refusals_are_said_once_and_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    def lines() -> list[str]:
        """The guard's: threads of gRPC that another test left may say something, too."""
        return [record.getMessage() for record in caplog.records if record.name == guard.__name__]

    said = Refusals()
    for attempt in range(50):
        said.note("mallory", f"ipv4:1.2.3.4:{attempt}", "no edge")
    assert lines() == ["refused mallory at ipv4:1.2.3.4:0: no edge"]
    caplog.clear()
    for number in range(1000):
        said.note("mallory", "ipv4:1.2.3.4:5", f"reason {number}")
    assert len(lines()) == guard.MAX_REFUSALS_EACH
    assert "for ever new reasons" in lines()[-1]
    caplog.clear()
    for number in range(1000):
        said.note(f"stranger {number}", "ipv4:1.2.3.4:5", "no edge")
    assert len(lines()) == guard.MAX_REFUSALS
    assert "no further ones are logged" in lines()[-1]
    assert len(said._said) == guard.MAX_REFUSALS


async def test_a_peer_that_is_away_is_not_called_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    class Caller:
        secure, identity, certificate_pem, address = False, None, None, "ipv4:1.2.3.4:5"

        def agent_name(self) -> str:
            return "agent-1"

    with pytest.raises(PeerError), Guard(None)(Caller()):  # type: ignore[arg-type]
        raise PeerError("leaving", grpc_status="UNAVAILABLE")
    assert caplog.records == []


def test_a_list_of_another_authority_is_no_list(tmp_path: Path) -> None:
    made, other = trust.registry(tmp_path), Registry.create(tmp_path / "other")
    enrol(made, tmp_path, "agent-1")
    other.revoke([1])
    other.copy_list(tmp_path / "agent-1")
    with pytest.raises(Exception, match=r"crl\.pem: holds a revocation list that no trusted authority signed"):
        serial(Security.from_folder(tmp_path / "agent-1"))


async def test_a_plain_process_hears_that_the_other_end_speaks_tls(tmp_path: Path) -> None:
    """As the other way round: gRPC itself says "Socket closed" here, and nothing there."""
    CertificateAuthority.create().write_folder(tmp_path / "pem", COORDINATOR_IDENTITY, ["127.0.0.1"])
    for folder, words in ((tmp_path / "pem", "speaks TLS, and this process does not"), (None, "UNAVAILABLE|refused")):
        server = services.server(1)
        with held_port() as port:
            address = f"127.0.0.1:{port}"
            services.bind(server, address, Security.from_folder(folder).server_credentials(), "test")
            await server.start()
            if folder is None:
                await server.stop(0)
            with pytest.raises(PeerError, match=words) as caught:
                async with Security().dialler(COORDINATOR_IDENTITY)(address) as channel:
                    await services.status(channel, timeout_s=20.0)
        assert isinstance(caught.value, Untrusted) == (folder is not None)
        await server.stop(0)


@pytest.mark.parametrize(
    ("patience_s", "silence_s", "answer_s"),
    [(1.0, 5.0, 60.0), (15.0, 5.0, 60.0), (60.0, 27.5, 60.0), (600.0, 297.5, 600.0)],
)
def test_an_answer_may_wait_behind_a_vector_and_silence_may_not(
    patience_s: float, silence_s: float, answer_s: float
) -> None:
    """On a link of 1 Mbit/s megabytes are ahead of an answer.  Silence ends before T, with the 5 s before a ping."""
    assert ping_timeout_s(patience_s) == silence_s
    for bulk in (1 << 27, (1 << 16) + 8, 1 << 16, 800, 0):
        for options in (dict(services.channel_options(patience_s, bulk)), dict(server_options(patience_s, bulk))):
            assert options["grpc.keepalive_timeout_ms"] == int(1000 * silence_s)
            expected = int(1000 * (answer_s if bulk else silence_s))
            assert options["grpc.http2.ping_timeout_ms"] == expected, "a stopped coordinator is noticed by it"
            measured = bulk > 1 << 16
            assert options.get("grpc.http2.bdp_probe") == (None if measured else 0)
            assert options.get("grpc.http2.lookahead_bytes") == (None if measured else 1 << 20)
        assert options.get("grpc.http2.settings_timeout") == (expected if bulk else None)
    assert dict(services.SERVER_OPTIONS)["grpc.http2.ping_timeout_ms"] == 5000


@pytest.mark.parametrize("read_only", [True, False])
def test_advice_for_an_open_key_can_be_followed(
    read_only: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can chmod a secret that is mounted read-only."""
    (tmp_path / "key.pem").touch(mode=0o644)
    found = os.statvfs(tmp_path)
    flags = SimpleNamespace(f_flag=found.f_flag | os.ST_RDONLY if read_only else found.f_flag & ~os.ST_RDONLY)
    monkeypatch.setattr(files.os, "statvfs", lambda _: flags)
    said = files.key_mode_problem(tmp_path / "key.pem")
    assert said is not None and ("chmod 600" in said[1]) == (not read_only)
    assert ("defaultMode: 0400, and runAsUser" in said[1] and "fsGroup" in said[1]) == read_only
