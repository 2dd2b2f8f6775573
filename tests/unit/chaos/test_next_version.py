"""Next versions have a number of their own, and the migrations of those before them."""

from __future__ import annotations

from pathlib import Path

from chaos.next_version import make_next_version

SOURCE = Path(__file__).parents[3] / "src"


def test_a_next_version_adds_a_migration_to_those_of_its_predecessor(tmp_path: Path) -> None:
    first = make_next_version(SOURCE, tmp_path / "1", 1)
    second = make_next_version(first.directory, tmp_path / "2", 2)

    def migrations(directory: Path) -> set[str]:
        return {path.name for path in (directory / "penstock/durable/sql/migrations").glob("*.sql")}

    assert (first.version, second.version) == ("99.1.0", "99.2.0")
    assert migrations(first.directory) - migrations(SOURCE) == {"9001_next_version_1.sql"}
    assert migrations(second.directory) - migrations(first.directory) == {"9002_next_version_2.sql"}
    assert (
        "next_version_2_notes"
        in (second.directory / "penstock/durable/sql/migrations/9002_next_version_2.sql").read_text()
    )


def test_a_process_of_a_version_imports_that_version(tmp_path: Path) -> None:
    version = make_next_version(SOURCE, tmp_path / "1", 1)
    assert "99.1.0" in version.run({}, "--version")
