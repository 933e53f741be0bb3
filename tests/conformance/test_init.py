"""What `init` writes: a stub that works as it stands, and connects an engine in a few lines."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import medusa_spec
from medusa_spec.dialect import dialect_from
from medusa_spec.registry import invariants

ADAPTER, TEST = "medusa_adapter.py", "test_medusa.py"
STUB_LINES, CONNECTING_LINES = 40, 20

# The names that the comments of the stub use, over the reference engine.
YOUR_ENGINE = """\
from types import SimpleNamespace
from medusa_reference_engine import ReferenceEngine
from medusa_spec.coordinate import ModelShape

SHAPE = ModelShape(layers=1, hidden=8, attention_heads=2, kv_heads=1, intermediate=8, vocabulary=8,
    rope_theta=10000.0, rms_epsilon=1e-5, head_blocks=1, projection="independent", weight_seed=0)
ENGINE = ReferenceEngine.seeded(SHAPE, 1, 8)


def generate_buffers(paths, topk):
    made = ENGINE.compile_tree(paths, topk, "canonical", -1)
    return SimpleNamespace(tree_indices=made.slots, attn_mask=made.mask, position_ids=made.depths,
        retrieve_indices=made.retrieval)


def evaluate_posterior(logits, candidates, policy):
    chosen = ENGINE.select(candidates, logits, policy)
    return chosen.path, chosen.accepted
"""

OTHERS = ("prefill", "propose", "verify", "commit", "cache", "forward")
EDITS = (
    ("# import your_engine", "from medusa_reference_engine import ReferenceEngine"),
    ('{"dtype": "float32"}', '{"dtype": "float64"}'),
    (
        'counts cache rows."""\n',
        'counts cache rows."""\n'
        "        shape, heads = coordinate.model, coordinate.heads\n"
        "        self.engine = ReferenceEngine.seeded(shape, heads, capacity)\n",
    ),
    (
        'raise Unsupported("connect compile_tree in medusa_adapter.py")',
        "return self.engine.compile_tree(paths, topk, retrieval_order, sentinel)",
    ),
    (
        'raise Unsupported("connect select in medusa_adapter.py")',
        "return self.engine.select(candidates, path_logits, policy)"
        + "".join(
            f"\n    def {n}(self, *given):\n        return self.engine.{n}(*given)" for n in OTHERS
        ),
    ),
)
"""Texts of the stub, and what the author of the reference engine would write instead."""


@pytest.fixture
def stub(call: Callable[..., Any], tmp_path: Path) -> Path:
    """A folder of a name of its own, with what `init` wrote there."""
    answer = call("init", "mine")
    assert answer.code == 0
    return tmp_path / "mine"


@pytest.fixture
def judged(call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Any]:
    """The exit code and the document of a check of the adapter in a folder."""

    def check(folder: Path) -> tuple[int, Any]:
        monkeypatch.chdir(folder)
        answer = call("check", "medusa_adapter:Engine", "--max-examples", "1", "--json")
        return answer.code, json.loads(answer.out)

    return check


def test_the_files_are_listed_with_what_comes_next(call: Callable[..., Any]) -> None:
    answer = call("init", "mine")
    assert re.findall(r"^wrote (.+)$", answer.out, re.MULTILINE) == [
        f"mine/{ADAPTER}",
        f"mine/{TEST}",
    ]
    assert "medusa-oracles check medusa_adapter:Engine" in answer.out
    assert f"pytest {TEST}" in answer.out


def test_the_json_document_lists_them_too(call: Callable[..., Any]) -> None:
    document = json.loads(call("init", "mine", "--json").out)
    assert document == {"folder": "mine", "written": [f"mine/{ADAPTER}", f"mine/{TEST}"]}


def test_the_adapter_is_short(stub: Path) -> None:
    lines = (stub / ADAPTER).read_text("utf-8").splitlines()
    assert 20 < len(lines) <= STUB_LINES
    assert max(map(len, lines)) <= 100
    assert sum("#" in line or '"""' in line for line in lines) > 10


def test_what_the_adapter_says_in_passing_is_true(stub: Path) -> None:
    text = (stub / ADAPTER).read_text("utf-8")
    (refusal,) = re.findall(
        r"^from medusa_spec import Unsupported  # and (\w+)", text, re.MULTILINE
    )
    assert getattr(medusa_spec, refusal) is medusa_spec.Refused
    (stride,) = re.findall(r'^ +#   "slots": (\d+),', text, re.MULTILINE)
    assert dialect_from({"slots": int(stride)}, ADAPTER).slots == 10


def test_untouched_it_is_inconclusive_and_says_what_to_do(
    stub: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stub)
    answer = call("check", "medusa_adapter:Engine", "--max-examples", "1")
    assert answer.code == 2
    assert "connect compile_tree in medusa_adapter.py" in answer.out
    assert "connect select in medusa_adapter.py" in answer.out
    assert re.search(
        r"^INCONCLUSIVE  None of \d+ invariants was executed", answer.out, re.MULTILINE
    )
    assert not (stub / ".medusa").exists()


def test_the_test_that_is_written_skips_and_is_not_green(stub: Path, python: Any) -> None:
    plugin = ("-p", "no:medusa", "-p", "medusa_conformance.pytest_plugin")
    done = python("-m", "pytest", *plugin, "-q", "-rs", f"--rootdir={stub}", stub / TEST)
    assert done.returncode == 1
    assert f"1 failed, {len(invariants())} skipped" in done.stdout
    assert "connect select in medusa_adapter.py" in done.stdout
    assert "INCONCLUSIVE" in done.stdout


def test_its_comments_connect_an_engine(stub: Path, judged: Callable[[Path], Any]) -> None:
    (stub / "your_engine.py").write_text(YOUR_ENGINE, "utf-8")
    text = (stub / ADAPTER).read_text("utf-8")
    # Of what is commented out, code alone: names, keywords and what continues them.
    text = re.sub(r"^( *)# (?=import|b = |return|best|        \")", r"\1", text, flags=re.MULTILINE)
    entries = re.findall(r'^ +#   ("(?:policy|reasons)": .+?)(?:  #.*)?$', text, re.MULTILINE)
    assert len(entries) == 2
    text = text.replace('"float32"}', f'"float64", {" ".join(entries)}}}')
    (stub / ADAPTER).write_text(text, "utf-8")
    code, document = judged(stub)
    assert (code, document["verdict"]) == (0, "pass")
    executed = {row["contract"] for row in document["invariants"] if row["executed"]}
    assert executed == {"tree", "posterior"}


def test_twenty_lines_connect_a_whole_engine(stub: Path, judged: Callable[[Path], Any]) -> None:
    before = after = (stub / ADAPTER).read_text("utf-8")
    for old, new in EDITS:
        assert after.count(old) == 1
        after = after.replace(old, new)
    (stub / ADAPTER).write_text(after, "utf-8")
    compared = difflib.ndiff(before.splitlines(), after.splitlines())
    assert 5 < sum(line.startswith("+ ") for line in compared) <= CONNECTING_LINES
    code, document = judged(stub)
    assert (code, document["verdict"], document["findings"]) == (0, "pass", [])
    executed = {row["contract"] for row in document["invariants"] if row["executed"]}
    whole = {"tree", "proposal", "verification", "posterior", "commit", "round"}
    # Its plain pass shows what decoding makes of its heads.
    assert executed == whole | {"heads"}


@pytest.mark.parametrize("present", [ADAPTER, TEST])
def test_nothing_is_overwritten(present: str, refuse: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / present).write_text("mine", "utf-8")
    said = refuse("init", "mine")
    assert said == f"mine/{present}: is there already, and is not overwritten"
    assert (tmp_path / "mine" / present).read_text("utf-8") == "mine"


def test_a_link_that_leads_nowhere_is_there_already(
    refuse: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / TEST).symlink_to(tmp_path / "elsewhere")
    assert "is not overwritten" in refuse("init", "mine")
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_cannot_be_made_is_one_error(
    refuse: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    assert "file/mine" in refuse("init", "file/mine")
    assert "is a file" in refuse("init", "file")
