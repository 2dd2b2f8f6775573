"""Logs: rotated while written to, read from the end, followed."""

from __future__ import annotations

from pathlib import Path

from penstock.embedded.supervision.logs import follow, last_lines, rotate


def test_a_log_within_its_limit_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    assert not rotate(log)
    log.write_text("x")
    assert not rotate(log, max_bytes=1)


def test_a_part_goes_on_writing_across_a_rotation(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    with log.open("ab", buffering=0) as writer:
        for text in (b"first\n", b"second\n", b"third\n"):
            writer.write(text)
            assert rotate(log, max_bytes=3, keep=2)
        writer.write(b"now\n")
    assert log.read_text() == "now\n"
    assert (tmp_path / "part.log.1").read_text() == "third\n"
    assert (tmp_path / "part.log.2").read_text() == "second\n"
    assert not (tmp_path / "part.log.3").exists()


def test_the_last_lines_come_from_the_end_of_a_large_log(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_text("".join(f"line {n}\n" for n in range(50_000)))
    assert last_lines(log, 2) == ["line 49998", "line 49999"]
    assert len(last_lines(log, 60_000)) == 50_000
    assert last_lines(log, 0) == []


def test_following_goes_on_after_a_rotation(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_text("old\n")
    turns = iter(range(4))

    def write_next() -> bool:
        turn = next(turns, None)
        if turn == 0:
            with log.open("a") as writer:
                writer.write("one\ntw")
        elif turn == 1:
            with log.open("a") as writer:
                writer.write("o\n")
        elif turn == 2:
            log.write_text("x\n")
        return turn is not None

    assert list(follow(log, write_next, poll_s=0)) == ["one", "two", "x"]
