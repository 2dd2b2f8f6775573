"""The supervisor with small programs: order, backoff, hanging, giving up. Servers come in the chaos tests."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.embedded.servers.external import ExternalServer
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision import watcher
from penstock.embedded.supervision.component import HEALTHY, Component, Health, Program
from penstock.embedded.supervision.failures import EXIT_NEEDS_OPERATOR
from penstock.embedded.supervision.one_shot import OneShotTask
from penstock.embedded.supervision.process import Command, find_marked_processes
from penstock.embedded.supervision.state import PlatformState, State, read_state
from penstock.embedded.supervision.supervisor import AlreadyRunning, HomeLock, Supervisor
from penstock.errors import ComponentFailed, MigrationError
from tests.waiting import wait_until

STEADY = "import time; print('hello', flush=True); time.sleep(600)"
BRIEF = "print('I cannot', flush=True); raise SystemExit(3)"


class Script(Program):
    """A program of a few words of Python; healthy when `healthy` says so."""

    hang_timeout_s = 0.3

    def __init__(self, home: Path, name: str, code: str = STEADY, needs: tuple[str, ...] = ()) -> None:
        super().__init__(home)
        self.name = name
        self.needs = needs
        self.code = code
        self.health = HEALTHY
        self.prepared = 0

    @property
    def address(self) -> str:
        return f"script {self.name}"

    def prepare(self) -> str | None:
        self.prepared += 1
        return None

    def command(self) -> Command:
        return Command((sys.executable, "-c", self.code), cwd=self.home)

    def probe(self) -> Health:
        return self.health


class Run:
    """One supervisor in this thread, stopped when a condition on its state holds."""

    def __init__(self, home: Path, *parts: Component) -> None:
        self.told: list[str] = []
        self.states: list[dict[str, State]] = []
        self.home = home
        self.parts = parts

    def until(self, done: Callable[[PlatformState], object], timeout_s: float = 20) -> PlatformState:
        deadline = time.monotonic() + timeout_s
        reached: list[PlatformState] = []

        def look(state: PlatformState) -> None:
            self.states.append({row.name: row.state for row in state.parts})
            if not reached and (done(state) or time.monotonic() > deadline):
                reached.append(state)
                supervisor.request_stop()

        supervisor = Supervisor(
            self.home,
            self.parts,
            "http://x",
            HomeLock(self.home),
            lambda part, words: self.told.append(words),
            look,
        )
        supervisor.run()
        assert reached, self.told
        assert done(reached[0]), f"not within {timeout_s} s: {self.told} {self.states[-1]}"
        return reached[0]


def row(state: PlatformState, name: str) -> State:
    return next(part.state for part in state.parts if part.name == name)


def test_parts_start_after_what_they_need_and_stop_before_it(tmp_path: Path) -> None:
    parts = [
        Script(tmp_path, "c", needs=("b",)),
        Script(tmp_path, "b", needs=("step",)),
        Script(tmp_path, "a"),
    ]
    step = OneShotTask("step", ("a",), lambda: "done")
    run = Run(tmp_path, *parts, step)
    state = run.until(lambda state: state.all_up)
    assert [words.split()[0] for words in run.told if " is up" in words] == ["a", "b", "c"]
    stopping = [states for states in run.states if State.STOPPING in states.values()]
    assert all(states["a"] is State.UP for states in stopping if states["b"] is not State.STOPPED)
    assert all(states["b"] is State.UP for states in stopping if states["c"] is not State.STOPPED)
    assert all(part.pid for part in state.parts)
    for part in parts:
        assert find_marked_processes(part.mark) == []
    assert list((tmp_path / "run").glob("*.pid")) == []
    assert read_state(tmp_path) is None


def test_a_part_that_dies_is_started_again_with_growing_pauses(tmp_path: Path) -> None:
    part = Script(tmp_path, "part")
    run = Run(tmp_path, part)
    killed = 0

    def kill_twice(state: PlatformState) -> bool:
        nonlocal killed
        (shown,) = state.parts
        if shown.state is State.UP and shown.restarts == killed < 2 and shown.pid:
            killed += 1
            os.kill(shown.pid, signal.SIGKILL)
        return shown.restarts == 2 and shown.state is State.UP

    state = run.until(kill_twice)
    assert state.parts[0].last_failure == "part was ended by SIGKILL"
    pauses = [words.partition("next try in ")[2] for words in run.told if "next try" in words]
    assert pauses == ["0.2 s", "0.4 s"]
    assert part.prepared == 3


def test_a_first_start_that_keeps_failing_ends_everything_with_the_reason(tmp_path: Path) -> None:
    steady = Script(tmp_path, "steady")
    with pytest.raises(ComponentFailed, match="broken ended with exit code 3: I cannot"):
        Run(tmp_path, steady, Script(tmp_path, "broken", BRIEF)).until(lambda state: False)
    assert find_marked_processes(steady.mark) == []
    HomeLock(tmp_path).close()


def test_an_optional_part_that_cannot_start_does_not_take_the_others_down(tmp_path: Path) -> None:
    optional = Script(tmp_path, "optional", BRIEF)
    optional.required = False
    run = Run(tmp_path, Script(tmp_path, "steady"), optional)
    state = run.until(lambda state: sum("next try" in words for words in run.told) >= 4)
    assert row(state, "steady") is State.UP
    assert next(part for part in state.parts if part.name == "optional").last_failure


def test_a_part_that_hangs_is_noticed_then_restarted(tmp_path: Path) -> None:
    part = Script(tmp_path, "part")
    run = Run(tmp_path, part)

    def hang_once(state: PlatformState) -> bool:
        (shown,) = state.parts
        if shown.state is State.UP and shown.restarts == 0:
            part.health = Health(False, "it stares into the air")
        if shown.restarts == 1:
            part.health = HEALTHY
        return shown.restarts == 1 and shown.state is State.UP

    run.until(hang_once)
    assert any(states["part"] is State.SILENT for states in run.states)
    assert "part did not answer for 0 s: it stares into the air" in " ".join(run.told)


def test_a_part_is_not_restarted_for_hanging_on_what_it_needs(tmp_path: Path) -> None:
    needed = ExternalServer("needed", "redis://x", "PENSTOCK_REDIS_URL", lambda url: health)
    part = Script(tmp_path, "part", needs=("needed",))
    run = Run(tmp_path, needed, part)
    health = HEALTHY
    silent_since: list[float] = []

    def take_away(state: PlatformState) -> bool:
        nonlocal health
        if state.all_up:
            health = part.health = Health(False, "gone")
        if row(state, "part") is State.SILENT:
            silent_since.append(state.at)
        return bool(silent_since) and state.at - silent_since[0] > 3 * Script.hang_timeout_s

    state = run.until(take_away)
    assert next(shown for shown in state.parts if shown.name == "part").restarts == 0
    assert next(shown for shown in state.parts if shown.name == "needed").yours


def test_a_server_of_yours_that_never_answers_is_named_by_its_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "OWN_SERVER_PATIENCE_S", 0.2)
    url = f"redis://127.0.0.1:{any_free_port()}/0"
    yours = ExternalServer("valkey", url, "PENSTOCK_REDIS_URL", lambda url: Health(False, "Connection refused"))
    with pytest.raises(ComponentFailed, match=r"given by PENSTOCK_REDIS_URL does not answer: Connection refused"):
        Run(tmp_path, yours).until(lambda state: False)


def test_a_step_that_fails_keeps_what_needs_it_from_starting(tmp_path: Path) -> None:
    def fail() -> str:
        raise MigrationError("the schema is newer than this program")

    part = Script(tmp_path, "part", needs=("step",))
    with pytest.raises(ComponentFailed, match="the schema is newer than this program"):
        Run(tmp_path, OneShotTask("step", (), fail), part).until(lambda state: False)
    assert part.prepared == 0


def test_a_second_supervisor_is_told_where_the_first_one_runs(tmp_path: Path) -> None:
    refused: list[AlreadyRunning] = []

    def try_another(state: PlatformState) -> bool:
        if state.all_up and read_state(tmp_path):
            with pytest.raises(AlreadyRunning) as info:
                HomeLock(tmp_path)
            refused.append(info.value)
        return bool(refused)

    Run(tmp_path, Script(tmp_path, "part")).until(try_another)
    assert "already runs on" in refused[0].detail
    assert "http://x" in refused[0].detail


def test_asked_twice_it_does_not_wait_for_a_part_that_ignores_the_signal(tmp_path: Path) -> None:
    deaf = Script(
        tmp_path,
        "deaf",
        "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(600)",
    )
    supervisor = Supervisor(tmp_path, [deaf], "http://x", HomeLock(tmp_path))
    began = time.monotonic()

    def stop_when_deaf() -> None:
        wait_until(lambda: deaf.log.exists() and deaf.log.read_text(), 10, "the part runs")
        supervisor.request_stop()
        wait_until(lambda: supervisor.state.parts[0].state is State.STOPPING, 5, "the part is being stopped")
        supervisor.request_stop()

    hurry = threading.Thread(target=stop_when_deaf)
    hurry.start()
    supervisor.run()
    hurry.join()
    assert time.monotonic() - began < Script.stop_timeout_s / 2
    assert find_marked_processes(deaf.mark) == []


def test_a_part_that_needs_somebody_says_so_once_and_is_tried_at_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "MAX_BACKOFF_S", 0.4)
    marker = tmp_path / "done"
    missing = f"not os.path.exists({str(marker)!r})"
    asks = f"import os\nif {missing}:\n print('do this first')\n raise SystemExit({EXIT_NEEDS_OPERATOR})\n"
    part = Script(tmp_path, "picky", asks + STEADY)
    part.required = False

    def done(state: PlatformState) -> bool:
        if part.prepared == 3:
            marker.touch()  # somebody did it
        return state.parts[0].state is State.UP and part.prepared >= 3

    part.health = Health(False, "not yet")
    probe = part.probe
    monkeypatch.setattr(part, "probe", lambda: HEALTHY if marker.exists() else probe())
    run = Run(tmp_path, part)
    run.until(done)
    assert [words for words in run.told if "do this first" in words] == [
        "picky: do this first; next try in 0.4 s"
    ]
