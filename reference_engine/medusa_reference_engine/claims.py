"""What is published of facts: every figure typed, every policy called what it is (0x00F, 0x0A)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from medusa_spec.claims import CONTRACT_WORDS, Claims, Facts, Figure, Law, lineage, scope


class ClaimsStage:
    """Clauses E1 to E9."""

    def publish(self, facts: Facts) -> Claims:
        """The claims of these facts, figure by figure in their order."""
        # A figure stands behind those that it is computed of, so theirs are known by then.
        made: dict[str, Mapping[str, Any]] = {}
        for figure in facts.figures:
            made[figure.name] = self.figure(figure, made)
        kept = [entry for entry in made.values() if self.keeps(entry)]
        return Claims(
            figures=tuple(kept),
            policies=tuple({"mode": law.mode, "claim": self.claim(law)} for law in facts.policies),
            batch=self.batch(),
            lineage=tuple(self.lineage()),
            scope=tuple(self.scope()),
        )

    def figure(self, figure: Figure, made: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """One figure, typed."""
        evidence = self.evidence(figure)
        inputs = [made[name] for name in self.inputs(figure)]
        rests_on = self.rests_on(figure, inputs)
        return {
            "name": figure.name,
            "value": self.value(figure),
            "unit": figure.unit,
            "quantity": figure.quantity,
            "evidence": evidence,
            "rests_on": sorted(rests_on),
            "sources": sorted(self.sources(figure, inputs)),
            "local": self.local(figure, rests_on),
            **self.carried(figure),
        }

    def evidence(self, figure: Figure) -> str:
        """Clause E1: what the figure is."""
        match figure.origin["kind"]:
            case "computed":
                return "derived"
            case "made-up":
                return "synthetic"
            case "run":
                return "measured"
            case _:
                return "source-reported"

    def carried(self, figure: Figure) -> Mapping[str, Any]:
        """Clause E1: what it has to carry; a source stands among the sources."""
        return {k: v for k, v in figure.origin.items() if k not in ("kind", "source")}

    def value(self, figure: Figure) -> float:
        """Clause E2: as it is known."""
        return figure.value

    def keeps(self, entry: Mapping[str, Any]) -> bool:
        """Clause E2: whatever a figure says."""
        return True

    def inputs(self, figure: Figure) -> Sequence[str]:
        """The figures that a figure is computed of."""
        inputs: Sequence[str] = figure.origin.get("inputs", ())
        return inputs

    def rests_on(self, figure: Figure, inputs: Sequence[Mapping[str, Any]]) -> set[str]:
        """Clause E5: its own evidence, or that of all that it is computed of."""
        if figure.origin["kind"] != "computed":
            return {self.evidence(figure)}
        return {basis for entry in inputs for basis in entry["rests_on"]}

    def sources(self, figure: Figure, inputs: Sequence[Mapping[str, Any]]) -> set[str]:
        """Clause E4: its own source, and those of all that it is computed of."""
        own = {figure.origin["source"]} if "source" in figure.origin else set()
        return own | {source for entry in inputs for source in entry["sources"]}

    def local(self, figure: Figure, rests_on: set[str]) -> bool:
        """Clauses E3 to E5: whether all that it rests on was measured in this run."""
        return rests_on == {"measured"}

    def claim(self, law: Law) -> str:
        """Clause E6."""
        if self.is_heuristic(law):
            return "heuristic"
        if law.distance is None:
            return self.unproven(law)
        return self.exact(law)

    def is_heuristic(self, law: Law) -> bool:
        """Modes that leave their law for some tables, and any that was seen to leave it."""
        known = law.mode in ("nucleus-per-path", "rejection-uncorrected")
        return known or "-typical-" in f"-{law.mode}-" or bool(law.distance)

    def unproven(self, law: Law) -> str:
        """What a mode is called whose outcomes nobody enumerated."""
        return "unproven"

    def exact(self, law: Law) -> str:
        """What a mode is called that keeps its law."""
        return "greedy-exact" if law.mode == "greedy" else "target-law"

    def batch(self) -> int:
        """Clause E7."""
        return 1

    def lineage(self) -> list[Mapping[str, Any]]:
        """Clause E9: the table of the specification, by its words."""
        keys = ("method", *CONTRACT_WORDS)
        return [{key: method[key] for key in keys} for method in lineage()["methods"]]

    def scope(self) -> list[Mapping[str, Any]]:
        """Clause E8: everything that is left to others, and to whom."""
        return [
            {"topic": entry["topic"], "owner": entry["owner"], "covered": False}
            for entry in scope()
        ]
