"""The Lua files: headers that tell the truth, includes that resolve, keys and arguments named once."""

from __future__ import annotations

import re

import pytest

from penstock.runqueue import keys, scripts, task_records

COMMANDS = scripts.command_names()
CALL = re.compile(r"\b(KEYS|ARGV)\[(\w+)")


def header(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if not line.startswith("--") or line.startswith("---"):
            break
        lines.append(line)
    return "\n".join(lines)


def body(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))


def includes_of(text: str) -> list[str]:
    return re.findall(r'^--- @include "(\w+)"$', text, re.MULTILINE)


def everything_included(command: str) -> list[str]:
    found: list[str] = []
    waiting = includes_of(scripts.source("commands", command))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.append(name)
            waiting += includes_of(scripts.source("include", name))
    return found


def all_files() -> list[tuple[str, str]]:
    includes = {name for command in COMMANDS for name in everything_included(command)} - {"keys"}
    return [("commands", command) for command in COMMANDS] + [("include", name) for name in sorted(includes)]


def test_there_is_a_file_for_every_command() -> None:
    assert {"enqueue", "dequeue", "heartbeat", "ack", "nack", "sweep", "redrive", "delete_dead"} <= set(
        COMMANDS
    )


@pytest.mark.parametrize(("kind", "name"), all_files())
def test_a_file_begins_with_its_name_and_purpose(kind: str, name: str) -> None:
    text = scripts.source(kind, name)
    assert re.match(rf"-- {name}: \S", text), text.splitlines()[0]
    assert max(map(len, text.splitlines())) <= 150


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_what_it_returns_raises_and_costs(command: str) -> None:
    top = header(scripts.source("commands", command))
    for word in ("Returns", "Errors", "Complexity"):
        assert re.search(rf"^-- {word} +\S", top, re.MULTILINE), word
    raised = set(re.findall(r'error_reply\("([A-Z]{4,})', scripts.script(command)[0]))
    declared = re.search(r"^-- Errors +(.+)$", top, re.MULTILINE)
    assert declared is not None
    assert raised == set(re.findall(r"[A-Z]{4,}", declared[1]))


@pytest.mark.parametrize(("kind", "name"), all_files())
def test_keys_and_arguments_in_a_header_are_those_in_use(kind: str, name: str) -> None:
    text = scripts.source(kind, name)
    # `ARGV[5..]` in a header are the many at the end; code reaches them by a named first place.
    declared = [
        (array, place) for array, place in CALL.findall(header(text)) if f"{array}[{place}..]" not in text
    ]
    used = CALL.findall(body(text))
    fixed = [(array, place) for array, place in used if place.isdigit()]
    assert fixed == declared, "each is named once, in order"
    many = re.findall(r"ARGV\[(\d+)\.\.\]", header(text))
    computed = [place for _, place in used if not place.isdigit()]
    assert bool(many) == bool(computed)
    for first, constant in zip(many, computed, strict=True):
        assert re.search(rf"local {constant} = {first}\b", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_arguments_of_a_command_follow_those_of_its_shard(command: str) -> None:
    text = scripts.script(command)[0]
    for array in ("KEYS", "ARGV"):
        places = [int(place) for name, place in CALL.findall(body(text)) if name == array and place.isdigit()]
        assert places == list(range(1, len(places) + 1))
    assert len([1 for name, _ in CALL.findall(body(text)) if name == "KEYS"]) == len(keys.script_keys(0))


@pytest.mark.parametrize("command", COMMANDS)
def test_includes_are_resolved_once(command: str) -> None:
    text = scripts.script(command)[0]
    assert "@include" not in text
    for name in everything_included(command):
        assert text.count(scripts.source("include", name).splitlines()[0]) == 1
    assert scripts.script(command)[1] == scripts.script(command)[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_return_of_a_command_that_opens_queues_goes_through_finish(command: str) -> None:
    own = body(scripts.source("commands", command))
    if "finish" not in everything_included(command):
        assert not re.search(r'"(HSET|ZADD|SADD|ZREM|SREM|HDEL)", (tasks|eligible|running|delayed|dead)', own)
        return
    returns = re.findall(r"^return .*$", own, re.MULTILINE)
    assert len(returns) == 1
    assert returns[0].startswith("return finish(") or "\nfinish()\n" in own


def test_no_script_builds_a_key_of_its_own() -> None:
    for kind, name in all_files():
        text = body(scripts.source(kind, name))
        assert "penstock:" not in text
        assert not re.search(r"prefix \.\.", text), f"{name} builds a key"


def test_records_have_the_fields_of_the_scripts() -> None:
    text = scripts.source("include", "task")
    names = re.search(r"^local (QUEUE, .*) =$", text, re.MULTILINE)
    assert names is not None
    assert tuple(name.lower() for name in names[1].split(", ")) == task_records.FIELDS
