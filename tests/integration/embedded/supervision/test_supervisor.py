"""The supervisor with small scripts: order, backoff, hangs and failed starts. See also the chaos tests."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.embedded.servers.external import ExternalServer, external_redis
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.component import HEALTHY, Component, Health, Program
from penstock.embedded.supervision.failures import EXIT_NEEDS_OPERATOR
from penstock.embedded.supervision.one_shot import OneShotTask
from penstock.embedded.supervision.process import Command, find_marked_processes
from penstock.embedded.supervision.state import ComponentState, PlatformState, RunState, read_state
from penstock.embedded.supervision.supervisor import AlreadyRunning, HomeLock, Supervisor
from penstock.embedded.supervision.watcher import RestartPolicy
from penstock.errors import ComponentFailed, MigrationError
from tests.deadlines import deadline_s
from tests.waiting import wait_until

RUN_FOREVER = "import time; print('hello', flush=True); time.sleep(600)"
EXIT_AT_ONCE = "print('no license', flush=True); raise SystemExit(3)"
IGNORE_SIGTERM = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
)


class Script(Program):
    """A program of a few lines of Python; its probe returns `health`."""

    hang_timeout_s = 0.3

    def __init__(
        self, home: Path, name: str, code: str = RUN_FOREVER, depends_on: tuple[str, ...] = ()
    ) -> None:
        super().__init__(home)
        self.name = name
        self.depends_on = depends_on
        self.code = code
        self.health = HEALTHY
        self.prepare_count = 0

    @property
    def address(self) -> str:
        return f"script {self.name}"

    def prepare(self) -> str | None:
        self.prepare_count += 1
        return None

    def command(self) -> Command:
        return Command((sys.executable, "-c", self.code), cwd=self.home)

    def probe(self) -> Health:
        return self.health


class FailingScript(Script):
    """Exits at once. Its probe never succeeds, even if Python takes long to start and to exit."""

    def __init__(self, home: Path, name: str) -> None:
        super().__init__(home, name, EXIT_AT_ONCE)
        self.health = Health(False, "not started")


class EarlyScript(Script):
    """Writes two files: one when it is loaded, and one when it may start. Healthy when it has started."""

    starts_early = True

    def __init__(self, home: Path, name: str, depends_on: tuple[str, ...]) -> None:
        self.loaded, self.started = home / f"{name}-loaded", home / f"{name}-started"
        code = (
            "import time; from pathlib import Path; from penstock.start_gate import wait_for_start\n"
            f"Path({str(self.loaded)!r}).touch(); wait_for_start(); Path({str(self.started)!r}).touch()\n"
            "time.sleep(600)"
        )
        super().__init__(home, name, code, depends_on)

    def probe(self) -> Health:
        return Health(self.started.exists(), "not started")


class SupervisorRun:
    """Runs a supervisor in this thread until a condition on its state holds, and records its reports."""

    def __init__(self, home: Path, *components: Component, policy: RestartPolicy | None = None) -> None:
        self.messages: list[str] = []
        self.states: list[dict[str, RunState]] = []
        self.home = home
        self.components = components
        self.policy = policy

    def run_until(self, condition: Callable[[PlatformState], object], timeout_s: float = 20) -> PlatformState:
        deadline = time.monotonic() + deadline_s(timeout_s)
        last_states: list[PlatformState] = []

        def check_state(state: PlatformState) -> None:
            self.states.append({component.name: component.state for component in state.components})
            if not last_states and (condition(state) or time.monotonic() > deadline):
                last_states.append(state)
                supervisor.request_stop()

        supervisor = Supervisor(
            self.home,
            self.components,
            "http://x",
            HomeLock(self.home),
            lambda component, message: self.messages.append(message),
            check_state,
            self.policy,
        )
        supervisor.run()
        assert last_states, self.messages
        assert condition(last_states[0]), f"not within {timeout_s} s: {self.messages} {self.states[-1]}"
        return last_states[0]


def component_state(state: PlatformState, name: str) -> ComponentState:
    component = state.find_component(name)
    assert component is not None, name
    return component


def test_components_start_after_their_dependencies_and_stop_before_them(tmp_path: Path) -> None:
    scripts = [
        Script(tmp_path, "c", depends_on=("b",)),
        Script(tmp_path, "b", depends_on=("task",)),
        Script(tmp_path, "a"),
    ]
    task = OneShotTask("task", ("a",), lambda: "done")
    run = SupervisorRun(tmp_path, *scripts, task)
    state = run.run_until(lambda state: state.all_up)
    assert [message.split()[0] for message in run.messages if " is up" in message] == ["a", "b", "c"]
    stopping = [states for states in run.states if RunState.STOPPING in states.values()]
    assert all(states["a"] is RunState.UP for states in stopping if states["b"] is not RunState.STOPPED)
    assert all(states["b"] is RunState.UP for states in stopping if states["c"] is not RunState.STOPPED)
    assert all(component.pid for component in state.components)
    for script in scripts:
        assert find_marked_processes(script.mark) == []
    assert list((tmp_path / "run").glob("*.pid")) == []
    assert read_state(tmp_path) is None


def test_a_component_that_can_wait_loads_before_its_dependencies_are_up_and_starts_after_them(
    tmp_path: Path,
) -> None:
    server = Script(tmp_path, "server")
    server.health = Health(False, "not ready")
    early = EarlyScript(tmp_path, "early", ("server",))
    run = SupervisorRun(tmp_path, early, server)

    def make_the_server_ready_when_the_other_is_loaded(state: PlatformState) -> bool:
        if early.loaded.exists() and server.health is not HEALTHY:
            assert not early.started.exists()
            server.health = HEALTHY
        return state.all_up

    run.run_until(make_the_server_ready_when_the_other_is_loaded)
    assert [message.split()[0] for message in run.messages if " is up" in message] == ["server", "early"]


def test_a_component_that_waits_for_its_dependencies_stops_with_the_platform(tmp_path: Path) -> None:
    server = Script(tmp_path, "server")
    server.health = Health(False, "not ready")
    early = EarlyScript(tmp_path, "early", ("server",))
    SupervisorRun(tmp_path, early, server).run_until(lambda state: early.loaded.exists())
    assert find_marked_processes(early.mark) == []
    assert not early.started.exists()


def test_a_killed_component_restarts_with_growing_backoff(tmp_path: Path) -> None:
    script = Script(tmp_path, "script")
    run = SupervisorRun(tmp_path, script)
    kills = 0

    def kill_twice(state: PlatformState) -> bool:
        nonlocal kills
        (component,) = state.components
        if component.state is RunState.UP and component.restarts == kills < 2 and component.pid:
            kills += 1
            os.kill(component.pid, signal.SIGKILL)
        return component.restarts == 2 and component.state is RunState.UP

    state = run.run_until(kill_twice)
    assert state.components[0].last_failure == "script was terminated by SIGKILL"
    backoffs = [message.partition("Next attempt in ")[2] for message in run.messages if "attempt" in message]
    assert backoffs == ["0.2 s.", "0.4 s."]
    assert script.prepare_count == 3


def test_repeated_failures_of_the_first_start_stop_the_platform(tmp_path: Path) -> None:
    healthy = Script(tmp_path, "healthy")
    with pytest.raises(ComponentFailed, match="broken exited with code 3: no license"):
        SupervisorRun(tmp_path, healthy, FailingScript(tmp_path, "broken")).run_until(lambda state: False)
    assert find_marked_processes(healthy.mark) == []
    HomeLock(tmp_path).close()


def test_an_optional_component_that_cannot_start_does_not_stop_the_others(tmp_path: Path) -> None:
    optional = FailingScript(tmp_path, "optional")
    optional.required = False
    run = SupervisorRun(tmp_path, Script(tmp_path, "healthy"), optional)
    state = run.run_until(lambda state: sum("Next attempt" in message for message in run.messages) >= 4)
    assert component_state(state, "healthy").state is RunState.UP
    assert component_state(state, "optional").last_failure


def test_a_hung_component_is_reported_and_restarted(tmp_path: Path) -> None:
    script = Script(tmp_path, "script")
    run = SupervisorRun(tmp_path, script)

    def hang_once(state: PlatformState) -> bool:
        (component,) = state.components
        if component.state is RunState.UP and component.restarts == 0:
            script.health = Health(False, "the event loop is blocked")
        if component.restarts == 1:
            script.health = HEALTHY
        return component.restarts == 1 and component.state is RunState.UP

    run.run_until(hang_once)
    assert any(states["script"] is RunState.UNRESPONSIVE for states in run.states)
    assert "script did not answer for 0 s: the event loop is blocked" in " ".join(run.messages)


def test_a_component_that_repairs_itself_is_reported_and_left_alone(tmp_path: Path) -> None:
    script = Script(tmp_path, "script")
    run = SupervisorRun(tmp_path, script)
    failed_at: list[float] = []

    def fail_until_repaired(state: PlatformState) -> bool:
        (component,) = state.components
        if component.state is RunState.UP and not failed_at:
            script.health = Health(False, "a query has failed", busy=True)
        if component.state is RunState.UNRESPONSIVE:
            failed_at.append(state.written_at)
            if state.written_at - failed_at[0] > 3 * Script.hang_timeout_s:
                script.health = HEALTHY
        return bool(failed_at) and component.state is RunState.UP

    state = run.run_until(fail_until_repaired)
    assert component_state(state, "script").restarts == 0
    assert run.messages[-2:] == ["script does not work: a query has failed", "script is up again"]


def test_a_component_is_not_restarted_while_its_dependency_is_down(tmp_path: Path) -> None:
    dependency = ExternalServer("dependency", "redis://x", "PENSTOCK_REDIS_URL", lambda: health)
    script = Script(tmp_path, "script", depends_on=("dependency",))
    run = SupervisorRun(tmp_path, dependency, script)
    health = HEALTHY
    unresponsive_at: list[float] = []

    def take_dependency_down(state: PlatformState) -> bool:
        nonlocal health
        if state.all_up:
            health = script.health = Health(False, "gone")
        if component_state(state, "script").state is RunState.UNRESPONSIVE:
            unresponsive_at.append(state.written_at)
        return bool(unresponsive_at) and state.written_at - unresponsive_at[0] > 3 * Script.hang_timeout_s

    state = run.run_until(take_dependency_down)
    assert component_state(state, "script").restarts == 0
    assert component_state(state, "dependency").is_external


def test_the_error_for_an_unreachable_external_server_names_its_setting(tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{any_free_port()}/0"
    server = external_redis(url)
    run = SupervisorRun(tmp_path, server, policy=RestartPolicy(external_server_timeout_s=0.2))
    with pytest.raises(ComponentFailed, match="PENSTOCK_REDIS_URL: no connection to"):
        run.run_until(lambda state: False)


def test_a_failed_one_shot_task_keeps_its_dependents_from_starting(tmp_path: Path) -> None:
    def fail() -> str:
        raise MigrationError("The schema is newer than this program.")

    script = Script(tmp_path, "script", depends_on=("task",))
    with pytest.raises(ComponentFailed, match="The schema is newer than this program"):
        SupervisorRun(tmp_path, OneShotTask("task", (), fail), script).run_until(lambda state: False)
    assert script.prepare_count == 0


def test_the_error_for_a_second_supervisor_names_the_first_one(tmp_path: Path) -> None:
    errors: list[AlreadyRunning] = []

    def start_another(state: PlatformState) -> bool:
        if state.all_up and read_state(tmp_path):
            with pytest.raises(AlreadyRunning) as caught:
                HomeLock(tmp_path)
            errors.append(caught.value)
        return bool(errors)

    SupervisorRun(tmp_path, Script(tmp_path, "script")).run_until(start_another)
    assert "already runs on" in errors[0].detail
    assert "http://x" in errors[0].detail


def test_a_second_stop_request_kills_a_component_that_ignores_its_signal(tmp_path: Path) -> None:
    class PatientScript(Script):
        stop_timeout_s = deadline_s(30)

    script = PatientScript(tmp_path, "script", IGNORE_SIGTERM)
    supervisor = Supervisor(tmp_path, [script], "http://x", HomeLock(tmp_path))
    started_at = time.monotonic()

    def request_stop_twice() -> None:
        wait_until(lambda: script.log.exists() and script.log.read_text(), 10, "the script runs")
        supervisor.request_stop()
        wait_until(
            lambda: supervisor.state.components[0].state is RunState.STOPPING, 5, "the script is stopping"
        )
        supervisor.request_stop()

    requester = threading.Thread(target=request_stop_twice)
    requester.start()
    supervisor.run()
    requester.join()
    assert time.monotonic() - started_at < PatientScript.stop_timeout_s
    assert find_marked_processes(script.mark) == []


class ScriptThatNeedsOperator(Script):
    """Exits with a request until the file `done` exists."""

    required = False

    def __init__(self, home: Path) -> None:
        self.done_file = home / "done"
        missing = f"not os.path.exists({str(self.done_file)!r})"
        request = f"print('run this first')\n raise SystemExit({EXIT_NEEDS_OPERATOR})"
        super().__init__(home, "script", f"import os\nif {missing}:\n {request}\n{RUN_FOREVER}")

    def probe(self) -> Health:
        return HEALTHY if self.done_file.exists() else Health(False, "not yet")


def test_a_component_that_needs_an_operator_reports_once_and_is_retried(tmp_path: Path) -> None:
    script = ScriptThatNeedsOperator(tmp_path)

    def satisfy_third_attempt(state: PlatformState) -> bool:
        if script.prepare_count == 3:
            script.done_file.touch()
        return state.components[0].state is RunState.UP and script.prepare_count >= 3

    run = SupervisorRun(tmp_path, script, policy=RestartPolicy(max_backoff_s=0.4))
    run.run_until(satisfy_third_attempt)
    assert [message for message in run.messages if "run this first" in message] == [
        "script: run this first. Next attempt in 0.4 s."
    ]
