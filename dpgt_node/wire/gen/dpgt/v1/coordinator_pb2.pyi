from dpgt_node.wire.gen.dpgt.v1 import agent_pb2 as _agent_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RefusalKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFUSAL_KIND_UNSPECIFIED: _ClassVar[RefusalKind]
    POLICY: _ClassVar[RefusalKind]
    RUN_HASH: _ClassVar[RefusalKind]
    IDENTITY: _ClassVar[RefusalKind]
    VERSION: _ClassVar[RefusalKind]
    DATA: _ClassVar[RefusalKind]
    OTHER: _ClassVar[RefusalKind]

class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_UNSPECIFIED: _ClassVar[Action]
    PAUSE: _ClassVar[Action]
    RESUME: _ClassVar[Action]
    STOP: _ClassVar[Action]
REFUSAL_KIND_UNSPECIFIED: RefusalKind
POLICY: RefusalKind
RUN_HASH: RefusalKind
IDENTITY: RefusalKind
VERSION: RefusalKind
DATA: RefusalKind
OTHER: RefusalKind
ACTION_UNSPECIFIED: Action
PAUSE: Action
RESUME: Action
STOP: Action

class AgentMessage(_message.Message):
    __slots__ = ("register", "ready", "done", "metrics", "finished", "refusal", "failed", "heartbeat", "edges", "key_offer", "key_proofs", "disowned", "dones", "outlier", "padding")
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    KEY_OFFER_FIELD_NUMBER: _ClassVar[int]
    KEY_PROOFS_FIELD_NUMBER: _ClassVar[int]
    DISOWNED_FIELD_NUMBER: _ClassVar[int]
    DONES_FIELD_NUMBER: _ClassVar[int]
    OUTLIER_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    register: Register
    ready: Ready
    done: Done
    metrics: Metrics
    finished: Finished
    refusal: Refusal
    failed: Failed
    heartbeat: Heartbeat
    edges: Edges
    key_offer: KeyOffer
    key_proofs: KeyProofs
    disowned: Disowned
    dones: Dones
    outlier: Outlier
    padding: bytes
    def __init__(self, register: _Optional[_Union[Register, _Mapping]] = ..., ready: _Optional[_Union[Ready, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., metrics: _Optional[_Union[Metrics, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., edges: _Optional[_Union[Edges, _Mapping]] = ..., key_offer: _Optional[_Union[KeyOffer, _Mapping]] = ..., key_proofs: _Optional[_Union[KeyProofs, _Mapping]] = ..., disowned: _Optional[_Union[Disowned, _Mapping]] = ..., dones: _Optional[_Union[Dones, _Mapping]] = ..., outlier: _Optional[_Union[Outlier, _Mapping]] = ..., padding: _Optional[bytes] = ...) -> None: ...

class Register(_message.Message):
    __slots__ = ("protocol_version", "package_version", "name", "run_sha256", "run_json", "advertise", "samples", "dimension", "shape_sha256", "last_durable_round", "finished", "run_id", "last_released_round", "last_done_round", "instance")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RUN_SHA256_FIELD_NUMBER: _ClassVar[int]
    RUN_JSON_FIELD_NUMBER: _ClassVar[int]
    ADVERTISE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    DIMENSION_FIELD_NUMBER: _ClassVar[int]
    SHAPE_SHA256_FIELD_NUMBER: _ClassVar[int]
    LAST_DURABLE_ROUND_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_RELEASED_ROUND_FIELD_NUMBER: _ClassVar[int]
    LAST_DONE_ROUND_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    package_version: str
    name: str
    run_sha256: str
    run_json: str
    advertise: str
    samples: int
    dimension: int
    shape_sha256: str
    last_durable_round: int
    finished: bool
    run_id: bytes
    last_released_round: int
    last_done_round: int
    instance: bytes
    def __init__(self, protocol_version: _Optional[int] = ..., package_version: _Optional[str] = ..., name: _Optional[str] = ..., run_sha256: _Optional[str] = ..., run_json: _Optional[str] = ..., advertise: _Optional[str] = ..., samples: _Optional[int] = ..., dimension: _Optional[int] = ..., shape_sha256: _Optional[str] = ..., last_durable_round: _Optional[int] = ..., finished: _Optional[bool] = ..., run_id: _Optional[bytes] = ..., last_released_round: _Optional[int] = ..., last_done_round: _Optional[int] = ..., instance: _Optional[bytes] = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Done(_message.Message):
    __slots__ = ("round", "durable_through", "bytes_sent", "ledger_head", "spent_us", "digests")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    DURABLE_THROUGH_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    LEDGER_HEAD_FIELD_NUMBER: _ClassVar[int]
    SPENT_US_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    round: int
    durable_through: int
    bytes_sent: int
    ledger_head: bytes
    spent_us: _containers.RepeatedScalarFieldContainer[int]
    digests: bytes
    def __init__(self, round: _Optional[int] = ..., durable_through: _Optional[int] = ..., bytes_sent: _Optional[int] = ..., ledger_head: _Optional[bytes] = ..., spent_us: _Optional[_Iterable[int]] = ..., digests: _Optional[bytes] = ...) -> None: ...

class Dones(_message.Message):
    __slots__ = ("done",)
    DONE_FIELD_NUMBER: _ClassVar[int]
    done: _containers.RepeatedCompositeFieldContainer[Done]
    def __init__(self, done: _Optional[_Iterable[_Union[Done, _Mapping]]] = ...) -> None: ...

class Disowned(_message.Message):
    __slots__ = ("receiver", "stream", "round", "theirs", "ours")
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    THEIRS_FIELD_NUMBER: _ClassVar[int]
    OURS_FIELD_NUMBER: _ClassVar[int]
    receiver: str
    stream: _agent_pb2.Stream
    round: int
    theirs: bytes
    ours: bytes
    def __init__(self, receiver: _Optional[str] = ..., stream: _Optional[_Union[_agent_pb2.Stream, str]] = ..., round: _Optional[int] = ..., theirs: _Optional[bytes] = ..., ours: _Optional[bytes] = ...) -> None: ...

class Outlier(_message.Message):
    __slots__ = ("sender", "stream", "round", "rounds", "ratio")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    sender: str
    stream: _agent_pb2.Stream
    round: int
    rounds: int
    ratio: float
    def __init__(self, sender: _Optional[str] = ..., stream: _Optional[_Union[_agent_pb2.Stream, str]] = ..., round: _Optional[int] = ..., rounds: _Optional[int] = ..., ratio: _Optional[float] = ...) -> None: ...

class Metrics(_message.Message):
    __slots__ = ("round", "loss_train", "accuracy_train", "accuracy_test", "grad_norm", "epsilon")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    LOSS_TRAIN_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_TRAIN_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_TEST_FIELD_NUMBER: _ClassVar[int]
    GRAD_NORM_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    round: int
    loss_train: float
    accuracy_train: float
    accuracy_test: float
    grad_norm: float
    epsilon: Epsilon
    def __init__(self, round: _Optional[int] = ..., loss_train: _Optional[float] = ..., accuracy_train: _Optional[float] = ..., accuracy_test: _Optional[float] = ..., grad_norm: _Optional[float] = ..., epsilon: _Optional[_Union[Epsilon, _Mapping]] = ...) -> None: ...

class Epsilon(_message.Message):
    __slots__ = ("costs",)
    class CostsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    COSTS_FIELD_NUMBER: _ClassVar[int]
    costs: _containers.ScalarMap[str, float]
    def __init__(self, costs: _Optional[_Mapping[str, float]] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("status", "releases", "bytes_sent", "epsilon", "metrics")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    status: str
    releases: int
    bytes_sent: int
    epsilon: Epsilon
    metrics: Metrics
    def __init__(self, status: _Optional[str] = ..., releases: _Optional[int] = ..., bytes_sent: _Optional[int] = ..., epsilon: _Optional[_Union[Epsilon, _Mapping]] = ..., metrics: _Optional[_Union[Metrics, _Mapping]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("kind", "reason")
    KIND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    kind: RefusalKind
    reason: str
    def __init__(self, kind: _Optional[_Union[RefusalKind, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("exit_code", "message")
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    exit_code: int
    message: str
    def __init__(self, exit_code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Edges(_message.Message):
    __slots__ = ("round", "waited_ns", "lacks", "down")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    WAITED_NS_FIELD_NUMBER: _ClassVar[int]
    LACKS_FIELD_NUMBER: _ClassVar[int]
    DOWN_FIELD_NUMBER: _ClassVar[int]
    round: int
    waited_ns: int
    lacks: _containers.RepeatedCompositeFieldContainer[Lack]
    down: _containers.RepeatedCompositeFieldContainer[Down]
    def __init__(self, round: _Optional[int] = ..., waited_ns: _Optional[int] = ..., lacks: _Optional[_Iterable[_Union[Lack, _Mapping]]] = ..., down: _Optional[_Iterable[_Union[Down, _Mapping]]] = ...) -> None: ...

class Lack(_message.Message):
    __slots__ = ("sender", "silent_ns")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    SILENT_NS_FIELD_NUMBER: _ClassVar[int]
    sender: str
    silent_ns: int
    def __init__(self, sender: _Optional[str] = ..., silent_ns: _Optional[int] = ...) -> None: ...

class Down(_message.Message):
    __slots__ = ("receiver", "for_ns", "cause")
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    FOR_NS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    receiver: str
    for_ns: int
    cause: str
    def __init__(self, receiver: _Optional[str] = ..., for_ns: _Optional[int] = ..., cause: _Optional[str] = ...) -> None: ...

class KeyOffer(_message.Message):
    __slots__ = ("name", "key", "certificate", "signature")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    name: str
    key: bytes
    certificate: bytes
    signature: bytes
    def __init__(self, name: _Optional[str] = ..., key: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class KeyProofs(_message.Message):
    __slots__ = ("proofs",)
    class ProofsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    PROOFS_FIELD_NUMBER: _ClassVar[int]
    proofs: _containers.ScalarMap[str, bytes]
    def __init__(self, proofs: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class CoordinatorMessage(_message.Message):
    __slots__ = ("welcome", "refused", "start", "go", "all_durable", "stop", "goodbye", "heartbeat", "key_ring", "key_proof", "dispute", "padding")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    GO_FIELD_NUMBER: _ClassVar[int]
    ALL_DURABLE_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    KEY_RING_FIELD_NUMBER: _ClassVar[int]
    KEY_PROOF_FIELD_NUMBER: _ClassVar[int]
    DISPUTE_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    refused: Refused
    start: Start
    go: Go
    all_durable: AllDurable
    stop: Stop
    goodbye: Goodbye
    heartbeat: Heartbeat
    key_ring: KeyRing
    key_proof: KeyProof
    dispute: Dispute
    padding: bytes
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., start: _Optional[_Union[Start, _Mapping]] = ..., go: _Optional[_Union[Go, _Mapping]] = ..., all_durable: _Optional[_Union[AllDurable, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., key_ring: _Optional[_Union[KeyRing, _Mapping]] = ..., key_proof: _Optional[_Union[KeyProof, _Mapping]] = ..., dispute: _Optional[_Union[Dispute, _Mapping]] = ..., padding: _Optional[bytes] = ...) -> None: ...

class Dispute(_message.Message):
    __slots__ = ("sender", "stream", "round", "words")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    sender: str
    stream: _agent_pb2.Stream
    round: int
    words: _containers.RepeatedCompositeFieldContainer[Word]
    def __init__(self, sender: _Optional[str] = ..., stream: _Optional[_Union[_agent_pb2.Stream, str]] = ..., round: _Optional[int] = ..., words: _Optional[_Iterable[_Union[Word, _Mapping]]] = ...) -> None: ...

class Word(_message.Message):
    __slots__ = ("agent", "digest")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    agent: str
    digest: bytes
    def __init__(self, agent: _Optional[str] = ..., digest: _Optional[bytes] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("run_id", "run_sha256", "run_json", "protocol_version", "package_version", "go_through", "ledger_round", "ledger_head")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_SHA256_FIELD_NUMBER: _ClassVar[int]
    RUN_JSON_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_VERSION_FIELD_NUMBER: _ClassVar[int]
    GO_THROUGH_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ROUND_FIELD_NUMBER: _ClassVar[int]
    LEDGER_HEAD_FIELD_NUMBER: _ClassVar[int]
    run_id: bytes
    run_sha256: str
    run_json: str
    protocol_version: int
    package_version: str
    go_through: int
    ledger_round: int
    ledger_head: bytes
    def __init__(self, run_id: _Optional[bytes] = ..., run_sha256: _Optional[str] = ..., run_json: _Optional[str] = ..., protocol_version: _Optional[int] = ..., package_version: _Optional[str] = ..., go_through: _Optional[int] = ..., ledger_round: _Optional[int] = ..., ledger_head: _Optional[bytes] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("kind", "reason")
    KIND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    kind: RefusalKind
    reason: str
    def __init__(self, kind: _Optional[_Union[RefusalKind, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("peers", "go_through")
    class PeersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PEERS_FIELD_NUMBER: _ClassVar[int]
    GO_THROUGH_FIELD_NUMBER: _ClassVar[int]
    peers: _containers.ScalarMap[str, str]
    go_through: int
    def __init__(self, peers: _Optional[_Mapping[str, str]] = ..., go_through: _Optional[int] = ...) -> None: ...

class Go(_message.Message):
    __slots__ = ("through",)
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    through: int
    def __init__(self, through: _Optional[int] = ...) -> None: ...

class AllDurable(_message.Message):
    __slots__ = ("through",)
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    through: int
    def __init__(self, through: _Optional[int] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("reason", "exit_code")
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    exit_code: int
    def __init__(self, reason: _Optional[str] = ..., exit_code: _Optional[int] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class KeyRing(_message.Message):
    __slots__ = ("offers",)
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    offers: _containers.RepeatedCompositeFieldContainer[KeyOffer]
    def __init__(self, offers: _Optional[_Iterable[_Union[KeyOffer, _Mapping]]] = ...) -> None: ...

class KeyProof(_message.Message):
    __slots__ = ("sender", "proof")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    sender: str
    proof: bytes
    def __init__(self, sender: _Optional[str] = ..., proof: _Optional[bytes] = ...) -> None: ...

class UploadReply(_message.Message):
    __slots__ = ("vectors",)
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    vectors: int
    def __init__(self, vectors: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("watcher",)
    WATCHER_FIELD_NUMBER: _ClassVar[int]
    watcher: int
    def __init__(self, watcher: _Optional[int] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("state", "round", "iterations", "run_id", "name", "rounds_per_second", "agents", "consensus_error", "reason", "accountant", "delta", "adjacency", "delta_warning", "gives_up_s", "slowest")
    STATE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    CONSENSUS_ERROR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTANT_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    ADJACENCY_FIELD_NUMBER: _ClassVar[int]
    DELTA_WARNING_FIELD_NUMBER: _ClassVar[int]
    GIVES_UP_S_FIELD_NUMBER: _ClassVar[int]
    SLOWEST_FIELD_NUMBER: _ClassVar[int]
    state: str
    round: int
    iterations: int
    run_id: bytes
    name: str
    rounds_per_second: float
    agents: _containers.RepeatedCompositeFieldContainer[AgentStatus]
    consensus_error: float
    reason: str
    accountant: str
    delta: float
    adjacency: str
    delta_warning: str
    gives_up_s: float
    slowest: Slowest
    def __init__(self, state: _Optional[str] = ..., round: _Optional[int] = ..., iterations: _Optional[int] = ..., run_id: _Optional[bytes] = ..., name: _Optional[str] = ..., rounds_per_second: _Optional[float] = ..., agents: _Optional[_Iterable[_Union[AgentStatus, _Mapping]]] = ..., consensus_error: _Optional[float] = ..., reason: _Optional[str] = ..., accountant: _Optional[str] = ..., delta: _Optional[float] = ..., adjacency: _Optional[str] = ..., delta_warning: _Optional[str] = ..., gives_up_s: _Optional[float] = ..., slowest: _Optional[_Union[Slowest, _Mapping]] = ...) -> None: ...

class Slowest(_message.Message):
    __slots__ = ("agent", "phase", "seconds", "share")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    agent: str
    phase: str
    seconds: float
    share: float
    def __init__(self, agent: _Optional[str] = ..., phase: _Optional[str] = ..., seconds: _Optional[float] = ..., share: _Optional[float] = ...) -> None: ...

class AgentStatus(_message.Message):
    __slots__ = ("name", "connected", "round", "last_seen_s", "accuracy_test", "epsilon", "state", "missing_s", "waits_for", "strength")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_S_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_TEST_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MISSING_S_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    STRENGTH_FIELD_NUMBER: _ClassVar[int]
    name: str
    connected: bool
    round: int
    last_seen_s: float
    accuracy_test: float
    epsilon: float
    state: str
    missing_s: float
    waits_for: _containers.RepeatedScalarFieldContainer[str]
    strength: str
    def __init__(self, name: _Optional[str] = ..., connected: _Optional[bool] = ..., round: _Optional[int] = ..., last_seen_s: _Optional[float] = ..., accuracy_test: _Optional[float] = ..., epsilon: _Optional[float] = ..., state: _Optional[str] = ..., missing_s: _Optional[float] = ..., waits_for: _Optional[_Iterable[str]] = ..., strength: _Optional[str] = ...) -> None: ...

class ControlRequest(_message.Message):
    __slots__ = ("action", "reason")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    action: Action
    reason: str
    def __init__(self, action: _Optional[_Union[Action, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class ControlReply(_message.Message):
    __slots__ = ("ok", "message")
    OK_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    message: str
    def __init__(self, ok: _Optional[bool] = ..., message: _Optional[str] = ...) -> None: ...
