"""What goes wrong with an engine before anything can be judged: it is never a pass or a kill."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from medusa_spec.wire import short

IncidentKind: TypeAlias = Literal["crash", "exit", "hang", "endless", "rubbish"]

KINDS: tuple[IncidentKind, ...] = get_args(IncidentKind)


class Incident(Exception):
    """What an engine did instead of answering.

    `crash`: it failed, and said so. `exit`: its process ended, or closed its output. `hang`: no
    reply in time. `endless`: a reply beyond the limit. `rubbish`: an answer that is of no form that
    was asked for. `stage` is what was asked: `start`, `capabilities` or `stop` where it is none.
    `asked` is false where it was not asked at all, because of what had happened before.
    """

    def __init__(self, kind: IncidentKind, stage: str, text: str, asked: bool = True) -> None:
        self.kind = kind
        self.stage = stage
        self.text = short(text)
        self.asked = asked
        super().__init__(f"{kind} in {stage}: {self.text}")

    def __reduce__(self) -> tuple[type[Incident], tuple[IncidentKind, str, str, bool]]:
        # Pickled with what it was made of: the message alone would not make it again.
        return type(self), (self.kind, self.stage, self.text, self.asked)
