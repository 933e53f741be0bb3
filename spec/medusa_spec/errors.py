"""The error that bad input raises, and what an engine raises where it says no."""

from __future__ import annotations


class InputError(Exception):
    """A document that cannot be used: names the file, the field and the rule, in one line.

    `code` is the invariant that the document violates, where the rule is one.
    """

    def __init__(self, source: str, field: str, rule: str, code: str | None = None) -> None:
        self.source = source
        self.field = field
        self.rule = rule
        self.code = code
        place = f"{source}: {field}" if field else source
        suffix = f" ({code})" if code else ""
        super().__init__(one_line(f"{place}: {rule}{suffix}"))

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str, str, str | None]]:
        # Pickled with what it was made of: the message alone would not make it again.
        return type(self), (self.source, self.field, self.rule, self.code)


class Refused(Exception):
    """An engine's lawful "no": raised before anything was changed.

    The runner records it as an observation. Every other exception of an engine is a crash.
    """


class Unsupported(Exception):
    """An engine's word that it was not made for what it is asked, such as another policy.

    What would have been judged is then not exercised: neither a pass nor a fail.
    """


def one_line(text: str) -> str:
    """The text with every character spelled out that would not show, or would start a line."""
    # Names in an untrusted document may hold line breaks, terminal codes or lone surrogates.
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
