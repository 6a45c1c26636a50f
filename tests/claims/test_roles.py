"""How a role's content is split."""

import pytest

from attnbook.claims.roles import read_role
from tests.claims.tiny import PROB, build_page


@pytest.mark.parametrize(
    ("content", "text", "ident"),
    [
        ("0.87 <a.b>", "0.87", "a.b"),
        ("約900万 <scaling.score_ratio>", "約900万", "scaling.score_ratio"),
        ("<1e-6 <a.b>", "<1e-6", "a.b"),
        ("< 1e-6 <a.b>", "< 1e-6", "a.b"),
        ("> 3 < a.b >", "> 3", "a.b"),
        ("3倍<a.b>", "3倍", "a.b"),
        ("a\n line break <a.b>", "a\n line break", "a.b"),
        ("x <a>", "x", "a"),
    ],
)
def test_text_and_id(content, text, ident):
    """The last angle brackets hold the id; the text keeps its own."""
    assert read_role(content) == (text, ident, "")


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ("0.87", "no <id> at its end"),
        ("0.87 <a.b> x", "no <id> at its end"),
        ("0.87 a.b>", "no <id> at its end"),
        ("<a.b>", "no text before the id"),
        ("  <a.b>", "no text before the id"),
        ("0.87 <>", "<> is not the id"),
        ("0.87 <a b>", "<a b> is not the id"),
        ("0.87 <a..b>", "<a..b> is not the id"),
        ("0.87 <a-b>", "<a-b> is not the id"),
        ("", "no <id> at its end"),
    ],
)
def test_malformed(content, wrong):
    """Each malformed content says what is wrong with it and yields no id."""
    _, ident, malformed = read_role(content)
    assert ident == ""
    assert malformed.startswith(wrong)


@pytest.mark.parametrize("role", ["claim", "holds"])
@pytest.mark.parametrize("content", ["0.87", "<a.prob>", "0.87 <a.prob!>", "0.87 <>"])
def test_a_malformed_role_is_red_once_at_its_place(tmp_path, role, content):
    """The page keeps the text; the build fails, and says how a role is written."""
    built = build_page(tmp_path, f"# P\n\n{PROB}\n{{claim}}`0.87 <a.prob>`\n\nOne\ntwo {{{role}}}`{content}`\n")
    assert built.code == 1
    assert built.kinds == ["malformed"]
    assert built.failures[0].startswith(f"book/index.md:9: {{{role}}}`{content}` has ")
    assert built.failures[0].endswith(f"write {{{role}}}`text <id>`")


@pytest.mark.parametrize(
    ("content", "kinds"),
    [
        ("0.87 <a.prob!>", ["malformed"]),
        ("0.87 a.prob", ["malformed"]),
        ("<a.prob>", ["malformed"]),
        ("0.87 <a.prob.x!>", ["quoted nowhere", "malformed"]),
        ("0.87 <b.a.prob!>", ["quoted nowhere", "malformed"]),
        ("0.87", ["quoted nowhere", "malformed"]),
    ],
)
def test_a_slip_in_the_only_role_of_an_id_is_one_failure(tmp_path, content, kinds):
    """What a malformed role names is not reported again as quoted nowhere; what it doesn't name is."""
    built = build_page(tmp_path, f"# P\n\n{PROB}\nOne {{claim}}`{content}`\n")
    assert built.kinds == kinds
