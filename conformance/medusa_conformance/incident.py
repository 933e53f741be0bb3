"""What goes wrong with an engine before anything can be judged: it is never a pass or a kill."""

from __future__ import annotations

from typing import Literal, TypeAlias

from medusa_spec.errors import one_line

IncidentKind: TypeAlias = Literal["crash", "exit", "hang", "endless", "rubbish"]
"""`crash` an exception, `exit` the process ended, `hang` no reply within the time limit, `endless`
a reply without an end, `rubbish` a reply that is of no form that can be read."""


class Incident(Exception):
    """A stage gave no answer that can be judged. `stage` is "start" before the first one."""

    def __init__(self, kind: IncidentKind, stage: str, text: str) -> None:
        self.kind = kind
        self.stage = stage
        self.text = one_line(text)
        super().__init__(f"{kind} in {stage}: {self.text}")

    def __reduce__(self) -> tuple[type[Incident], tuple[IncidentKind, str, str]]:
        return type(self), (self.kind, self.stage, self.text)
