"""The table of rows: what each operation of a program records. A row is a function

    @row("aten.relu")
    def relu(at, self): return at.each(nn.relu, self)

of `at`, the place of the node (mantissa.rows.build.Place), and of the node's arguments by name: a value as it lies
(layout.Placed), a list, a number, a word or None. It returns a value, or a tuple of as many as the node makes.
"""
_rows = {}


class Refused(Exception):
    """What a row cannot record exactly. Its text says what, and what to write instead."""


def row(*ops):
    """Registers a function as the row of these operations. A row of one's own takes the place of that there is."""
    def register(function):
        for op in ops:
            _rows[op] = function
        return function
    return register


def row_of(op):
    """The row of an operation, or None."""
    return _rows.get(op)


def known():
    """Names of all operations that have a row."""
    return sorted(_rows)
