from dpgt_node.wire.gen.dpgt.v1 import agent_pb2 as _agent_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Vantage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VANTAGE_UNSPECIFIED: _ClassVar[Vantage]
    EAVESDROPPER: _ClassVar[Vantage]
    SEMI_HONEST: _ClassVar[Vantage]
    COALITION: _ClassVar[Vantage]
VANTAGE_UNSPECIFIED: Vantage
EAVESDROPPER: Vantage
SEMI_HONEST: Vantage
COALITION: Vantage

class TranscriptEntry(_message.Message):
    __slots__ = ("header", "seen", "end")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    header: TranscriptHeader
    seen: Seen
    end: TranscriptEnd
    def __init__(self, header: _Optional[_Union[TranscriptHeader, _Mapping]] = ..., seen: _Optional[_Union[Seen, _Mapping]] = ..., end: _Optional[_Union[TranscriptEnd, _Mapping]] = ...) -> None: ...

class TranscriptHeader(_message.Message):
    __slots__ = ("vantage", "observers", "links", "channel", "run_id", "source", "coordinates")
    VANTAGE_FIELD_NUMBER: _ClassVar[int]
    OBSERVERS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COORDINATES_FIELD_NUMBER: _ClassVar[int]
    vantage: Vantage
    observers: _containers.RepeatedScalarFieldContainer[str]
    links: _containers.RepeatedCompositeFieldContainer[TappedLink]
    channel: str
    run_id: bytes
    source: str
    coordinates: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, vantage: _Optional[_Union[Vantage, str]] = ..., observers: _Optional[_Iterable[str]] = ..., links: _Optional[_Iterable[_Union[TappedLink, _Mapping]]] = ..., channel: _Optional[str] = ..., run_id: _Optional[bytes] = ..., source: _Optional[str] = ..., coordinates: _Optional[_Iterable[int]] = ...) -> None: ...

class TappedLink(_message.Message):
    __slots__ = ("sender", "receiver")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    sender: str
    receiver: str
    def __init__(self, sender: _Optional[str] = ..., receiver: _Optional[str] = ...) -> None: ...

class Seen(_message.Message):
    __slots__ = ("vector", "receiver", "time_ns", "missing", "own", "copies", "digest_only", "sha256_seen")
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_ONLY_FIELD_NUMBER: _ClassVar[int]
    SHA256_SEEN_FIELD_NUMBER: _ClassVar[int]
    vector: _agent_pb2.Vector
    receiver: str
    time_ns: int
    missing: _containers.RepeatedCompositeFieldContainer[Missing]
    own: bool
    copies: int
    digest_only: bool
    sha256_seen: bytes
    def __init__(self, vector: _Optional[_Union[_agent_pb2.Vector, _Mapping]] = ..., receiver: _Optional[str] = ..., time_ns: _Optional[int] = ..., missing: _Optional[_Iterable[_Union[Missing, _Mapping]]] = ..., own: _Optional[bool] = ..., copies: _Optional[int] = ..., digest_only: _Optional[bool] = ..., sha256_seen: _Optional[bytes] = ...) -> None: ...

class Missing(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class TranscriptEnd(_message.Message):
    __slots__ = ("messages", "complete", "with_holes", "segments_lost", "foreign", "conflicting")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WITH_HOLES_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_LOST_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_FIELD_NUMBER: _ClassVar[int]
    CONFLICTING_FIELD_NUMBER: _ClassVar[int]
    messages: int
    complete: int
    with_holes: int
    segments_lost: int
    foreign: int
    conflicting: int
    def __init__(self, messages: _Optional[int] = ..., complete: _Optional[int] = ..., with_holes: _Optional[int] = ..., segments_lost: _Optional[int] = ..., foreign: _Optional[int] = ..., conflicting: _Optional[int] = ...) -> None: ...
