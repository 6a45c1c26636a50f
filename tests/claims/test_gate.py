"""The gate on tiny projects, one failure at a time."""

import json

import pytest

from tests.claims.tiny import PROB, Project, build_page, measured

CHECKED = "# Page\n\n" + PROB + "\nText {claim}`0.87 <a.prob>`.\n"


def test_a_borne_out_claim_is_green(tmp_path):
    """A page whose claim is what was measured builds with status 0 and says so in one closing line."""
    built = build_page(tmp_path, CHECKED)
    assert built.code == 0, built.errors
    assert built.errors == ""
    assert "claims: 1 judged, 0 failed, 0 unowned (en)" in built.status
    assert built.ledger["claims"][0]["verdict"] == "fine"


def test_drift_is_red_with_place_value_and_interval(tmp_path):
    """A number that was not measured fails without -W, in exactly the documented words."""
    built = build_page(tmp_path, CHECKED.replace("`0.87", "`0.95"))
    assert built.code == 1
    assert built.failures == [
        "book/index.md:6: claim a.prob says 0.95, measured 0.87 (accepts 0.945 to 0.955)\n"
        "  measured in book/index.md cell 3 by pkg.experiment, standard deviation 0.001"
    ]
    assert "claims: 1 judged, 1 failed, 0 unowned (en)" in built.status


def test_red_again_on_every_later_build_and_green_when_mended(tmp_path):
    """Nothing changed: red again, without a page being read. Mended: green."""
    project = Project(tmp_path)
    project.write("index.md", CHECKED.replace("`0.87", "`0.95"))
    first = project.build()
    for _ in range(2):
        again = project.build()
        assert again.code == 1
        assert again.failures == first.failures
        assert "0 added, 0 changed, 0 removed" in again.status
    project.edit("index.md", "0.95", "0.87")
    assert project.build().code == 0


def test_all_failures_come_in_one_list_in_order_of_file_and_line(tmp_path):
    """Failures of several kinds and pages are reported together."""
    project = Project(tmp_path)
    project.write("index.md", f"# A\n\n{PROB}\nOne {{claim}}`0.99 <a.prob>`, {{claim}}`0.5 <a.nowhere>`.\n")
    project.write("b.md", ":orphan:\n\n# B\n\nTwo {claim}`x`.\n\nThree {claim}`0.8 <a.prob>`.\n")
    built = project.build()
    places = [failure.split(": ")[0] for failure in built.failures]
    assert places == ["book/b.md:5", "book/b.md:7", "book/index.md:6", "book/index.md:6"]
    assert built.errors.count("ERROR") == 1


def test_unknown_id_names_the_nearest_known_one(tmp_path):
    """A mistyped id fails and the message offers the id that was probably meant."""
    built = build_page(tmp_path, CHECKED + "\nAnd {claim}`0.87 <a.porb>`.\n")
    assert built.code == 1
    assert built.failures == [
        "book/index.md:8: claim a.porb says 0.87, but nothing is measured under that id: did you mean a.prob?"
    ]


def test_one_id_measured_twice_with_different_values(tmp_path):
    """An id measured on two pages with different values fails at the second, naming the first."""
    project = Project(tmp_path)
    project.write("index.md", CHECKED)
    project.write("z.md", "# Z\n\n" + measured("a.prob", 0.870001) + "\n{claim}`0.87 <a.prob>`\n")
    built = project.build()
    assert built.code == 1
    assert built.failures == [
        "book/z.md:3: a.prob is measured twice with different values: "
        "0.870001 in book/z.md cell 3, 0.87 in book/index.md cell 3 by pkg.experiment"
    ]


def test_one_id_measured_twice_in_one_cell(tmp_path):
    """Both are said to be there; two experiments are told apart by their names."""
    project = Project(tmp_path)
    one, other = (measured("a.x", *row) for row in ((8, 'experiment="pkg.one"'), (9, 'experiment="pkg.other"')))
    project.write("index.md", "# A\n\n" + one + other + "\n{claim}`8 <a.x>`\n")
    told = "book/index.md:5: a.x is measured twice with different values: "
    assert project.build().failures == [
        told + "9 in book/index.md cell 3 by pkg.other, 8 in book/index.md cell 3 by pkg.one"
    ]
    project.write("index.md", "# A\n\n" + measured("a.x", 8) + measured("a.x", 9) + "\n{claim}`8 <a.x>`\n")
    assert project.build().failures == [told + "8, then 9, in book/index.md cell 3"]


@pytest.mark.parametrize(
    ("one", "other", "fine"),
    [("0.87", "0.87", True), ("nan", "nan", True), ("1", "True", False), ("1", "1.0", False), ("2", "3", False)],
)
def test_the_same_value_twice_is_one_value(tmp_path, one, other, fine):
    """Equal values (NaN and NaN too) are one value; 1, True and 1.0 are three."""
    project = Project(tmp_path)
    project.write("index.md", "# A\n\n" + measured("a.x", one, "quote=False") + measured("a.x", other, "quote=False"))
    assert ("two values" not in project.build().kinds) == fine


def test_the_same_value_in_another_unit_is_another_value(tmp_path):
    """8 bytes and 8 bits under one id fail."""
    text = "# A\n\n" + measured("a.x", 8, 'unit="B"') + measured("a.x", 8, 'unit="bit"') + "{claim}`8 B <a.x>`\n"
    assert build_page(tmp_path, text).kinds == ["two values"]


def test_measured_to_be_quoted_and_quoted_nowhere(tmp_path):
    """A measurement that no page quotes fails where it was measured; with quote=False it may stay unquoted."""
    built = build_page(tmp_path, CHECKED + measured("a.lost", 7) + measured("a.spare", 8, "quote=False"))
    assert built.code == 1
    assert built.failures == [
        "book/index.md:7: a.lost is measured in cell 3 to be quoted, and no page quotes it: "
        "quote it, or say quote=False"
    ]


def test_quoted_on_any_page_is_quoted(tmp_path):
    """Ids are global: a measurement of one page may be quoted on another."""
    project = Project(tmp_path)
    project.write("index.md", "# A\n\n```{toctree}\nb\n```\n\n" + PROB + "Here {claim}`0.9 <a.prob>`.\n")
    project.write("b.md", "# B\n\n" + measured("b.y", 12) + "{claim}`0.87 <a.prob>` and {claim}`12 <b.y>`\n")
    built = project.build()
    assert built.code == 0, built.errors
    assert [(c["measured_in"], c["document"]) for c in built.ledger["claims"]] == [
        ("book/index.md", "book/b.md"), ("book/b.md", "book/b.md"), ("book/index.md", "book/index.md"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text", "kind"),
    [
        ("nan", "0.87", "not finite"),
        ("inf", "0.87", "not finite"),
        ("inf", "1以上", "not finite"),
        ("8589934592", "8", "unit"),
        ("8589934592", "8 GB", "drift"),
        ("8589934592", "128k", "unreadable"),
        ("8589934592", "?", "placeholder"),
        ("True", "1", "not a number"),
    ],
)
def test_each_failed_verdict_is_red(tmp_path, value, text, kind):
    """What the judge refuses makes the build red, with its kind in the ledger."""
    unit = 'unit="B"' if value.startswith("8") else ""
    built = build_page(
        tmp_path, f"# P\n\n{measured('a.x', value, unit)}\n値は {{claim}}`{text} <a.x>` です。\n", 'language = "ja"'
    )
    assert built.code == 1
    assert built.kinds == [kind]
    assert built.failures[0].startswith("book/index.md:6: claim a.x ")


def test_nan_and_inf_may_be_written_where_they_were_measured(tmp_path):
    """The text `nan` accepts exactly that."""
    text = "# P\n\n" + measured("a.x", "nan") + measured("a.y", "inf") + "{claim}`nan <a.x>` {claim}`inf <a.y>`\n"
    assert build_page(tmp_path, text).code == 0


def test_fragile(tmp_path):
    """A random value whose ±2 standard deviations leave the accepted interval fails although it lies inside."""
    built = build_page(tmp_path, "# P\n\n" + measured("a.x", 0.87, "spread=0.01") + "{claim}`0.87 <a.x>`\n")
    assert built.code == 1
    assert built.kinds == ["fragile"]
    assert "standard deviation 0.01" in built.failures[0]


def test_stale(tmp_path):
    """A recorded value whose sources changed fails, saying which record and which file."""
    options = 'kind="recorded" source="book/records/h200.json" device="NVIDIA&H200" stale=("kernels/flash.py",)'
    built = build_page(tmp_path, "# P\n\n" + measured("a.x", 0.87, options) + "{claim}`0.87 <a.x>`\n")
    assert built.code == 1
    assert built.kinds == ["stale"]
    assert "kernels/flash.py changed after book/records/h200.json was made" in built.failures[0]
    assert "recorded in book/index.md cell 3 from book/records/h200.json, on NVIDIA&H200" in built.failures[0]


@pytest.mark.parametrize(("value", "kinds"), [("True", []), ("False", ["false"]), ("1", ["not boolean"])])
def test_a_statement_needs_a_boolean_that_is_true(tmp_path, value, kinds):
    """`holds` passes on True alone."""
    built = build_page(tmp_path, "# P\n\n" + measured("a.x", value) + "{holds}`no token sees the future <a.x>`\n")
    assert built.kinds == kinds
    assert built.code == bool(kinds)


@pytest.mark.parametrize("silenced", ["claims", "claims.*", "claims.failed"])
def test_no_setting_keeps_the_reasons_from_a_red_build(tmp_path, silenced):
    """suppress_warnings takes neither the failure nor the list of failures away."""
    built = build_page(tmp_path, CHECKED.replace("`0.87", "`0.95"), f"suppress_warnings = ['{silenced}']")
    assert built.code == 1
    assert len(built.failures) == 1


@pytest.mark.parametrize("builder", ["html", "text", "gettext", "linkcheck", "latex"])
def test_every_builder_is_red(tmp_path, builder):
    """Whatever is made of the pages, twice."""
    project = Project(tmp_path)
    project.write("index.md", CHECKED.replace("`0.87", "`0.95"))
    assert [project.build(builder=builder).code for _ in range(2)] == [1, 1]


@pytest.mark.parametrize("spread", ["1e308", "1e3"])
def test_an_endless_tolerance_is_fragile(tmp_path, spread):
    """A standard deviation that would bear out any number bears out none."""
    built = build_page(tmp_path, CHECKED.replace("spread=0.001", f"spread={spread}"))
    assert built.kinds == ["fragile"]


def test_a_page_outside_every_contents_is_judged(tmp_path):
    """An orphan page is on the site, too."""
    project = Project(tmp_path)
    project.write("index.md", CHECKED)
    project.write("lost.md", "---\norphan: true\n---\n# B\n\nOne {claim}`0.5 <a.prob>` and 37\n")
    assert sorted(project.build().kinds) == ["drift", "unowned"]


@pytest.mark.parametrize("role", ["Claim", "CLAIM"])
def test_a_role_in_other_letters_is_a_role(tmp_path, role):
    """Sphinx finds a role whatever the case of its name; it is judged all the same."""
    assert build_page(tmp_path, CHECKED + f"\nOne {{{role}}}`0.5 <a.prob>`\n").kinds == ["drift"]


def test_no_claims_at_all(tmp_path):
    """A project without a single claim is not checked, and fails."""
    built = build_page(tmp_path, "# Page\n\nText.\n")
    assert built.code == 1
    assert built.failures == ["book/index.md:1: no claims found at all: a book without one is not checked"]


def test_a_chapter_without_a_single_claim(tmp_path):
    """A page that measures and quotes nothing fails, also when another page quotes what it measured."""
    project = Project(tmp_path)
    project.write("index.md", "# A\n\n{claim}`0.87 <a.prob>`\n\n```{toctree}\nb\nc\n```\n")
    project.write("b.md", "# B\n\n" + PROB)
    project.write("c.md", "# C\n\nA page that measures nothing needs no claim.\n")
    built = project.build()
    assert built.code == 1
    assert [f.split(":")[0] for f in built.failures] == ["book/b.md"]
    assert built.kinds == ["no claims"]


@pytest.mark.parametrize(("patterns", "pages"), [('["c*"]', ["book/c.md"]), ("[]", [])])
def test_which_pages_are_chapters_can_be_said(tmp_path, patterns, pages):
    """claims_chapters replaces the rule."""
    project = Project(tmp_path, f"claims_chapters = {patterns}")
    project.write("index.md", "# A\n\n{claim}`0.87 <a.prob>`\n\n```{toctree}\nb\nc\n```\n")
    project.write("b.md", "# B\n\n" + PROB)
    project.write("c.md", "# C\n\nText.\n")
    assert [f.split(":")[0] for f in project.build().failures] == pages


def test_parallel_reading_gives_the_same_ledger(tmp_path):
    """Pages read side by side, then some of them again: the same claims, the same failures, none twice."""
    project = Project(tmp_path)
    names = [f"p{i}" for i in range(7)]
    project.write(
        "index.md", "# A\n\n" + PROB + "{claim}`0.87 <a.prob>`\n\n```{toctree}\n" + "\n".join(names) + "\n```\n"
    )
    for name in names:
        project.write(
            f"{name}.md", f"# {name}\n\n{measured(f'x.{name}', 3)}\nA {{claim}}`4 <x.{name}>` and {{claim}}`oops`.\n"
        )
    serial = project.build("-d", str(tmp_path / "serial"))
    side_by_side = project.build("-j", "3", "-d", str(tmp_path / "parallel"))
    assert "parallel" not in side_by_side.errors  # no complaint that an extension cannot
    assert side_by_side.code == 1
    assert side_by_side.ledger == serial.ledger
    assert len(serial.ledger["claims"]) == 15
    assert len(serial.failures) == 14
    for name in names[:5]:
        project.edit(f"{name}.md", "oops", "0.87 <a.prob>")
    again = project.build("-j", "3", "-d", str(tmp_path / "parallel"))
    assert len(again.ledger["claims"]) == 15
    assert len(again.failures) == 9


def test_a_removed_page_takes_its_measurements_along(tmp_path):
    """A page that is gone measures nothing: what quoted it fails in the next, incremental build."""
    project = Project(tmp_path)
    project.write("index.md", "# A\n\n{claim}`0.87 <a.prob>`\n")
    page = project.write("b.md", ":orphan:\n\n# B\n\n" + PROB + "{claim}`0.9 <a.prob>`\n")
    assert project.build().code == 0
    page.unlink()
    built = project.build()
    assert built.code == 1
    assert built.kinds == ["unknown id"]


def test_a_page_is_written_again_when_a_value_made_elsewhere_changed(tmp_path):
    """The page that shows the value is written again, the one that shows nothing of it is not."""
    project = Project(tmp_path)
    project.write("index.md", "# A\n\n```{toctree}\nmade\nshown\nother\n```\n")
    project.write("made.md", "# B\n\n" + PROB)
    project.write("shown.md", "# C\n\n{claim}`0.87 <a.prob>`\n")
    project.write("other.md", "# D\n\nText.\n")
    project.edit("conf.py", "exclude_patterns", "claims_chapters = []\nexclude_patterns")
    assert project.build(builder="html").code == 0
    pages = {name: project.out / "html" / f"{name}.html" for name in ("shown", "other")}
    before = {name: path.stat().st_mtime_ns for name, path in pages.items()}
    project.build(builder="html")
    assert {name: path.stat().st_mtime_ns for name, path in pages.items()} == before
    project.edit("made.md", "0.87", "0.872")
    built = project.build(builder="html")
    assert built.code == 0, built.errors
    assert "0.872" in pages["shown"].read_text(encoding="utf-8")
    assert pages["other"].stat().st_mtime_ns == before["other"]


def test_the_ledger_of_a_red_build_is_whole(tmp_path):
    """A red build writes its ledger too, with the failures in it, and leaves no half-written file beside it."""
    project = Project(tmp_path, 'claims_ledger_json = "_build/numbers.json"')
    project.write("index.md", CHECKED.replace("`0.87", "`0.95"))
    assert project.build().code == 1
    folder = project.source / "_build"
    assert [path.name for path in folder.iterdir()] == ["numbers.json"]
    ledger = json.loads((folder / "numbers.json").read_text())
    assert ledger["version"] == 1
    assert ledger["judged"] == 1
    assert ledger["failures"][0] == {
        "document": "book/index.md", "line": 6, "status": "drift",
        "message": "claim a.prob says 0.95, measured 0.87 (accepts 0.945 to 0.955)\n"
        "  measured in book/index.md cell 3 by pkg.experiment, standard deviation 0.001",
    }  # fmt: skip


def test_a_ledger_that_cannot_be_written_is_one_clear_error(tmp_path):
    """A folder where the ledger should go: status 1, one message with the place, no crash."""
    project = Project(tmp_path, 'claims_ledger_json = "taken/ledger.json"')
    project.write("taken", "a file, not a folder")
    project.write("index.md", CHECKED)
    built = project.build()
    assert built.code == 1
    assert "book/taken/ledger.json: the ledger cannot be written: " in built.errors
    assert "Traceback" not in built.errors


def test_paths_are_relative_to_claims_root(tmp_path):
    """claims_root, relative to conf.py, is what paths in messages start from."""
    built = build_page(tmp_path, CHECKED.replace("`0.87", "`0.95"), 'claims_root = "."')
    assert built.failures[0].startswith("index.md:6: ")


def test_a_problem_reported_by_another_extension_joins_the_list(tmp_path):
    """ClaimsDomain.problem and the claims-check event are how other parts of a book redden the build, every time."""
    project = Project(
        tmp_path,
        "def lint(app, doctree):\n"
        '    app.env.domains["claims"].problem(app.env.docname, 4, "alt text", "figure x has no alt text")\n'
        "def whole(app, domain):\n"
        "    from attnbook.claims.entries import Failure\n"
        '    return [Failure("book/index.md", 5, "lint", "the book is too long")]\n'
        "_measured = setup\n"
        "def setup(app):\n"
        '    app.connect("doctree-read", lint)\n'
        '    app.connect("claims-check", whole)\n'
        "    return _measured(app)\n",
    )
    project.write("index.md", CHECKED)
    for _ in range(2):
        built = project.build()
        assert built.code == 1
        assert built.failures == [
            "book/index.md:4: figure x has no alt text", "book/index.md:5: the book is too long",
        ]  # fmt: skip


def test_a_changed_checker_reads_every_page_again(tmp_path, monkeypatch):
    """What reading a page found is kept, so another version of the code that found it must read it anew."""
    project = Project(tmp_path)
    project.write("index.md", CHECKED)
    project.build()
    assert "0 added, 0 changed" in project.build().status
    monkeypatch.setattr("attnbook.claims.code_version", lambda: 7)
    assert "1 added, 0 changed" in project.build().status


def test_judging_stored_claims_is_quick(tmp_path):
    """Two hundred claims of an unchanged project are judged again from stored data, without reading a page."""
    project = Project(tmp_path)
    project.write("index.md", "# A\n\n" + PROB + "{claim}`0.87 <a.prob>`\n\n" * 211)
    project.build()
    built = project.build()
    assert "0 added, 0 changed" in built.status
    assert "claims: 211 judged, 0 failed" in built.status
