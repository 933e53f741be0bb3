"""Documents that cannot be used: each names its file, its field and the rule, in one line."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import medusa_manifests
from medusa_spec import InputError, choices_from, coordinate_from, load_coordinate, source_pin
from medusa_spec.documents import SIZE_LIMIT, load_document, parse_yaml

LEGACY = "medusa/model/medusa_model_legacy.py"
TOKEN_ROOM = "is outside the vocabulary of 128"

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def base() -> dict[str, Any]:
    document = yaml.safe_load(medusa_manifests.path("verification-p5").read_text("utf-8"))
    # A coordinate carries no note, and its frozen values belong to the tree as it stands.
    del document["note"], document["expected"]
    return document


def put(field: str, value: Any) -> Change:
    """Set one dotted field; a number is the index into a list."""

    def change(document: Any) -> None:
        *way, last = [int(part) if part.isdigit() else part for part in field.split(".")]
        for part in way:
            document = document[part]
        document[last] = value

    return change


def drop(field: str) -> Change:
    return lambda document: document.pop(field)


def add_path(*paths: list[int]) -> Change:
    return lambda document: document["paths"].extend(paths)


def refusal(source: Path | Any, load: Callable[[Any], Any] = load_coordinate) -> str:
    with pytest.raises(InputError) as caught:
        load(source)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_the_unchanged_document_is_a_coordinate(base):
    assert coordinate_from(base, "base.yaml").document() == base


def test_paths_may_stand_in_any_order(base):
    turned = base | {"paths": base["paths"][::-1]}
    assert coordinate_from(turned, "base.yaml") == coordinate_from(base, "base.yaml")


@pytest.mark.parametrize(
    ("change", "field", "rule", "code"),
    [
        (add_path([5, 0]), "paths[8]", "[5, 0] has no ancestor [5]", "PREFIX_CLOSED"),
        (add_path([1, 2]), "paths[8]", "[1, 2] occurs twice", "PATHS_DISTINCT"),
        (add_path([10]), "paths[8]", "rank 10 of [10] is outside [0, TOPK=10)", "RANK_BELOW_TOPK"),
        (add_path([-1]), "paths[8]", "rank -1 of [-1] is outside [0, TOPK=10)", "RANK_BELOW_TOPK"),
        (
            add_path([0, 0, 0]),
            "paths[8]",
            "[0, 0, 0] has depth 3, and there are 2 heads",
            "DEPTH_WITHIN_HEADS",
        ),
        (
            put("prefix_length", 4),
            "prefix_length",
            "is 4, and the prefix has 5 tokens",
            "PREFIX_LENGTH",
        ),
        (
            put("capacity", 13),
            "capacity",
            "14 rows for prefix and tree exceed the cache of 13",
            "CAPACITY",
        ),
        (put("prefix.2", 128), "prefix[2]", f"token 128 {TOKEN_ROOM}", "TOKEN_DOMAIN"),
        (put("ranking.heads.1.3", 128), "ranking.heads[1][3]", TOKEN_ROOM, "TOKEN_DOMAIN"),
        (
            put("ranking.heads.0", [21, 22]),
            "ranking.heads[0]",
            "needs TOPK=10 different tokens",
            "TOKEN_DOMAIN",
        ),
        (put("ranking.heads", [[*range(10)]]), "ranking.heads", "1 heads of 2", "TOKEN_DOMAIN"),
        (
            put("source.commit", "0" * 40),
            "source.commit",
            "is not the pinned e2a5d20c048a9b0a4092e6933c34313687422518",
            "SOURCE_PIN",
        ),
        (
            put("source.files", {"medusa/model/utils.py": "0" * 64}),
            "source.files[medusa/model/utils.py]",
            "SHA-256 000000000000… is not the pinned f62632ce0892…",
            "SOURCE_PIN",
        ),
        (
            put("source.files", {LEGACY: source_pin()["files"][LEGACY]}),
            f"source.files[{LEGACY}]",
            "does not belong to the current variant",
            "SOURCE_PIN",
        ),
        (
            put("source.variant", "legacy"),
            "source.files[medusa/model/medusa_model.py]",
            "does not belong to the legacy variant",
            "SOURCE_PIN",
        ),
        (
            put("source.files", {"setup.py": "0" * 64}),
            "source.files[setup.py]",
            "is not a pinned file",
            "SOURCE_PIN",
        ),
    ],
)
def test_a_broken_rule_is_named_by_its_code(base, tmp_path, change, field, rule, code):
    changed = copy.deepcopy(base)
    change(changed)
    file = tmp_path / "changed.yaml"
    file.write_text(yaml.safe_dump(changed), "utf-8")
    text = refusal(file)
    assert text.startswith(f"{file}: {field}: ")
    assert rule in text
    assert text.endswith(f" (COORDINATE.{code})")


@pytest.mark.parametrize(
    ("change", "place", "rule"),
    [
        (put("pathes", []), "", "'pathes' was unexpected"),
        (put("policy.delta", 0.3), "policy", "'delta' was unexpected"),
        (drop("capacity"), "", "'capacity' is a required property"),
        (lambda d: d["policy"].pop("seed"), "policy", "'seed' is a required property"),
        (put("topk", "10"), "topk", "'10' is not of type 'integer'"),
        (put("topk", 10.0), "topk", "10.0 is not of type 'integer'"),
        (put("topk", True), "topk", "True is not of type 'integer'"),
        (put("paths.0", 3), "paths[0]", "3 is not of type 'array'"),
        (put("paths.0", []), "paths[0]", "[] should be non-empty"),
        (put("prefix", []), "prefix", "[] should be non-empty"),
        (put("policy.temperature", 1), "policy.temperature", "0 was expected"),
        (put("policy.comparison", ">="), "policy.comparison", "'>' was expected"),
        (put("policy.sentinel", 0), "policy.sentinel", "0 is greater than the maximum of -1"),
        (put("policy.epsilon", float("nan")), "policy.epsilon", "nan is not of type 'number'"),
        (put("policy.alpha", float("inf")), "policy.alpha", "inf is not of type 'number'"),
        (put("policy.seed", 2**63), "policy.seed", "is greater than the maximum"),
        (put("name", "two-lines\n"), "name", r"'two-lines\n' does not match"),
        (put("posterior.0.probabilities", {"7\n": 0.9}), "posterior[0].probabilities", r"'7\n'"),
    ],
)
def test_a_document_that_leaves_its_schema(base, tmp_path, change, place, rule):
    changed = copy.deepcopy(base)
    change(changed)
    file = tmp_path / "changed.yaml"
    file.write_text(yaml.safe_dump(changed), "utf-8")
    text = refusal(file)
    assert text.startswith(f"{file}: {place}: " if place else f"{file}: ")
    assert rule in text
    assert text.endswith(" (COORDINATE.SCHEMA)")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (put("heads", 10**400), "heads"),
        (put("capacity", -(10**400)), "capacity"),
        (put("paths.0", [10**400]), "paths[0][0]"),
    ],
)
def test_an_integer_beyond_every_bound(base, change, place):
    changed = copy.deepcopy(base)
    change(changed)
    text = refusal(changed, lambda document: coordinate_from(document, "m.yaml"))
    assert text == f"m.yaml: {place}: breaks the rule type: integer (COORDINATE.SCHEMA)"


@pytest.mark.parametrize(
    ("change", "place", "rule"),
    [
        (put("end_of_sequence", 128), "end_of_sequence", f"token 128 {TOKEN_ROOM}"),
        (put("model.hidden", 12), "model.hidden", "is 12; rotary pairs need a multiple"),
        (put("model.kv_heads", 3), "model.kv_heads", "does not divide the 4 attention heads"),
        (
            put("rounds", [None, {"path": [7], "edges": 1}]),
            "rounds[1].path",
            "[7] is not a path of the tree",
        ),
        (
            put("rounds", [{"path": [0], "edges": 2}]),
            "rounds[0].edges",
            "is 2, and the path has 1",
        ),
        (put("posterior.1.path", [4]), "posterior[1].path", "[4] is not a path of the tree"),
        (put("posterior.1.path", []), "posterior[1].path", "[] occurs twice"),
        (put("posterior.0.rest", 0.2), "posterior[0]", "adds up to 1.1, and not to 1"),
        (
            put("posterior.0.probabilities", {"128": 0.9}),
            "posterior[0].probabilities",
            f"token 128 {TOKEN_ROOM}",
        ),
        (
            put("posterior.0.probabilities", {str(t): 0.9 / 128 for t in range(128)}),
            "posterior[0].rest",
            "has no other token to be spread over",
        ),
        (put("branching", [2, 2]), "branching", "is [2, 2], and the paths branch otherwise"),
        (put("branching", [2]), "branching", "is [2], and the paths branch otherwise"),
    ],
)
def test_parts_that_do_not_fit_each_other(base, change, place, rule):
    changed = copy.deepcopy(base)
    change(changed)
    text = refusal(changed, lambda document: coordinate_from(document, "m.yaml"))
    assert text.startswith(f"m.yaml: {place}: ")
    assert rule in text


@pytest.mark.parametrize(
    ("change", "place", "rule"),
    [
        (lambda e: e["parents"].pop(), "parents", "has 8 entries for 9 rows"),
        (lambda e: e["attention_mask"][2].pop(), "attention_mask", "has rows of [8, 9] entries"),
        (lambda e: e["attention_mask"].pop(), "attention_mask", "has 8 entries for 9 rows"),
        (lambda e: e["retrieve_indices"][0].pop(), "retrieve_indices", "has rows of [2, 3]"),
    ],
)
def test_frozen_values_have_the_shape_of_their_tree(change, place, rule):
    document = yaml.safe_load(medusa_manifests.path("verification-p5").read_text("utf-8"))
    change(document["expected"])
    text = refusal(document, lambda changed: coordinate_from(changed, "m.yaml"))
    assert text.startswith(f"m.yaml: expected.{place}: ")
    assert rule in text


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("tag.yaml", b"a: !!python/object/apply:os.getcwd []", "line 1 column 4: not plain YAML"),
        ("tag.yaml", b"a: !!python/object/apply:os.getcwd []", "tags are not used here"),
        ("empty-int.yaml", b"a: !!int ''", "tags are not used here"),
        ("bomb.yaml", b"a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", "line 2 column 8: not plain YAML"),
        ("bomb.yaml", b"a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", "aliases are not used here"),
        ("twice.yaml", b"a: 1\na: 2", "line 2 column 1: not plain YAML: 'a' is given twice"),
        ("key.yaml", b"21: 1", "line 1 column 1: not plain YAML: a key must be a string"),
        ("deep.yaml", b"[" * 900 + b"]" * 900, "is nested too deeply"),
        ("deeper.yaml", b"[" * 5000 + b"]" * 5000, "nest"),
        ("open.yaml", b"a: [1, 2", "expected ',' or ']'"),
        ("control.yaml", b"a: \x00", "not plain YAML: unacceptable character"),
        ("date.yaml", b"2020-13-45", "'2020-13-45' is not of type 'object'"),
        ("sixty.yaml", b"a: 1" + b":00" * 200 + b".0", "column 4: not plain YAML: a number has"),
        ("sixty.yaml", b"a: 1" + b":00" * 50_000, "a number has too many digits"),
        ("hex.yaml", b"[[0x" + b"f" * 10_000 + b"]]", "a number has too many digits"),
        ("latin.yaml", "name: Größe".encode("latin-1"), "is not UTF-8 at byte 8"),
        ("empty.yaml", b"", "None is not of type 'object'"),
        ("cut.json", b'{"name": "a31", "paths": [[0], [', "line 1 column 33: not JSON"),
        ("nan.json", b'{"topk": NaN}', "NaN is not a JSON value"),
        ("infinity.json", b"[-Infinity]", "-Infinity is not a JSON value"),
        ("huge.json", b"[" + b"1" * 5000 + b"]", "not JSON: an integer has too many digits"),
        ("twice.json", b'{"a": 1, "a": 2}', "a: is given twice"),
        ("lines.json", b'{"a\\nb": 1, "a\\nb": 2}', r"a\nb: is given twice"),
        ("surrogate.json", b'{"\\ud800": 1, "\\ud800": 2}', r"\ud800: is given twice"),
        ("deep.json", b"[" * 100_000 + b"]" * 100_000, "is nested too deeply"),
        ("latin.json", b'"\xff"', "is not UTF-8 at byte 1"),
    ],
)
def test_a_file_that_is_no_plain_document(tmp_path, name, content, rule):
    file = tmp_path / name
    file.write_bytes(content)
    text = refusal(file)
    assert text.startswith(f"{file}: ")
    assert rule in text


def test_a_huge_file_is_refused_before_it_is_read(tmp_path, monkeypatch):
    file = tmp_path / "huge.yaml"
    with file.open("wb") as stream:
        stream.truncate(100 * 1024 * 1024)
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("the file was opened"))
    assert refusal(file) == f"{file}: is 104,857,600 bytes; at most {SIZE_LIMIT:,} are read"


def test_a_file_that_hides_its_size_is_refused():
    endless = Path("/dev/zero")
    if not endless.exists():
        pytest.skip("this system has no endless file")
    assert refusal(endless) == f"{endless}: holds more than {SIZE_LIMIT:,} bytes"


def test_a_missing_file(tmp_path):
    file = tmp_path / "none.yaml"
    assert refusal(file) == f"{file}: no such file"


def test_a_directory(tmp_path):
    assert refusal(tmp_path) == f"{tmp_path}: is a directory; a file is needed"


def test_a_name_that_no_file_can_bear():
    assert "xxx: cannot be read: " in refusal(Path("x" * 5000))


def test_many_keys_are_read_in_linear_time(tmp_path):
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({str(i): i for i in range(100_000)}), "utf-8")
    assert len(load_document(file)) == 100_000


def test_a_million_errors_are_one_error():
    document, started = [0] * 1_000_000, time.process_time()
    text = refusal(document, lambda listed: choices_from(listed, "c.json", 4))
    assert text == "c.json: [0]: 0 is not of type 'array'"
    assert time.process_time() - started < 10


def test_json_and_yaml_give_the_same_coordinate(base, tmp_path):
    file = tmp_path / "base.json"
    file.write_text(json.dumps(base), "utf-8")
    assert load_coordinate(file) == coordinate_from(base, "base.yaml")


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ([[0], [1, 0]], "[1]: [1, 0] has no ancestor [1] (COORDINATE.PREFIX_CLOSED)"),
        ([[0], [0]], "[1]: [0] occurs twice (COORDINATE.PATHS_DISTINCT)"),
        ([[4]], "[0]: rank 4 of [4] is outside [0, TOPK=4) (COORDINATE.RANK_BELOW_TOPK)"),
        ([[-1]], "[0]: rank -1 of [-1] is outside [0, TOPK=4) (COORDINATE.RANK_BELOW_TOPK)"),
        ([[]], "[0]: [] should be non-empty"),
        ([0], "[0]: 0 is not of type 'array'"),
        ([["0"]], "[0][0]: '0' is not of type 'integer'"),
        ({"paths": []}, "{'paths': []} is not of type 'array'"),
        ([[0]] * 8_193, "breaks the rule maxItems: 8192"),
    ],
)
def test_choices_that_are_no_tree(choices, text):
    with pytest.raises(InputError) as caught:
        choices_from(choices, "choices.json", topk=4)
    assert str(caught.value) == f"choices.json: {text}"


def test_choices_deeper_than_the_heads():
    with pytest.raises(InputError, match="depth 2, and there are 1 heads"):
        choices_from([[0], [0, 0]], "choices.json", topk=4, heads=1)


def test_no_choices_are_the_root_only_tree():
    assert choices_from([], "choices.json", topk=4) == ()


def test_choices_come_out_in_canonical_order():
    listed = [[1, 0], [0, 1], [1], [0]]
    assert choices_from(listed, "choices.json", topk=4) == ((0,), (1,), (0, 1), (1, 0))


def test_yaml_is_read_up_to_a_size_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "dense.yaml"
    file.write_text("[" + "0," * 140_000 + "]")
    assert "at most 262,144 of YAML are read" in refusal(file)


def test_two_parsers_read_every_frozen_document_alike() -> None:
    """libyaml, where PyYAML has it, and what reads where it has not."""
    for name in medusa_manifests.names():
        text = medusa_manifests.path(name).read_text("utf-8")
        assert parse_yaml(text, name) == yaml.load(text, Loader=yaml.SafeLoader)
