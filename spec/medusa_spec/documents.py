"""Reading untrusted documents: bounded, safe, and with errors that name file, field and rule."""

from __future__ import annotations

import json
import marshal
import math
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012
from yaml.composer import Composer

from medusa_spec.errors import InputError

SIZE_LIMIT = 4 * 1024 * 1024
"""Bytes; the 4,095-node benchmark tree takes about 80 kB, so a larger file is a mistake."""

DIGIT_LIMIT = 300
"""Characters of a YAML number; one in base 60 takes time that grows with their square."""

ERROR_LIMIT = 100
"""Schema errors looked at: a list of a million wrong entries has as many, and one is shown."""

YAML_SIZE_LIMIT = 256 * 1024
"""Characters; YAML is composed in Python, slowly, and the largest manifest takes 13 kB."""


def read_text(path: Path) -> str:
    """The content of a file, refused before it is read where it is too large."""
    source = str(path)
    try:
        if path.is_dir():
            raise InputError(source, "", "is a directory; a file is needed")
        if not path.exists():
            raise InputError(source, "", "no such file")
        size = path.stat().st_size
        if size > SIZE_LIMIT:
            raise InputError(source, "", f"is {size:,} bytes; at most {SIZE_LIMIT:,} are read")
        with path.open("rb") as stream:
            content = stream.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise InputError(source, "", f"cannot be read: {error.strerror}") from None
    if len(content) > SIZE_LIMIT:
        raise InputError(source, "", f"holds more than {SIZE_LIMIT:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(source, "", f"is not UTF-8 at byte {error.start}") from None


def parse_json(text: str, source: str) -> Any:
    """A JSON document; NaN and infinities, which JSON does not have, are refused."""

    def no_constant(name: str) -> Any:
        raise InputError(source, "", f"{name} is not a JSON value")

    try:
        return json.loads(text, parse_constant=no_constant, object_pairs_hook=_distinct(source))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise InputError(source, place, f"not JSON: {error.msg}") from None
    except ValueError:
        raise InputError(source, "", "not JSON: an integer has too many digits") from None
    except RecursionError:
        raise InputError(source, "", "is nested too deeply") from None


def _distinct(source: str) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        keys: set[str] = set()
        for key, _ in items:
            if key in keys:
                raise InputError(source, key, "is given twice")
            keys.add(key)
        return dict(items)

    return pairs


if yaml.__with_libyaml__:

    class _Events(Composer, yaml.CSafeLoader):
        """Events from libyaml, ten times as fast, composed in Python, where they are looked at."""

        def __init__(self, stream: str) -> None:
            yaml.CSafeLoader.__init__(self, stream)
            Composer.__init__(self)

else:
    _Events = yaml.SafeLoader  # type: ignore[misc, assignment]


class _Loader(_Events):
    """YAML without tags, aliases or repeated keys: nothing expands, nothing is hidden."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()
        # A tag makes PyYAML construct what the text is not, such as the number "".
        for unused, found in (
            ("aliases", isinstance(event, yaml.AliasEvent)),
            ("tags", getattr(event, "tag", None) is not None),
        ):
            if found:
                raise yaml.MarkedYAMLError(
                    problem=f"{unused} are not used here", problem_mark=event.start_mark
                )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                # As in JSON, so that one schema judges both; 21 is written "21".
                raise yaml.MarkedYAMLError(
                    problem="a key must be a string", problem_mark=key_node.start_mark
                )
            if key in keys:
                raise yaml.MarkedYAMLError(
                    problem=f"{key!r} is given twice", problem_mark=key_node.start_mark
                )
            keys.add(key)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: Any) -> Any:
        number = node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
        if number and len(node.value) > DIGIT_LIMIT:
            raise yaml.MarkedYAMLError(
                problem="a number has too many digits", problem_mark=node.start_mark
            )
        return super().construct_scalar(node)


def _as_text(loader: yaml.SafeLoader, node: Any) -> Any:
    return loader.construct_scalar(node)


# As in JSON, which has no dates: one is the text that it is written as.
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _as_text)


def parse_yaml(text: str, source: str) -> Any:
    """A YAML document of plain values: no tags, no aliases, keys that are strings."""
    if len(text) > YAML_SIZE_LIMIT:
        rule = f"holds {len(text):,} characters; at most {YAML_SIZE_LIMIT:,} of YAML are read"
        raise InputError(source, "", rule)
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1} column {mark.column + 1}" if mark else ""
        raise InputError(source, place, f"not plain YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        # A character that YAML does not allow.
        raise InputError(source, "", f"not plain YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise InputError(source, "", "is nested too deeply") from None


def field_of(document: Any, key: str) -> Any:
    """What stands under a key, a dot leading into an object; `None` where nothing does."""
    for part in key.split("."):
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


def load_document(path: Path) -> Any:
    """The document in a `.json`, `.yaml` or `.yml` file."""
    text = read_text(path)
    parse = parse_json if path.suffix == ".json" else parse_yaml
    return parse(text, str(path))


@cache
def schema(name: str) -> dict[str, Any]:
    """A schema of `medusa_spec/schemas`, by name without its suffix."""
    file = resources.files("medusa_spec").joinpath("schemas", f"{name}.schema.json")
    loaded: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return loaded


def _is_integer(_: Any, value: Any) -> bool:
    # JSON Schema also takes 10.0 for an integer; a rank or a size of that type would break later.
    # An integer beyond a double would be no number, and so keep no bound.
    return isinstance(value, int) and _is_number(_, value)


def _is_number(_: Any, value: Any) -> bool:
    # NaN compares as false with every bound of a schema, so it would keep them all.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


_KEPT_LIMIT = 65536
_kept: set[tuple[int, bytes]] = set()


def _properties(
    validator: Any, properties: Mapping[str, Any], instance: Any, _: Any
) -> Iterator[jsonschema.ValidationError]:
    """The keyword as the library has it, but a list or an object that kept its schema once is kept.

    Documents that are judged one behind another agree in all but one part, long lists among them.
    """
    if not validator.is_type(instance, "object"):
        return
    for name in [name for name in properties if name in instance]:
        schema_of, value = properties[name], instance[name]
        # Schemas live as long as the process, so that one is known by its identity.
        known = (id(schema_of), _exact(value)) if isinstance(value, dict | list) else None
        if known in _kept:
            continue
        clean = True
        for error in validator.descend(value, schema_of, path=name, schema_path=name):
            clean = False
            yield error
        if clean and known and known[1]:
            if len(_kept) >= _KEPT_LIMIT:
                _kept.clear()
            _kept.add(known)


def _exact(value: Any) -> bytes:
    """The same for equal values, another for 1, 1.0 and true; empty for what is no plain value."""
    try:
        return marshal.dumps(value, 2)
    except ValueError:
        return b""


_Validator = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    validators={"properties": _properties},
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_integer, "number": _is_number}
    ),
)


def _sibling(reference: str) -> Resource[Any]:
    found = schema(reference.removesuffix(".schema.json"))
    # A schema that names its draft is judged by that draft's own validator, which takes 10.0 for an
    # integer; without the name it is judged as the schema that refers to it.
    return DRAFT202012.create_resource({k: v for k, v in found.items() if k != "$schema"})


# A schema refers to another of this folder by its file name; nothing is ever fetched.
_SIBLINGS: Registry[Any] = Registry(retrieve=_sibling)  # type: ignore[call-arg]


@cache
def _validator(name: str) -> Any:
    return _Validator(schema(name), registry=_SIBLINGS)


def validate(document: Any, schema_name: str, source: str, code: str | None = None) -> None:
    """Raise an `InputError` for the first place at which `document` leaves its schema."""
    error = next(iter(schema_errors(document, schema_name)), None)
    if error is not None:
        field, rule = error
        raise InputError(source, field, rule, code)


def schema_errors(document: Any, schema_name: str) -> list[tuple[str, str]]:
    """`ERROR_LIMIT` places where `document` leaves its schema, (field, rule), outermost first."""
    exact = _exact(document)
    # What is not of plain values alone, the schema will say.
    return list(_known_errors(exact, schema_name) if exact else _errors(document, schema_name))


# Validation takes milliseconds, and every mutant is shown the same few hundred documents.
@lru_cache(maxsize=4096)
def _known_errors(exact: bytes, schema_name: str) -> tuple[tuple[str, str], ...]:
    return _errors(marshal.loads(exact), schema_name)


def _errors(document: Any, schema_name: str) -> tuple[tuple[str, str], ...]:
    errors = sorted(
        islice(_validator(schema_name).iter_errors(document), ERROR_LIMIT),
        key=lambda e: (len(e.path), str(e.path)),
    )
    return tuple((_field(error), _rule(error)) for error in errors)


def _field(error: jsonschema.ValidationError) -> str:
    field = ""
    for part in error.absolute_path:
        field += f"[{part}]" if isinstance(part, int) else f".{part}" if field else str(part)
    return field


def _rule(error: jsonschema.ValidationError) -> str:
    message: str = error.message
    if len(message) > 160:
        # The message quotes the whole instance; the rule is what a person needs.
        message = f"breaks the rule {error.validator}: {str(error.validator_value)[:100]}"
    return message
