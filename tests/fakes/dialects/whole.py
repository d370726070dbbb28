"""An answer that is not streamed: one piece of JSON, written when the script has said it all."""

from collections.abc import Callable, Sequence

import msgspec

from tests.fakes.dialects.parts import Part, Parts
from tests.fakes.dialects.steps import (
    Blank,
    CallDelta,
    Done,
    Event,
    Fault,
    Finish,
    Head,
    Ping,
    Raw,
    Reasoning,
    Said,
    Text,
    Usage,
    Wait,
)


class Answer(msgspec.Struct, frozen=True):
    """What is to be written."""

    parts: Sequence[Part]
    finish: str | None
    usage: Usage | None


class WholeBody:
    """Collects a script's pieces for `write`.

    An answer of which the script never tells the end is written up to the field `reason`, which
    tells it in this protocol: what a client sees of an answer that was cut.
    """

    def __init__(
        self,
        headers: dict[str, str],
        write: Callable[[Answer], bytes],
        fault: Callable[[Fault], bytes],
        reason: str,
        *,
        in_order: bool = True,
    ) -> None:
        self.headers = {"content-type": "application/json", **headers}
        self._write = write
        self._fault = fault
        self._reason = f'"{reason}"'.encode()
        self._parts = Parts()
        self._take = self._parts.take_in_order if in_order else self._parts.take
        self._finish: str | None = None
        self._usage: Usage | None = None
        self._written = False

    def feed(self, step: Head | Said | Wait) -> bytes:
        match step:
            case Text() | Reasoning() | CallDelta():
                self._take(step)
            case Finish(reason):
                self._finish = reason
            case Usage():
                self._usage = step
            case Done():
                return self._once(whole=True)
            case Ping():
                return b"\n"  # what may stand before JSON
            case Event(raw) | Raw(raw):
                return raw
            case Fault():
                self._written = True
                return self._fault(step)
            case Head() | Blank() | Wait():
                pass
        return b""

    def close(self) -> bytes:
        ended = self._finish is not None or self._usage is not None
        return self._once(whole=ended) if ended or self._parts.all else b""

    def _once(self, *, whole: bool) -> bytes:
        if self._written:
            return b""
        self._written = True
        written = self._write(Answer(self._parts.all, self._finish, self._usage))
        return written if whole else written.rpartition(self._reason)[0]
