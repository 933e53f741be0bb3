"""A whole run, far too small to learn much: what it writes, and what it says."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from medusa_conformance.render import show
from medusa_conformance.render_train import trained
from medusa_conformance.tables import read_calibration
from medusa_oracles.claims_text import audit
from medusa_reference_engine import ReferenceEngine
from medusa_reference_engine.training_run import Recipe, report, run, train
from medusa_reference_engine.training_run.corpus import read_corpus, standard_library
from medusa_reference_engine.training_run.decoding import GREEDY, difference
from medusa_reference_engine.weights import load_checkpoint
from medusa_spec.documents import schema_errors
from medusa_spec.errors import InputError

FILES = {"accuracy.csv", "accuracy.yaml", "checkpoint", "heads", "report.json", "report.md"}


def quiet(*_: Any) -> None:
    pass


def timeless(document: dict[str, Any]) -> dict[str, Any]:
    return document | {"seconds": {}}


def test_it_writes_its_files_and_nothing_else(ran: Any) -> None:
    assert {file.name for file in ran.folder.iterdir()} == FILES
    assert {file.name for file in (ran.folder / "checkpoint").iterdir()} == {
        "config.json",
        "model.safetensors",
    }
    assert list(ran.folder.parent.iterdir()) == [ran.folder]


def test_the_report_is_the_document(ran: Any) -> None:
    assert json.loads((ran.folder / "report.json").read_text("utf-8")) == ran.document
    assert schema_errors(ran.document, "train") == []
    assert ran.document["verdict"] == "pass"
    assert (ran.document["seed"], ran.document["command"]) == (3, "again")
    assert ran.document["machine"]["threads"] == ran.document["recipe"]["threads"] == 1


def test_every_stage_is_told_from_nothing_to_its_end(ran: Any) -> None:
    stages = list(dict.fromkeys(stage for stage, _, _ in ran.progress))
    assert stages == list(ran.document["seconds"])
    assert "training the backbone" in stages
    for stage in stages:
        told = [(done, total) for name, done, total in ran.progress if name == stage]
        assert told == [(done, told[0][1]) for done in range(told[0][1] + 1)]


def test_the_corpus_is_named_by_its_digest(ran: Any, tiny: Recipe) -> None:
    corpus = read_corpus(standard_library(), tiny.corpus_bytes, least=1)
    assert ran.document["corpus"]["sha256"] == corpus.sha256
    assert sum(ran.document["corpus"]["bytes"].values()) == tiny.corpus_bytes


def test_the_table_is_the_reports(ran: Any, tiny: Recipe) -> None:
    with (ran.folder / "accuracy.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["head", *(f"top{rank}" for rank in range(1, 11)), "rows"]
    assert [row["head"] for row in rows] == ["ordinary", "0", "1", "2"]
    for head, row in enumerate(rows):
        assert int(row["rows"]) == tiny.windows * (tiny.length - head - 1)
        shares = [float(row[f"top{rank}"]) for rank in range(1, 11)]
        assert shares == sorted(shares)
        assert shares == pytest.approx(ran.document["heads"][head]["top"], abs=1e-6)


def test_the_page_has_every_figure_and_says_where_it_is_from(ran: Any) -> None:
    text = (ran.folder / "report.md").read_text("utf-8")
    assert text.startswith("# A training run, PASS\n")
    assert text.count("measured here") == 4
    assert "`again` on " in text
    for row in ran.document["decoding"]:
        mean = row["published"] / row["rounds"]
        line = (row["heads"], row["prompts"], row["rounds"], row["published"], f"{mean:.2f}")
        assert "| " + " | ".join(map(str, line)) + " |" in text
    for row in ran.document["heads"]:
        assert f"| {row['head']} | {row['labels']} | {row['top'][0]:.3f} |" in text
        assert f"| {row['loss']['held_out']['end']:.3f} |" in text


def test_every_figure_of_the_page_and_of_the_terminal_is_typed(
    ran: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ran.folder / "report.md").read_text("utf-8")
    assert audit(page) == []
    assert audit(page.replace("measured here", "here")) != []
    show(trained(ran.document, ran.folder))
    told = capsys.readouterr().out
    assert "derived from the accuracies: " in told
    # The terminal does not repeat by which command; the page does.
    assert [found.lacks for found in audit(told)] == ["the command of what is measured"]


def test_the_checkpoint_decodes_as_plain_greedy_decoding_does(ran: Any, tiny: Recipe) -> None:
    engine = ReferenceEngine.from_checkpoint(ran.folder / "checkpoint", 64, dtype="float64")
    tokens = list(b"import os\n")
    for _ in range(8):
        tokens.append(int(np.argmax(engine.forward(tokens).logits[-1])))
    paths = [tuple(path) for path in ran.document["tree"]]
    decoded = engine.generate(tokens[:-8], 8, paths, 10, GREEDY, None)
    assert list(decoded.tokens) == tokens[-8:]
    assert engine.forward(tokens).head_logits.shape[0] == tiny.heads


def test_the_heads_alone_say_what_they_stand_on(ran: Any, tiny: Recipe) -> None:
    folder = ran.folder / "heads"
    assert {file.name for file in folder.iterdir()} == {
        "medusa_config.json",
        "medusa_heads.safetensors",
    }
    said = json.loads((folder / "medusa_config.json").read_text("utf-8"))
    assert said["base"] == "medusa-oracles train"
    # The tensors of the backbone by name, and no head's: other heads on it name the same one.
    assert said["base_revision"] == ran.document["backbone_sha256"]["before"]
    assert (said["heads"], said["variant"], said["dtype"]) == (tiny.heads, "medusa-1", "float32")
    inside = load_file(ran.folder / "checkpoint" / "model.safetensors")
    alone = load_file(folder / "medusa_heads.safetensors")
    assert alone.keys() == {name for name in inside if name.startswith("medusa_head.")}
    assert all(torch.equal(alone[name], inside[name]) for name in alone)


def test_the_page_says_how_to_load_it(
    ran: Any, tiny: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ran.folder / "report.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    monkeypatch.chdir(ran.folder)
    known: dict[str, Any] = {"POLICY": GREEDY}
    exec(code, known)
    state = known["model"].forward([1]).state
    assert len(state.weight) == tiny.heads


def test_a_search_is_told_what_was_measured(ran: Any, tiny: Recipe) -> None:
    found = read_calibration(ran.folder / "accuracy.yaml", 4, None, None)
    assert (found.evidence, found.policy, found.form) == ("measured", "greedy", "cumulative")
    assert len(found.accuracy) == tiny.heads
    as_csv = read_calibration(ran.folder / "accuracy.csv", 4, None, None)
    assert found.accuracy == as_csv.accuracy
    backbone = ran.document["backbone_sha256"]["after"]
    assert found.model == f"medusa-oracles train, backbone {backbone[:12]}"


def test_a_head_that_is_missing_beside_the_base_is_told_of(ran: Any, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(ran.folder / "checkpoint", folder)
    file = folder / "model.safetensors"
    save_file({n: t for n, t in load_file(file).items() if "head.2." not in n}, file)
    with pytest.raises(InputError, match=r"medusa_heads: is 3, and 2 heads are in model"):
        load_checkpoint(folder)


def test_heads_that_are_others_in_their_own_folder_fail(
    tiny: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = run.save_heads

    def spoil(folder: Path, recipe: Recipe, weights: Any, backbone: str) -> Any:
        bias = {n: w + 1 for n, w in weights.items() if n.endswith("linear.bias")}
        return honest(folder, recipe, weights | bias, backbone)

    monkeypatch.setattr(run, "save_heads", spoil)
    document = train(tmp_path / "trained", replace(tiny, backbone_steps=1), 0, "", quiet)
    (broken,) = [entry for entry in document["rules"] if not entry["holds"]]
    assert broken["rule"].startswith("the heads' own folder")
    assert broken["observed"] == "their bias is another"


def test_a_seed_gives_the_same_run(ran: Any, tiny: Recipe, tmp_path: Path) -> None:
    torch.set_num_threads(3)
    again = train(tmp_path / "again", tiny, 3, "again", quiet)
    assert torch.get_num_threads() == 3
    torch.set_num_threads(1)
    assert timeless(again) == timeless(ran.document)
    tensors = [
        load_checkpoint(folder / "checkpoint")[1] for folder in (ran.folder, tmp_path / "again")
    ]
    assert tensors[0].keys() == tensors[1].keys()
    assert all(torch.equal(tensors[0][name], tensors[1][name]) for name in tensors[0])
    other = train(tmp_path / "other", tiny, 4, "again", quiet)
    assert other["backbone_sha256"] != ran.document["backbone_sha256"]


def test_output_that_parts_from_plain_decoding_fails(
    tiny: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = run.plain

    def wrong(*given: Any) -> list[tuple[int, ...]]:
        first, second = honest(*given)
        return [first, (*second[:4], second[4] ^ 1, *second[5:])]

    monkeypatch.setattr(run, "plain", wrong)
    document = train(tmp_path / "trained", replace(tiny, backbone_steps=1), 0, "", quiet)
    assert document["verdict"] == "fail"
    broken = [entry for entry in document["rules"] if not entry["holds"]]
    assert len(broken) == 2
    assert all("plain greedy decoding" in entry["rule"] for entry in broken)
    assert all(entry["observed"].startswith("prompt 1, byte 4: expected ") for entry in broken)
    text = (tmp_path / "trained" / "report.md").read_text("utf-8")
    assert text.startswith("# A training run, FAIL\n")
    assert text.count("- BROKEN: ") == 2


def test_a_backbone_that_changes_fails(
    tiny: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = run.train_heads

    def thaw(learner: Any, *given: Any) -> None:
        honest(learner, *given)
        with torch.no_grad():
            learner.parameters["model.norm.weight"][0] += 1e-3

    monkeypatch.setattr(run, "train_heads", thaw)
    document = train(tmp_path / "trained", replace(tiny, backbone_steps=1), 0, "", quiet)
    broken = [entry["rule"] for entry in document["rules"] if not entry["holds"]]
    assert broken[0].startswith("the backbone is the same")
    assert document["verdict"] == "fail"


def test_a_checkpoint_that_is_another_model_fails(
    tiny: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = run.save

    def spoil(folder: Path, recipe: Recipe, weights: dict[str, Any]) -> None:
        honest(folder, recipe, weights | {"lm_head.weight": weights["lm_head.weight"].flip(0)})

    monkeypatch.setattr(run, "save", spoil)
    document = train(tmp_path / "trained", tiny, 0, "", quiet)
    broken = [entry["rule"] for entry in document["rules"] if not entry["holds"]]
    assert len(broken) == 2
    assert broken[1] == "the checkpoint, loaded again, decodes the same"


def test_no_report_leaves_its_schema(ran: Any) -> None:
    for field in ran.document:
        less = {name: value for name, value in ran.document.items() if name != field}
        assert schema_errors(less, "train") == [("", f"'{field}' is a required property")]
    ((_, rule),) = schema_errors(ran.document | {"note": ""}, "train")
    assert "'note' was unexpected" in rule


def test_a_difference_is_the_first_one() -> None:
    assert difference([(1, 2), (3, 4)], [(1, 2), (3, 4)]) is None
    found = difference([(1, 2), (3, 4)], [(1, 2), (9, 8)])
    assert str(found) == "prompt 1, byte 0: expected 3, published 9"


def test_the_ordinary_head_starts_with_the_backbone() -> None:
    def measured(losses: list[float]) -> Any:
        shares = np.zeros((2, 10))
        return report.Measured(np.array([5, 4]), np.array(losses), shares)

    texts = ("training", "held_out")
    rows = report.head_rows(
        *({text: measured(losses) for text in texts} for losses in ([5.5, 9], [2, 8], [2, 3]))
    )
    assert [row["loss"]["held_out"] for row in rows] == [
        {"start": 5.5, "end": 2.0},
        {"start": 8.0, "end": 3.0},
    ]
