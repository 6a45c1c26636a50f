"""Measurements that reach the gate through stock MyST-NB, from outputs that are already in the notebook."""

import json

import pytest

from attnbook.measure import EXPERIMENT, MEASUREMENT, Measurement
from tests.claims.tiny import Project

NOTEBOOK = ("myst_nb",)
CONF = 'nb_execution_mode = "off"'


def output(ident, value, **fields):
    """A display output as `measure` publishes it."""
    settings = {"d": "64", "softmax": "<function softmax at 0x7f0c1de0>"}
    made = Measurement(ident, value, experiment="pkg.experiment", settings=settings, **fields)
    return {"output_type": "display_data", "metadata": {}, "data": {MEASUREMENT: made.as_json()}}


def code(source, *outputs, tags=()):
    return {
        "cell_type": "code", "execution_count": 1, "metadata": {"tags": list(tags)}, "outputs": list(outputs),
        "source": source.splitlines(keepends=True),
    }  # fmt: skip


def text(source):
    return {"cell_type": "markdown", "metadata": {}, "source": source.splitlines(keepends=True)}


def notebook(*cells):
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return json.dumps(
        {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 4}, ensure_ascii=False, indent=1
    )


EXPERIMENT_OUTPUT = {"output_type": "display_data", "metadata": {}, "data": {EXPERIMENT: {"name": "x", "seconds": 1}}}


def test_a_notebook_measures_and_quotes(tmp_path):
    """Stored outputs are measurements; the ledger names the code cell, counted without text cells."""
    project = Project(tmp_path, CONF, NOTEBOOK)
    project.write("index.ipynb", notebook(
        text("# Page\n"), code("1"), text("Text\n"),
        code("run()", output("a.x", 0.87, spread=0.001), EXPERIMENT_OUTPUT),
        text("One {claim}`0.87 <a.x>`\n"),
    ))  # fmt: skip
    built = project.build()
    assert built.code == 0, built.errors
    assert built.errors == ""
    (entry,) = built.ledger["claims"]
    assert (entry["measured_in"], entry["cell"], entry["cell_anchor"]) == ("book/index.ipynb", 2, "code-cell-2")
    assert (entry["value"], entry["spread"], entry["experiment"]) == (0.87, 0.001, "pkg.experiment")
    assert entry["settings"] == {"d": "64"}, "a function has no text that another execution gives again"


def test_nothing_of_a_measurement_is_drawn_and_its_cell_has_an_id(tmp_path):
    """A cell that only measured has no empty box under it; the id that claims link to is on the cell."""
    project = Project(tmp_path, CONF, NOTEBOOK)
    project.write(
        "index.ipynb", notebook(text("# Page\n"), code("run()", output("a.x", 3)), text("{claim}`3 <a.x>`\n"))
    )
    assert project.build(builder="html").code == 0
    html = (project.out / "html" / "index.html").read_text(encoding="utf-8")
    assert 'id="code-cell-1"' in html
    assert "cell_output" not in html
    assert "vnd.attnbook" not in html


def test_a_drift_in_a_notebook_names_the_line_of_the_file(tmp_path):
    """The line is that of the .ipynb as an editor shows it."""
    project = Project(tmp_path, CONF, NOTEBOOK)
    page = notebook(
        text("# Page\n"), code("run()", output("a.x", 0.87)), text("One\n\ntwo 37\n\nthree {claim}`0.95 <a.x>`\n")
    )
    project.write("index.ipynb", page)
    built = project.build()
    lines = page.split("\n")
    drift = 1 + next(number for number, line in enumerate(lines) if "0.95" in line)
    numeral = 1 + next(number for number, line in enumerate(lines) if "two 37" in line)
    assert [failure.split(" ")[0] for failure in built.failures] == [
        f"book/index.ipynb:{numeral}:", f"book/index.ipynb:{drift}:",
    ]  # fmt: skip
    assert built.failures[1].endswith("\n  measured in book/index.ipynb cell 1 by pkg.experiment")


def test_a_text_notebook_keeps_its_lines(tmp_path):
    """In a MyST notebook a claim after a code cell has its own line; the page is a chapter though nothing ran."""
    project = Project(tmp_path, CONF, NOTEBOOK)
    page = (
        "---\nfile_format: mystnb\nkernelspec: {name: python3}\n---\n\n# Page\n\n"
        "```{code-cell} ipython3\nrun()\n```\n\n"
        "One\n\n- two\n- three {claim}`3 <a.x>`\n\n| a | b |\n|---|---|\n| c | {claim}`4 <a.x>` |\n\nfour 37\n"
    )
    project.write("index.md", page)
    built = project.build()
    assert built.code == 1, built.errors
    assert [failure.split(" ")[0] for failure in built.failures] == [
        "book/index.md:15:", "book/index.md:19:", "book/index.md:21:",
    ]  # fmt: skip
    assert built.kinds == ["unknown id", "unknown id", "unowned"]


def test_a_notebook_that_quotes_nothing_is_a_chapter_without_a_claim(tmp_path):
    """Code cells make a page a chapter, measurements or not."""
    project = Project(tmp_path, CONF, NOTEBOOK)
    project.write(
        "index.ipynb", notebook(text("# Page\n"), code("run()", output("a.x", 3)), text("{claim}`3 <a.x>`\n"))
    )
    project.write("b.ipynb", notebook(text(":orphan:\n\n# B\n"), code("1")))
    built = project.build()
    assert built.failures == [
        "book/b.ipynb:1: a chapter without a single claim: quote a measurement, or leave it out of claims_chapters"
    ]


@pytest.mark.parametrize("source", ["{claim}`4 <a.x>`", "print('{holds}')"])
def test_a_role_in_a_code_cell_or_its_output_is_refused(tmp_path, source):
    """Code and outputs print a role as it stands."""
    project = Project(tmp_path, CONF, NOTEBOOK)
    stream = {"output_type": "stream", "name": "stdout", "text": ["{claim}`3 <a.x>`\n"]}
    project.write(
        "index.ipynb", notebook(text("# P\n"), code(source, output("a.x", 3), stream), text("{claim}`3 <a.x>`\n"))
    )
    built = project.build()
    assert built.code == 1
    assert built.kinds == ["printed", "printed"]


def test_numbers_in_code_cells_and_outputs_are_not_prose(tmp_path):
    """What was computed needs no claim."""
    project = Project(tmp_path, CONF, NOTEBOOK)
    stream = {"output_type": "stream", "name": "stdout", "text": ["37\n"]}
    html = {"output_type": "display_data", "metadata": {}, "data": {"text/html": "<p>37</p>", "text/plain": "37"}}
    markdown = {"output_type": "display_data", "metadata": {}, "data": {"text/markdown": "**37**"}}
    project.write("index.ipynb", notebook(
        text("# P\n"), code("x = 37", output("a.x", 3), stream, html, markdown), text("{claim}`3 <a.x>`\n"),
    ))  # fmt: skip
    built = project.build()
    assert built.code == 0, built.errors


def test_the_caption_in_a_cell_s_options_is_prose(tmp_path):
    """A person wrote it, under the output: a number in it needs an owner, and a claim in it is judged."""
    project = Project(tmp_path, CONF, NOTEBOOK)
    cell = code("show()", {"output_type": "display_data", "metadata": {}, "data": {"text/plain": "drawn 37"}})
    cell["metadata"]["mystnb"] = {"figure": {"caption": "One 38 and {claim}`0.5 <a.x>`"}}
    page = notebook(text("# Page\n\n{claim}`0.87 <a.x>`\n"), code("run()", output("a.x", 0.87)), cell)
    project.write("index.ipynb", page)
    built = project.build()
    assert sorted(built.kinds) == ["drift", "unowned"]
    assert "nobody owns the number 38" in built.errors


def test_an_unreadable_measurement_is_one_clear_failure(tmp_path):
    """An output with our MIME type that is no measurement fails where its cell stands, without a crash."""
    project = Project(tmp_path, CONF, NOTEBOOK)
    broken = {"output_type": "display_data", "metadata": {}, "data": {MEASUREMENT: {"id": "a.y"}}}
    project.write(
        "index.ipynb", notebook(text("# P\n"), code("1", output("a.x", 3), broken), text("{claim}`3 <a.x>`\n"))
    )
    built = project.build()
    assert built.code == 1
    assert built.kinds == ["unreadable measurement"]
    assert "cell 1 published a measurement that cannot be read" in built.failures[0]


def test_without_the_extension_a_page_with_measurements_still_builds(tmp_path):
    """attnbook may be installed where a project does not use claims: its outputs are simply not drawn."""
    project = Project(tmp_path, CONF, NOTEBOOK)
    project.edit("conf.py", ", 'attnbook.claims'", "")
    project.write("index.ipynb", notebook(text("# P\n"), code("1", output("a.x", 3))))
    built = project.build()
    assert built.code == 0
    assert built.errors == ""


def test_hidden_cells_measure_too(tmp_path):
    """hide-cell, hide-output and remove-input keep the measurement; what is removed whole is not seen."""
    project = Project(tmp_path, CONF, NOTEBOOK)
    tags = ["hide-cell", "hide-output", "remove-input", "hide-input"]
    cells = [code("run()", output(f"a.x{i}", i + 2), tags=[tag]) for i, tag in enumerate(tags)]
    claims = " ".join(f"{{claim}}`{i + 2} <a.x{i}>`" for i in range(len(tags)))
    project.write("index.ipynb", notebook(text("# P\n"), *cells, text(claims + "\n")))
    built = project.build(builder="html")
    assert built.code == 0, built.errors
    assert [entry["cell"] for entry in built.ledger["claims"]] == [1, 2, 3, 4]
