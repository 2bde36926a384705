"""A table as a dictionary of columns."""

from __future__ import annotations

import html
from typing import Any

ROWS_SHOWN = 20


class Table(dict[str, Any]):
    """One NumPy array a column, all of the same length; ``pandas.DataFrame(table)`` takes it as it is."""

    @property
    def height(self) -> int:
        """How many rows."""
        return len(next(iter(self.values()), ()))

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a row."""
        columns = [column.tolist() for column in self.values()]
        return [dict(zip(self, values, strict=True)) for values in zip(*columns, strict=True)]

    def _cells(self) -> list[list[str]]:
        """The head and the first rows, as text."""
        shown = [[_text(value) for value in column[:ROWS_SHOWN].tolist()] for column in self.values()]
        return [list(self), *(list(values) for values in zip(*shown, strict=True))]

    def _rest(self) -> str:
        more = self.height - ROWS_SHOWN
        return f"... and {more} more rows" if more > 0 else ""

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        return "\n".join([*lines, *filter(None, [self._rest()])])

    def _repr_html_(self) -> str:
        """For notebooks."""
        head, *body = self._cells()
        rows = ["<tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in head) + "</tr>"]
        rows += ["<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in body]
        return f"<table>{''.join(rows)}</table>{self._rest()}"


def _text(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.4g}"
    return str(value)
