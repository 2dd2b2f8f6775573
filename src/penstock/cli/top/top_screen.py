"""The full screen of `penstock top`, with keys to sort and filter (Textual)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Input, Static

from penstock.cli.top.top_reader import TopSelection, TopSnapshot, TopSort
from penstock.cli.top.top_table import COLUMNS, parse_time, queue_cells, summary_lines
from penstock.errors import PenstockError

MAX_SUMMARY_LINES = 9


class TopScreen(App[None]):
    """Shows a snapshot every few seconds. If a read fails, the old figures stay and the error is shown."""

    TITLE = "penstock top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary { height: auto; max-height: 10; padding: 0 1; }
    #problem { height: auto; padding: 0 1; color: $error; display: none; }
    #filter { display: none; }
    #filter.shown { display: block; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "clear_filter", "Clear", show=False),
        Binding("s", "next_sort", "Sort"),
        Binding("r", "reverse", "Reverse"),
        Binding("p", "problems", "Problems"),
        Binding("space", "freeze", "Freeze"),
        Binding("n", "sort('name')", "Name", show=False),
        Binding("w", "sort('depth')", "Waiting", show=False),
        Binding("i", "sort('rateIn')", "In", show=False),
        Binding("u", "sort('rateOut')", "Out", show=False),
        Binding("t", "sort('wait')", "Wait", show=False),
        Binding("o", "sort('oldest')", "Oldest", show=False),
        Binding("d", "sort('dead')", "Dead", show=False),
    ]

    def __init__(
        self, read: Callable[[TopSelection], TopSnapshot], selection: TopSelection, interval_s: float
    ) -> None:
        super().__init__()
        self._read = read
        self._interval_s = interval_s
        self.selection = selection
        self.is_frozen = False

    def compose(self) -> ComposeResult:
        yield Static(id="summary")
        yield Static(id="problem")
        yield Input(self.selection.search, id="filter", compact=True, placeholder="part of a queue's name")
        yield DataTable[Text](id="queues", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        self._table.focus()
        self.refresh_figures()
        self.set_interval(self._interval_s, self._refresh_unless_frozen)

    @work(thread=True, exclusive=True)
    def refresh_figures(self) -> None:
        """Read a snapshot in a thread and show it."""
        selection = self.selection
        try:
            snapshot = self._read(selection)
        except PenstockError as error:
            self.call_from_thread(self._show_problem, error.detail)
            return
        self.call_from_thread(self._show, snapshot, selection)

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()

    def action_clear_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.value = ""
        self._close_filter()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._select(search=event.value)

    def on_input_submitted(self) -> None:
        self._close_filter()

    def action_sort(self, column: str) -> None:
        sort = TopSort(column)
        self._select(sort=sort, is_reversed=sort == self.selection.sort and not self.selection.is_reversed)

    def action_next_sort(self) -> None:
        sorts = [sort for _, sort in COLUMNS if sort is not None]
        self._select(sort=sorts[(sorts.index(self.selection.sort) + 1) % len(sorts)], is_reversed=False)

    def action_reverse(self) -> None:
        self._select(is_reversed=not self.selection.is_reversed)

    def action_problems(self) -> None:
        self._select(only_problems=not self.selection.only_problems)

    def action_freeze(self) -> None:
        self.is_frozen = not self.is_frozen
        self.refresh_figures()

    @property
    def _table(self) -> DataTable[Text]:
        return self.query_one("#queues", DataTable)

    def _refresh_unless_frozen(self) -> None:
        if not self.is_frozen:
            self.refresh_figures()

    def _select(self, **changes: object) -> None:
        self.selection = replace(self.selection, **changes)  # type: ignore[arg-type]
        self.refresh_figures()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("shown")
        self._table.focus()

    def _show(self, snapshot: TopSnapshot, selection: TopSelection) -> None:
        self.query_one("#problem").display = False
        lines = [self._describe_view(snapshot, selection), *summary_lines(snapshot)]
        self.query_one("#summary", Static).update(Text("\n").join(lines[: MAX_SUMMARY_LINES + 1]))
        table, now = self._table, parse_time(snapshot.page["asOf"])
        cursor_key = self._cursor_key()
        table.clear(columns=True)
        for heading, sort in COLUMNS:
            arrow = (
                "" if sort is None or sort != selection.sort else " ▲" if self._ascends(selection) else " ▼"
            )
            table.add_column(f"{heading}{arrow}", key=heading)
        for queue in snapshot.page["queues"]:
            table.add_row(*queue_cells(queue, now), key=f"{queue['kind']}:{queue['name']}")
        if cursor_key in table.rows:
            table.move_cursor(row=table.get_row_index(cursor_key), animate=False)

    def _cursor_key(self) -> str:
        table = self._table
        if not table.row_count:
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    @staticmethod
    def _ascends(selection: TopSelection) -> bool:
        return (selection.sort == TopSort.NAME) != selection.is_reversed

    def _describe_view(self, snapshot: TopSnapshot, selection: TopSelection) -> Text:
        page = snapshot.page
        parts = [f"penstock top · {parse_time(page['asOf']):%H:%M:%S} UTC"]
        parts += [f"{len(page['queues']):,} of {page['total']:,} queues"]
        parts += [f"filter '{selection.search}'"] if selection.search else []
        parts += ["only problems"] if selection.only_problems else []
        parts += ["frozen: press space"] if self.is_frozen else []
        return Text(" · ".join(parts), style="dim")

    def _show_problem(self, detail: str) -> None:
        problem = self.query_one("#problem", Static)
        problem.update(Text(f"{detail} The figures below are older."))
        problem.display = True
