"""A book small enough to be executed many times: how the tests write one, and run commands on it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FRONT = "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n\n"

CONF = """
extensions = ["myst_nb"]
project = "small"
exclude_patterns = ["_build"]
html_theme = "basic"
myst_enable_extensions = ["colon_fence"]


def setup(app):
    from attnbook.bookkit import finished, reader

    reader.setup(app)
    finished.setup(app)
"""


def chapter(*cells, title="Title", prose="Prose."):
    """The text of a chapter with these code cells."""
    blocks = [f"```{{code-cell}} ipython3\n{cell}\n```\n" for cell in cells]
    return f"{FRONT}# {title}\n\n{prose}\n\n" + "\nBetween.\n\n".join(blocks)


def write(book: Path, pages: dict[str, str]) -> Path:
    """Write pages below `book`, a name and a text each."""
    for name, text in pages.items():
        path = book / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return book


PAGES = {
    "conf.py": CONF,
    "index.md": "# Home\n\n```{toctree}\n:glob:\n\n*\n```\n",
    "01-first.md": chapter("from pathlib import Path\nprint('first says', Path('data.txt').read_text())"),
    "02-second.md": chapter("from attnbook import errors\nprint('second says', errors.__name__)", "1 + 1"),
    "plain.md": "# Plain\n\nNo code runs here.\n\n````markdown\n```{code-cell} ipython3\nshown\n```\n````\n",
    "data.txt": "seven",
}
# Sphinx reads and writes side by side from six pages on.
PAGES |= {f"more-{n}.md": f"# More {n}\n" for n in range(5)}


def command(*arguments, tree=None, **options):
    """Start `python -m attnbook.bookkit` with the package of `tree`, or this one, its output in pipes."""
    environment = os.environ | ({"PYTHONPATH": str(tree)} if tree else {})
    # Whoever runs the tests in the background of a script has SIGINT ignored, and a child inherits that.
    options = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)} | options
    return subprocess.Popen(
        [sys.executable, "-m", "attnbook.bookkit", *map(str, arguments)],
        env=environment, cwd=tree, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def run(*arguments, tree=None, **options):
    """Run it to its end: exit status, stdout, stderr."""
    with command(*arguments, tree=tree, **options) as process:
        out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def wait_for(ready):
    """Until it is true; what it gave."""
    for _ in range(400):
        try:
            if answer := ready():
                return answer
        except (OSError, ValueError):
            pass
        time.sleep(0.05)
    raise AssertionError("waited 20 s in vain")
