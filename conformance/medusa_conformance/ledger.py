"""What a round of a workload takes, as a plain document; no engine has a part in it, and no torch.

Formulas are those of `spec/cost.md`, in its symbols.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

from medusa_oracles.cost import (
    derive_break_even,
    derive_counts,
    derive_expected,
    derive_head_rows,
    derive_node_bytes,
    derive_overhead,
    derive_sizes,
    derive_speedup,
)
from medusa_spec.coordinate import Coordinate, Workload
from medusa_spec.registry import invariants

ASSUMPTIONS = (
    "Every figure that is a count is derived, by the formula beside it.",
    "One multiply-add is two FLOPs.",
    "SiLU, residual sums, norms, softmax, top-k and memory traffic are not counted.",
    "Attention is dense under a mask; what the mask forbids is scored all the same.",
    "Bytes are payload: no allocator's slack, masks, indices or workspace.",
    "One sequence; other batches have a scheduler's costs, too.",
)


class Line(NamedTuple):
    """How a count is told: the rule that it keeps, its formula, and what it is a number of."""

    quantity: str
    code: str
    formula: str
    unit: str


LINES: dict[str, Line] = {
    "head_parameters": Line("parameters of heads", "COST.HEAD_PARAMETERS", "", "parameters"),
    "head_bytes": Line("bytes of heads", "COST.HEAD_PARAMETERS", "b * head_parameters", "bytes"),
    "head_rows": Line("rows of heads, T_h", "COST.ALL_ROWS_OR_TERMINAL", "", "rows"),
    "residual_flops": Line("residual blocks", "COST.HEAD_FLOPS", "2*K*T_h*R_h*d*d", "FLOPs"),
    "projection_flops": Line("head projections", "COST.HEAD_FLOPS", "2*K*T_h*d*V", "FLOPs"),
    "lm_flops": Line("projection of the target", "COST.LM_PROJECTION", "2*N*d*V", "FLOPs"),
    "dense_pairs": Line("pairs that are scored", "COST.DENSE_PAIRS", "N*(P + N)", "pairs"),
    "allowed_pairs": Line("pairs that the mask leaves", "COST.ALLOWED_PAIRS", "N*P + M", "pairs"),
    "logit_elements": Line("logits of the target", "COST.LOGITS", "N*V", "elements"),
    "head_logit_elements": Line("logits of heads", "COST.LOGITS", "K*T_h*V", "elements"),
    "path_logit_elements": Line("logits along paths", "COST.PATH_LOGITS", "R*D*V", "elements"),
    "staged_bytes": Line("staged keys and values", "COST.KV_STAGED", "N*B", "bytes"),
    "committed_bytes": Line("committed keys and values", "COST.KV_COMMITTED", "G*B", "bytes"),
}
"""Every count of a ledger; the formulas of two depend on what the workload declares."""


def ledger_document(coordinate: Coordinate, workload: Workload) -> dict[str, Any]:
    """What `cost --json` prints."""
    tree, profile = derive_sizes(workload), workload.profile
    independent = workload.projection == "independent"
    declared = {
        "head_parameters": "K*(R_h*(d*d + d) + V*d)" if independent else "K*R_h*(d*d + d)",
        "head_rows": "N" if workload.head_rows == "all" else "1",
    }
    counts = derive_counts(workload)
    rates = None
    if profile is not None:
        rates = {
            "expected_published": derive_expected(profile),
            "overhead": derive_overhead(profile),
            "speedup": derive_speedup(profile),
            "breaks_even": derive_break_even(profile),
        }
    plain = coordinate.document()["cost"]
    return {
        "name": coordinate.name,
        "workload": plain,
        "sizes": asdict(tree)
        | {
            "head_rows": derive_head_rows(workload),
            "head_dim": workload.head_dim,
            "node_bytes": derive_node_bytes(workload),
        },
        "entries": [
            {
                "name": name,
                "quantity": line.quantity,
                "code": line.code,
                "clause": invariants()[line.code].clause,
                "formula": declared.get(name, line.formula),
                "value": counts[name],
                "unit": line.unit,
            }
            for name, line in LINES.items()
        ],
        "rates": rates,
        "claim": {
            "counts": "derived",
            "profile": None if profile is None else profile.evidence,
            "batch": workload.batch,
        },
        "assumptions": list(ASSUMPTIONS),
    }
