"""A second process of an agent's name, started by mistake while the first may live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpgt_node import __version__
from dpgt_node.errors import ExitCode
from dpgt_node.protocol import messages as m
from tests.swarm.clock import SECOND
from tests.swarm.disk import Disk
from tests.swarm.network import End
from tests.swarm.process import COORDINATOR, Process

if TYPE_CHECKING:
    from tests.swarm.world import World

PATIENCE_NS = 30 * SECOND


class Twin(Process):
    """It registers with what ``disk`` holds and waits for an answer.  Whatever that is, its operator ends it then:
    nothing is ever drawn here.
    """

    def __init__(self, world: World, index: int, disk: Disk, package_version: str = __version__) -> None:
        super().__init__(world, index, f"{world.names[index]}'s twin")
        self.released = disk.released
        self._register = m.Register(
            name=world.names[index],
            run_sha256="",
            run_json=world.run_json,
            advertise=world.names[index],
            samples=None,
            dimension=world.dimension,
            shape_sha256="",
            last_released_round=disk.released,
            last_done_round=-1,
            last_durable_round=-1,
            finished=False,
            run_id=disk.run_id or b"",
            instance=bytes([index]) + b"%015d" % world.clock.now_ns,  # another than that of an earlier twin
            package_version=package_version,
        )

    def start(self) -> None:
        """Dial, once."""
        self.later(PATIENCE_NS, self._leave)
        self.world.network.dial(self, COORDINATOR, "join", self._opened, self._leave)

    def _opened(self, end: End) -> None:
        def hears(message: Any) -> None:
            self.world.saw(self.index, "its twin hears", message)
            end.close()
            self._leave()

        end.on_message, end.on_end = hears, self._leave
        end.write(self._register)

    def _leave(self) -> None:
        self.alive, self.exit_code = False, ExitCode.REFUSED
        self.world.network.reset_host(self)
