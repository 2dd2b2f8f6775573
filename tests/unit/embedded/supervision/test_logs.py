"""Log files: rotated while a component writes to them, read from the end, and followed."""

from __future__ import annotations

from pathlib import Path

from penstock.embedded.supervision.logs import follow, read_last_lines, rotate


def test_a_log_within_its_limit_is_not_rotated(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    assert not rotate(log)
    log.write_text("x")
    assert not rotate(log, max_bytes=1)


def test_a_component_can_write_during_a_rotation(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    with log.open("ab", buffering=0) as writer:
        for text in (b"first\n", b"second\n", b"third\n"):
            writer.write(text)
            assert rotate(log, max_bytes=3, keep=2)
        writer.write(b"now\n")
    assert log.read_text() == "now\n"
    assert (tmp_path / "broker.log.1").read_text() == "third\n"
    assert (tmp_path / "broker.log.2").read_text() == "second\n"
    assert not (tmp_path / "broker.log.3").exists()


def test_the_last_lines_come_from_the_end_of_a_large_log(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text("".join(f"line {number}\n" for number in range(50_000)))
    assert read_last_lines(log, 2) == ["line 49998", "line 49999"]
    assert len(read_last_lines(log, 60_000)) == 50_000
    assert read_last_lines(log, 0) == []


def test_following_continues_after_a_rotation(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text("old\n")
    steps = iter(range(4))

    def write_next() -> bool:
        step = next(steps, None)
        if step == 0:
            with log.open("a") as writer:
                writer.write("one\ntw")
        elif step == 1:
            with log.open("a") as writer:
                writer.write("o\n")
        elif step == 2:
            log.write_text("x\n")
        return step is not None

    assert list(follow(log, write_next, poll_s=0)) == ["one", "two", "x"]
