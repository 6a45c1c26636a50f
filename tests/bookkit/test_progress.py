"""What an author sees while chapters run."""

import io

from attnbook.bookkit.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def screen(stream):
    """What stands on the terminal after all that was written."""
    lines = [""]
    for part in stream.getvalue().replace("\x1b[", "\x1b").split("\x1b"):
        if part[1:2] == "F":
            lines = [*lines[: len(lines) - 1 - int(part[0])], ""]
            part = part[2:]
        elif part.startswith("J"):
            part = part[1:]
        written = part.split("\n")
        lines[-1] += written[0]
        lines += written[1:]
    return lines[:-1]


def say(progress):
    progress.cell("01-a", 0, 2)
    progress.cell("02-long", 0, 9)
    progress.cell("01-a", 1, 2)
    progress.cell("02-long", 4, 9)
    yield
    progress.done("01-a", 6.14, [("attnbook.experiments.score_variance", 2.26)])
    yield
    progress.note("02-long: book:data.txt changed while it ran: once more")
    progress.failed("02-long", "in cell 4: ValueError")
    yield


def test_on_a_terminal_each_running_chapter_has_one_line_that_changes():
    """Finished ones stay above the running ones."""
    stream = Terminal()
    steps = say(Progress(["01-a", "02-long"], stream))
    next(steps)
    assert screen(stream) == ["01-a     cell 1/2", "02-long  cell 4/9"]
    next(steps)
    done = ["01-a     done 6.1 s", "           score_variance 2.3 s"]
    assert screen(stream) == [*done, "02-long  cell 4/9"]
    next(steps)
    note = "02-long: book:data.txt changed while it ran: once more"
    assert screen(stream) == [*done, note, "02-long  FAILED in cell 4: ValueError"]


def test_elsewhere_there_are_plain_lines():
    """No escape sequences in a log."""
    stream = io.StringIO()
    for _ in say(Progress(["01-a", "02-long"], stream)):
        pass
    assert stream.getvalue().splitlines() == [
        "01-a     cell 1/2",
        "02-long  cell 4/9",
        "01-a     done 6.1 s",
        "           score_variance 2.3 s",
        "02-long: book:data.txt changed while it ran: once more",
        "02-long  FAILED in cell 4: ValueError",
    ]
