"""Generate the reference page of the Python client from its signatures and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Iterator
from dataclasses import is_dataclass
from typing import Any

import msgspec

import penstock.client

PACKAGE = penstock.client.__name__
COROUTINE_METHODS = ("send", "throw", "close")
INTRODUCTION = """\
# Python client reference

`penstock.client` exports these names; [Python client](../client.md) explains how to use them. Await the
methods that are written with `async`. The classes for threads have the same methods without it.
"""


def client_page() -> str:
    """The page, with all public names of the package."""
    exported = {name: getattr(penstock.client, name) for name in penstock.client.__all__}
    classes = {name: value for name, value in exported.items() if inspect.isclass(value)}
    errors = {name: value for name, value in classes.items() if issubclass(value, Exception)}
    values = {name: value for name, value in classes.items() if _has_fields(value) and name not in errors}
    threads = {name: value for name, value in classes.items() if name.startswith("Sync")}
    calls = [name for name in classes if name not in {*errors, *values, *threads}]
    lines = [INTRODUCTION, "## Calls", ""]
    for name in sorted(calls, key=lambda name: (name != "Client", name)):
        lines += _class_section(name, classes[name])
    lines += ["## Values", ""]
    for name, value in values.items():
        lines += _value_section(name, value)
    lines += ["## Threads", "", "| Class | |", "|---|---|"]
    lines += [f"| `{name}` | {_first_line(value)} |" for name, value in threads.items()]
    lines += ["", "## Errors", "", "| Error | Base | Meaning |", "|---|---|---|"]
    lines += [
        f"| `{name}` | `{value.__bases__[0].__name__}` | {_first_line(value)} |"
        for name, value in errors.items()
    ]
    lines += ["", "## Types", ""]
    lines += [f"- `{name}`: `{value}`" for name, value in exported.items() if name not in classes]
    return "\n".join([*lines, ""])


def _class_section(name: str, value: type) -> list[str]:
    lines = [f"### {name}", ""]
    if name == "Client":  # a client creates all others
        lines += ["```python", f"{name}{_signature(value)}", "```", ""]
    lines += [_text(value), ""]
    for method_name, method in _public_methods(value):
        if isinstance(method, property):
            lines += [f"`{method_name}`: {_text(method)}", ""]
            continue
        prefix = "async " if inspect.iscoroutinefunction(method) else ""
        lines += ["```python", f"{prefix}{method_name}{_signature(method)}", "```", ""]
        if text := _text(method):
            lines += [text, ""]
    return lines


def _value_section(name: str, value: type) -> list[str]:
    lines = [f"### {name}", ""]
    # A Struct or dataclass without a docstring has a generated one.
    if value.__doc__ and not value.__doc__.startswith(f"{name}(") and "__doc__" in vars(value):
        lines += [_text(value), ""]
    lines += ["| Field | Type |", "|---|---|"]
    lines += [f"| `{field}` | `{_escape(text)}` |" for field, text in _annotations(value)]
    for method_name, method in _public_methods(value):
        if inspect.isfunction(method):
            lines += ["", f"`{method_name}{_signature(method)}`: {_text(method)}"]
    return [*lines, ""]


def _has_fields(value: type) -> bool:
    return is_dataclass(value) or issubclass(value, msgspec.Struct)


def _annotations(value: type) -> Iterator[tuple[str, str]]:
    for base in reversed(value.__mro__):
        if base.__module__.startswith(PACKAGE):
            for field, text in vars(base).get("__annotations__", {}).items():
                if not field.startswith("_"):
                    yield field, str(text)


def _public_methods(value: type) -> Iterator[tuple[str, Any]]:
    """The methods and properties of a class and of its bases in the client, in the order of definition."""
    methods: dict[str, Any] = {}
    for base in value.__mro__:
        if base.__module__.startswith(PACKAGE):
            for name, method in vars(base).items():
                is_method = inspect.isfunction(method) or isinstance(method, property)
                if is_method and not name.startswith("_"):
                    methods.setdefault(name, method)
    # `await consumer` makes Python call the methods of a coroutine; people do not.
    internal = COROUTINE_METHODS if issubclass(value, Coroutine) else ()
    yield from ((name, method) for name, method in methods.items() if name not in internal)


def _signature(called: Any) -> str:
    """The parameters as they are written, without `self`; long ones have a line each."""
    signature = inspect.signature(called)
    parameters = [
        parameter.replace(annotation=_Text(parameter.annotation))
        if parameter.annotation is not parameter.empty
        else parameter
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    returned = signature.return_annotation
    has_result = returned not in (inspect.Signature.empty, "None", None)
    text = str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    suffix = f" -> {returned}" if has_result else ""
    if len(text) + len(suffix) <= 80:
        return text + suffix
    keyword_only = [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    written = [str(parameter) for parameter in parameters]
    if keyword_only:
        written.insert(written.index(str(keyword_only[0])), "*")
    return "(\n    " + ",\n    ".join(written) + f",\n){suffix}"


class _Text(str):
    """An annotation that is printed without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _text(documented: Any) -> str:
    return inspect.getdoc(documented) or ""


def _first_line(documented: Any) -> str:
    return _escape(_text(documented).split("\n\n")[0].replace("\n", " "))


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(client_page())
