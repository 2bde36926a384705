"""Both gRPC services over frozen messages: server handlers, client calls, and the options they were measured with.

Servicers read and write messages through :class:`ServerStream`, clients through :class:`ClientStream`; neither sees
protobuf or a gRPC exception.  A :class:`PeerError` raised in a servicer becomes that gRPC status at the other side;
whatever ends a client's call becomes a :class:`PeerError` with the status' name.

Facts of grpc.aio hidden here: a write to a dead server raises InvalidStateError instead of AioRpcError, and one in
whose midst the connection breaks InternalError; error details above about 1 kB mask the status code.  Not hidden: a
client that was killed or cancelled in mid-stream looks like a normal end of stream, so ``read() is None`` proves
nothing about completeness (``Reassembler.finish``).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Generic, NoReturn, Protocol, Self, TypeVar

import grpc
import grpc.aio

from dpgt_node.config import format_address
from dpgt_node.errors import ConfigError, PeerError, invariant
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.told import A_BUG, answered
from dpgt_node.wire import convert
from dpgt_node.wire.fields import MAX_TEXT, cause, is_name, one_line, shown
from dpgt_node.wire.options import CHANNEL_OPTIONS as CHANNEL_OPTIONS
from dpgt_node.wire.options import SERVER_OPTIONS as SERVER_OPTIONS
from dpgt_node.wire.options import channel_options as channel_options
from dpgt_node.wire.options import server_options
from dpgt_node.wire.server import Server, Service, new_server, why_not_listen
from dpgt_node.wire.traffic.padding import in_units

log = logging.getLogger(__name__)

AGENT_SERVICE = "dpgt.v1.Agent"
COORDINATOR_SERVICE = "dpgt.v1.Coordinator"
# On a channel without TLS nobody can prove a name; a caller states it here.  Ignored where certificates are used.
NAME_METADATA = "dpgt-agent"
_WRITE_LOST = "Internal error from Core"
"""What grpc.aio says, now and then, of a call that the server ended while the client was writing: the server's own
status is lost then, and another attempt will hear it.
"""
_MAX_DETAILS = 900
_EOF = grpc.aio.EOF

_SCHEMES = frozenset({"dns", "external", "ipv4", "ipv6", "unix", "unix-abstract", "vsock"})
In = TypeVar("In")
Out = TypeVar("Out")


# --- who is calling -----------------------------------------------------------------------------------------------


def identity_from_auth_context(auth_context: Mapping[str, Iterable[bytes]]) -> str | None:
    """The ``dpgt:`` URI of the peer's certificate, e.g. ``dpgt:agent:NAME``; None unless there is exactly one."""
    names = [name.decode("utf-8", "replace") for name in auth_context.get("x509_subject_alternative_name", ())]
    ours = [name for name in names if name.startswith("dpgt:")]
    return ours[0] if len(ours) == 1 else None


class Caller:
    """The other side of a call, as the server sees it."""

    def __init__(self, context: Any) -> None:
        self._context = context
        auth: Mapping[str, Iterable[bytes]] = context.auth_context()
        self.secure = b"ssl" in tuple(auth.get("transport_security_type", ()))
        self.identity = identity_from_auth_context(auth) if self.secure else None
        pem = tuple(auth.get("x509_pem_cert", ()))
        self.certificate_pem = pem[0] if self.secure and pem else None

    @property
    def address(self) -> str:
        """Where the call comes from, in gRPC's notation: for log lines, never for decisions."""
        return str(self._context.peer())

    def agent_name(self) -> str:
        """The calling agent: proven by its certificate, or, without TLS, as it says.  PeerError if it is no agent."""
        if self.secure:
            prefix = "dpgt:agent:"
            if self.identity is None or not self.identity.startswith(prefix):
                message = (
                    f"the certificate of {self.address} is {self.identity or 'without a dpgt identity'}, not an agent's"
                )
                raise PeerError(message, grpc_status="PERMISSION_DENIED")
            name = self.identity[len(prefix) :]
            if not is_name(name):
                raise PeerError(
                    f"the certificate of {self.address} names no agent: {shown(name)}", grpc_status="PERMISSION_DENIED"
                )
            return name
        name = str(dict(self._context.invocation_metadata() or ()).get(NAME_METADATA, ""))
        if not is_name(name):
            raise PeerError(
                f"the caller {self.address} states no agent name: {shown(name)}", grpc_status="UNAUTHENTICATED"
            )
        return name


# --- server -------------------------------------------------------------------------------------------------------


class ServerStream(Caller, Generic[In, Out]):
    """One call at the server; it ends when the servicer returns.  At most one reader and one writer at a time.

    gRPC would refuse the second of two messages that are written at once, and its writer would read that the caller is
    gone.  So a second writer is a broken invariant.
    """

    def __init__(self, context: Any, decode: Callable[[bytes], In], encode: Callable[[Out], bytes]) -> None:
        super().__init__(context)
        self._headers: asyncio.Future[None] | None = None
        self._headed = self._writing = False
        self._decode = decode
        self._encode = encode

    async def served(self, serve: Callable[[Self], Awaitable[None]]) -> None:
        """``serve`` this call.  It ends when its headers are out, if they were begun.

        grpc.aio sends them with the first message, and again for a call that ends in the midst of that: the core
        refuses it (TOO_MANY_OPERATIONS), no status goes out, and the caller waits for ever.  So they go before, and
        whoever stops waiting for a message does not stop them.
        """
        try:
            await serve(self)
        finally:
            if self._headers is not None:
                await asyncio.gather(self._headers, return_exceptions=True)  # that they failed, a write has said

    async def read(self) -> In | None:
        """The next message; None at the end of the stream, orderly or not.  PeerError if it is malformed."""
        data = await self._context.read()
        return None if data is _EOF else self._decode(data)

    async def write(self, message: Out) -> None:
        """Hand ``message`` to gRPC.  PeerError when the caller is gone."""
        invariant(not self._writing, "a call has one writer at a time")
        self._writing = True
        try:
            if not self._headed:
                await self._send_headers()
            await self._context.write(self._encode(message))
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            raise PeerError(f"{self.address} closed the call", grpc_status="UNAVAILABLE") from error
        finally:
            self._writing = False

    async def _send_headers(self) -> None:
        if self._headers is None:
            self._headers = asyncio.ensure_future(self._context.send_initial_metadata(()))
        await asyncio.shield(self._headers)
        self._headed = True


class AgentServicer(Protocol):
    async def exchange(self, stream: ServerStream[bytes, m.ExchangeReply]) -> None:
        """Frames of one in-neighbour; feed them to a ``Reassembler``.  The first reply is Resume."""
        ...


class CoordinatorServicer(Protocol):
    async def join(self, stream: ServerStream[m.AgentMessage, m.CoordinatorMessage]) -> None:
        """One agent's membership, from Register to Goodbye."""
        ...

    async def upload(self, stream: ServerStream[bytes, m.UploadReply]) -> None:
        """Frames of study vectors; a reply says how many were taken so far."""
        ...

    async def status(self, request: m.StatusRequest, caller: Caller) -> m.StatusReply: ...

    async def control(self, request: m.ControlRequest, caller: Caller) -> m.ControlReply: ...


Guard = Callable[[Caller], AbstractContextManager[None]]
"""Entered around every call; a PeerError on the way in or out ends the call with its status."""


def no_guard(_: Caller) -> AbstractContextManager[None]:
    return nullcontext()


async def _abort(context: Any, error: PeerError) -> NoReturn:
    try:
        await context.abort(grpc.StatusCode[error.grpc_status], answered(error)[:_MAX_DETAILS])
    except grpc.aio.InternalError:
        raise asyncio.CancelledError from None  # nobody is there any more to hear it
    raise AssertionError("abort returned")


async def guarded(context: Any, guard: Guard, caller: Caller, work: Callable[[], Awaitable[Out]]) -> Out:
    """The answer of ``work``; a PeerError becomes the call's status."""
    try:
        with guard(caller):
            return await work()
    except PeerError as error:
        await _abort(context, error)
    except Exception:  # gRPC itself would give the caller the words of the exception
        log.exception("a bug in a call of %s", caller.address)
        await _abort(context, PeerError(A_BUG, grpc_status="INTERNAL"))


def agent_handler(servicer: AgentServicer, guard: Guard = no_guard, unit: int = 0) -> Service:
    """For ``server.add_generic_rpc_handlers([...])``.  ``unit``: replies are multiples of so many bytes; 0: any."""
    encode = in_units(convert.encode_exchange_reply, unit)

    async def exchange(_: object, context: Any) -> None:
        stream: ServerStream[bytes, m.ExchangeReply] = ServerStream(context, bytes, encode)
        await guarded(context, guard, stream, lambda: stream.served(servicer.exchange))

    return Service(AGENT_SERVICE, {"Exchange": grpc.stream_stream_rpc_method_handler(exchange)})


def coordinator_handler(servicer: CoordinatorServicer, guard: Guard = no_guard, unit: int = 0) -> Service:
    """For ``server.add_generic_rpc_handlers([...])``.  ``unit`` as of ``agent_handler``, of messages on Join."""
    decode, encode = convert.decode_agent_message, in_units(convert.encode_coordinator_message, unit)

    async def join(_: object, context: Any) -> None:
        stream: ServerStream[m.AgentMessage, m.CoordinatorMessage] = ServerStream(context, decode, encode)
        await guarded(context, guard, stream, lambda: stream.served(servicer.join))

    async def upload(_: object, context: Any) -> None:
        stream: ServerStream[bytes, m.UploadReply] = ServerStream(context, bytes, convert.encode_upload_reply)
        await guarded(context, guard, stream, lambda: stream.served(servicer.upload))

    async def status(data: bytes, context: Any) -> bytes:
        caller = Caller(context)

        async def answer() -> m.StatusReply:
            return await servicer.status(convert.decode_status_request(data), caller)

        return convert.encode_status_reply(await guarded(context, guard, caller, answer))

    async def control(data: bytes, context: Any) -> bytes:
        caller = Caller(context)

        async def answer() -> m.ControlReply:
            return await servicer.control(convert.decode_control_request(data), caller)

        return convert.encode_control_reply(await guarded(context, guard, caller, answer))

    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Join": grpc.stream_stream_rpc_method_handler(join),
        "Upload": grpc.stream_stream_rpc_method_handler(upload),
        "Status": grpc.unary_unary_rpc_method_handler(status),
        "Control": grpc.unary_unary_rpc_method_handler(control),
    }
    return Service(COORDINATOR_SERVICE, methods)


def server(peers: int, patience_s: float = 0.0, *, vector_bytes: int = 0) -> Server:
    """A server for ``peers`` honest callers and all others, see ``wire.server``; inside a running event loop.

    ``patience_s``: T of the run.  ``vector_bytes``: of the vectors that travel to it, 0: none.
    """
    return new_server(server_options(patience_s, vector_bytes), peers)


def target(address: str) -> str:
    """What gRPC is given to dial HOST:PORT.  Bare, it reads hosts named ``dns`` or ``unix`` as schemes."""
    return f"dns:///{address}"


def _socket_of(listen: str) -> str:
    """HOST:PORT as a server of gRPC may read it.  ValueError, OSError: a host with such a name has no address."""
    host, _, port = listen.rpartition(":")
    if host not in _SCHEMES:
        return listen
    return format_address(str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]), int(port))


def bind(server: grpc.aio.Server | Server, listen: str, credentials: grpc.ServerCredentials | None, source: str) -> int:
    """Open the listening socket HOST:PORT (port 0: any) and return the real port.

    ``credentials`` None: no TLS.  ConfigError naming ``source`` when it cannot be opened: in use, not an address of
    this machine, not permitted.
    """
    host, _, port_text = listen.rpartition(":")
    if not (host and port_text.isascii() and port_text.isdigit() and int(port_text) <= 65535):
        # gRPC would take the port modulo 65,536, or 443 for none
        raise ConfigError.one(source, "listen", f"cannot listen on {listen}: not HOST:PORT")
    try:
        where = _socket_of(listen)
        port = server.add_insecure_port(where) if credentials is None else server.add_secure_port(where, credentials)
    except (RuntimeError, OSError):
        port = 0
    if port == 0:  # some versions of grpcio say it this way
        why = why_not_listen(host.strip("[]"), int(port_text))
        said = "the port is in use" if why is None else why.strerror or str(why)
        raise ConfigError.one(source, "listen", f"cannot listen on {listen}: {said[:1].lower()}{said[1:]}")
    return port


# --- client -------------------------------------------------------------------------------------------------------


def _said(details: str | None, code: grpc.StatusCode, what: str) -> PeerError:
    """The other side's words, which end in a log or on a terminal like any of its texts."""
    if (code, details) == (grpc.StatusCode.INTERNAL, _WRITE_LOST):
        return PeerError(f"{what}: the other side ended the call in mid-write", grpc_status="UNAVAILABLE")
    return PeerError(one_line(cause(details or ""), MAX_TEXT) or f"{what}: {code.name}", grpc_status=code.name)


async def _call_error(call: Any, what: str) -> PeerError:
    code: grpc.StatusCode = await call.code()
    return _said(await call.details(), code, what)


class ClientStream(Generic[Out, In]):
    """One call at the client.  Cancelling a pending ``read`` or ``write`` cancels the whole call."""

    def __init__(self, call: Any, encode: Callable[[Out], bytes], decode: Callable[[bytes], In], what: str) -> None:
        self._call = call
        self._encode = encode
        self._decode = decode
        self._what = what

    async def read(self) -> In | None:
        """The next message; None when the server ended the call with OK.  PeerError otherwise."""
        try:
            data = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise _said(error.details(), error.code(), self._what) from error
        return None if data is _EOF else self._decode(data)

    async def write(self, message: Out) -> None:
        """Hand ``message`` to gRPC (waits for flow control).  PeerError when the call is over."""
        try:
            await self._call.write(self._encode(message))
        except grpc.aio.AioRpcError as error:
            raise _said(error.details(), error.code(), self._what) from error
        except (asyncio.InvalidStateError, grpc.aio.InternalError) as error:
            raise await _call_error(self._call, self._what) from error

    async def done_writing(self) -> None:
        """No more messages will follow; harmless when the call is over."""
        with suppress(grpc.aio.InternalError):  # the connection broke in this moment; the next read says so
            await self._call.done_writing()

    def cancel(self) -> None:
        """Drop the call; harmless when it is over."""
        self._call.cancel()


def _metadata(name: str) -> grpc.aio.Metadata:
    return grpc.aio.Metadata((NAME_METADATA, name))


def exchange(
    channel: grpc.aio.Channel, name: str, *, wait_for_ready: bool = False
) -> ClientStream[bytes, m.ExchangeReply]:
    """Open Exchange as agent ``name``: frames out, Resume and Received in."""
    method: Any = channel.stream_stream(f"/{AGENT_SERVICE}/Exchange")
    call = method(metadata=_metadata(name), wait_for_ready=wait_for_ready)
    return ClientStream(call, bytes, convert.decode_exchange_reply, "Exchange")


def join(
    channel: grpc.aio.Channel, name: str, *, wait_for_ready: bool = False, unit: int = 0
) -> ClientStream[m.AgentMessage, m.CoordinatorMessage]:
    """Open Join as agent ``name``; its messages are multiples of ``unit`` bytes, 0: of any length."""
    method: Any = channel.stream_stream(f"/{COORDINATOR_SERVICE}/Join")
    call = method(metadata=_metadata(name), wait_for_ready=wait_for_ready)
    return ClientStream(call, in_units(convert.encode_agent_message, unit), convert.decode_coordinator_message, "Join")


def upload(channel: grpc.aio.Channel, name: str) -> ClientStream[bytes, m.UploadReply]:
    """Open Upload as agent ``name``: frames of ``codec.encode_vectors(..., study=True)`` out, what was taken in."""
    method: Any = channel.stream_stream(f"/{COORDINATOR_SERVICE}/Upload")
    return ClientStream(method(metadata=_metadata(name)), bytes, convert.decode_upload_reply, "Upload")


async def _answer(call: Awaitable[bytes], what: str) -> bytes:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise _said(error.details(), error.code(), what) from error


async def status(
    channel: grpc.aio.Channel, *, timeout_s: float, wait_for_ready: bool = False, watcher: int = 0
) -> m.StatusReply:
    """Ask where the run stands; PeerError (UNAVAILABLE, DEADLINE_EXCEEDED, ...) when nobody answers."""
    method: Any = channel.unary_unary(f"/{COORDINATOR_SERVICE}/Status")
    data = convert.encode_status_request(m.StatusRequest(watcher))
    call = method(data, timeout=timeout_s, wait_for_ready=wait_for_ready)
    return convert.decode_status_reply(await _answer(call, "Status"))


async def control(channel: grpc.aio.Channel, request: m.ControlRequest, *, timeout_s: float) -> m.ControlReply:
    """Pause, resume or stop; PeerError when nobody answers or the caller is not allowed to."""
    method: Any = channel.unary_unary(f"/{COORDINATOR_SERVICE}/Control")
    call = method(convert.encode_control_request(request), timeout=timeout_s)
    return convert.decode_control_reply(await _answer(call, "Control"))
