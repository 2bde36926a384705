from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Stream(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STREAM_UNSPECIFIED: _ClassVar[Stream]
    X: _ClassVar[Stream]
    Y: _ClassVar[Stream]
    STUDY: _ClassVar[Stream]
    COVER: _ClassVar[Stream]

class Dtype(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DTYPE_UNSPECIFIED: _ClassVar[Dtype]
    FLOAT64: _ClassVar[Dtype]
    FLOAT32: _ClassVar[Dtype]
    INT8: _ClassVar[Dtype]
    INT16: _ClassVar[Dtype]
    INT32: _ClassVar[Dtype]
STREAM_UNSPECIFIED: Stream
X: Stream
Y: Stream
STUDY: Stream
COVER: Stream
DTYPE_UNSPECIFIED: Dtype
FLOAT64: Dtype
FLOAT32: Dtype
INT8: Dtype
INT16: Dtype
INT32: Dtype

class Frame(_message.Message):
    __slots__ = ("vectors", "chunk", "padding")
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    vectors: _containers.RepeatedCompositeFieldContainer[Vector]
    chunk: bytes
    padding: bytes
    def __init__(self, vectors: _Optional[_Iterable[_Union[Vector, _Mapping]]] = ..., chunk: _Optional[bytes] = ..., padding: _Optional[bytes] = ...) -> None: ...

class Vector(_message.Message):
    __slots__ = ("run_id", "sender", "round", "stream", "dtype", "dimension", "nbytes", "sha256", "data", "from_byte")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DIMENSION_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    FROM_BYTE_FIELD_NUMBER: _ClassVar[int]
    run_id: bytes
    sender: str
    round: int
    stream: Stream
    dtype: Dtype
    dimension: int
    nbytes: int
    sha256: bytes
    data: bytes
    from_byte: int
    def __init__(self, run_id: _Optional[bytes] = ..., sender: _Optional[str] = ..., round: _Optional[int] = ..., stream: _Optional[_Union[Stream, str]] = ..., dtype: _Optional[_Union[Dtype, str]] = ..., dimension: _Optional[int] = ..., nbytes: _Optional[int] = ..., sha256: _Optional[bytes] = ..., data: _Optional[bytes] = ..., from_byte: _Optional[int] = ...) -> None: ...

class ExchangeReply(_message.Message):
    __slots__ = ("resume", "received", "padding")
    RESUME_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    resume: Resume
    received: Received
    padding: bytes
    def __init__(self, resume: _Optional[_Union[Resume, _Mapping]] = ..., received: _Optional[_Union[Received, _Mapping]] = ..., padding: _Optional[bytes] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("receiver", "run_id", "x_from", "y_from", "mixed_before", "prefix", "x_last", "y_last")
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    X_FROM_FIELD_NUMBER: _ClassVar[int]
    Y_FROM_FIELD_NUMBER: _ClassVar[int]
    MIXED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    X_LAST_FIELD_NUMBER: _ClassVar[int]
    Y_LAST_FIELD_NUMBER: _ClassVar[int]
    receiver: str
    run_id: bytes
    x_from: int
    y_from: int
    mixed_before: int
    prefix: Prefix
    x_last: bytes
    y_last: bytes
    def __init__(self, receiver: _Optional[str] = ..., run_id: _Optional[bytes] = ..., x_from: _Optional[int] = ..., y_from: _Optional[int] = ..., mixed_before: _Optional[int] = ..., prefix: _Optional[_Union[Prefix, _Mapping]] = ..., x_last: _Optional[bytes] = ..., y_last: _Optional[bytes] = ...) -> None: ...

class Prefix(_message.Message):
    __slots__ = ("stream", "round", "nbytes", "sha256")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    stream: Stream
    round: int
    nbytes: int
    sha256: bytes
    def __init__(self, stream: _Optional[_Union[Stream, str]] = ..., round: _Optional[int] = ..., nbytes: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class Received(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: int
    def __init__(self, frames: _Optional[int] = ...) -> None: ...
