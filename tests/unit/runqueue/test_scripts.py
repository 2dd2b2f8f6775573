"""The Lua files: headers match the code, includes resolve, keys and arguments are named once."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from penstock.runqueue import keys, scripts, task_records

COMMANDS = scripts.command_names()
ARRAY_USE = re.compile(r"\b(KEYS|ARGV)\[(\w+)")


def header(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if not line.startswith("--") or line.startswith("---"):
            break
        lines.append(line)
    return "\n".join(lines)


def body(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))


def read_includes(text: str) -> list[str]:
    return re.findall(r'^--- @include "(\w+)"$', text, re.MULTILINE)


def all_includes(command: str) -> list[str]:
    included: list[str] = []
    pending = read_includes(scripts.read_source("commands", command))
    while pending:
        name = pending.pop()
        if name not in included:
            included.append(name)
            pending += read_includes(scripts.read_source("include", name))
    return included


def read_assignment() -> str:
    """Return the script that has keys of its own instead of those of a shard."""
    return resources.files("penstock.runqueue").joinpath("lua/assign_shards.lua").read_text()


def all_files() -> list[tuple[str, str]]:
    includes = {name for command in COMMANDS for name in all_includes(command)} - {"keys"}
    return [("commands", command) for command in COMMANDS] + [("include", name) for name in sorted(includes)]


def test_every_command_has_a_file() -> None:
    assert {"enqueue", "dequeue", "heartbeat", "ack", "nack", "sweep", "redrive", "delete_dead"} <= set(
        COMMANDS
    )


@pytest.mark.parametrize(("folder", "name"), all_files())
def test_a_file_begins_with_its_name_and_purpose(folder: str, name: str) -> None:
    text = scripts.read_source(folder, name)
    assert re.match(rf"-- {name}: \S", text), text.splitlines()[0]
    assert max(map(len, text.splitlines())) <= 150


@pytest.mark.parametrize("command", COMMANDS)
def test_the_header_of_a_command_names_keys_result_errors_and_complexity(command: str) -> None:
    top = header(scripts.read_source("commands", command))
    for entry in ("KEYS", "Returns", "Errors", "Complexity"):
        assert re.search(rf"^-- {entry} +\S", top, re.MULTILINE), entry
    raised = set(re.findall(r'error_reply\("([A-Z]{4,})', scripts.load_script(command)[0]))
    declared = re.search(r"^-- Errors +(.+)$", top, re.MULTILINE)
    assert declared is not None
    assert raised == set(re.findall(r"[A-Z]{4,}", declared[1]))


@pytest.mark.parametrize(("folder", "name"), all_files())
def test_the_header_lists_the_keys_and_arguments_in_use(folder: str, name: str) -> None:
    text = scripts.read_source(folder, name)
    # `ARGV[5..]` in a header is a list at the end; the code reads it from a named first index.
    declared = [
        (array, index)
        for array, index in ARRAY_USE.findall(header(text))
        if f"{array}[{index}..]" not in text
    ]
    used = ARRAY_USE.findall(body(text))
    fixed = [(array, index) for array, index in used if index.isdigit()]
    assert fixed == declared, "each is read once, in order"
    list_starts = re.findall(r"ARGV\[(\d+)\.\.\]", header(text))
    computed = [index for _, index in used if not index.isdigit()]
    assert bool(list_starts) == bool(computed)
    for first, constant in zip(list_starts, computed, strict=True):
        assert re.search(rf"local {constant} = {first}\b", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_arguments_of_a_command_follow_those_of_its_shard(command: str) -> None:
    text = scripts.load_script(command)[0]
    for array in ("KEYS", "ARGV"):
        indexes = [
            int(index) for name, index in ARRAY_USE.findall(body(text)) if name == array and index.isdigit()
        ]
        assert indexes == list(range(1, len(indexes) + 1))
    assert len([1 for name, _ in ARRAY_USE.findall(body(text)) if name == "KEYS"]) == len(keys.script_keys(0))


@pytest.mark.parametrize("command", COMMANDS)
def test_includes_are_resolved_once(command: str) -> None:
    text = scripts.load_script(command)[0]
    assert "@include" not in text
    for name in all_includes(command):
        assert text.count(scripts.read_source("include", name).splitlines()[0]) == 1
    assert scripts.load_script(command)[1] == scripts.load_script(command)[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_return_of_a_command_that_opens_queues_goes_through_finish(command: str) -> None:
    own = body(scripts.read_source("commands", command))
    if "finish" not in all_includes(command):
        assert not re.search(r'"(HSET|ZADD|SADD|ZREM|SREM|HDEL)", (tasks|eligible|running|delayed|dead)', own)
        return
    returns = re.findall(r"^return .*$", own, re.MULTILINE)
    assert len(returns) == 1
    assert returns[0].startswith("return finish(") or "\nfinish()\n" in own


def test_the_header_of_the_assignment_lists_its_keys_and_arguments() -> None:
    text = read_assignment()
    assert ARRAY_USE.findall(header(text)) == ARRAY_USE.findall(body(text))
    for entry in ("Returns", "Errors", "Complexity"):
        assert re.search(rf"^-- {entry} +\S", header(text), re.MULTILINE), entry


def test_no_script_builds_a_key_of_its_own() -> None:
    assert "penstock:" not in body(read_assignment())
    for folder, name in all_files():
        text = body(scripts.read_source(folder, name))
        assert "penstock:" not in text
        assert not re.search(r"prefix \.\.", text), f"{name} builds a key"


def test_records_have_the_fields_of_the_scripts() -> None:
    text = scripts.read_source("include", "task")
    names = re.search(r"^local (QUEUE, .*) =$", text, re.MULTILINE)
    assert names is not None
    assert tuple(name.lower() for name in names[1].split(", ")) == task_records.FIELDS
