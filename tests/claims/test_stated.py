"""Inline code and formulas: definitions are exempt, results are numbers that somebody has to own."""

import pytest

from attnbook.claims.unowned import states_result

DEFINITIONS = [
    "d = 64", "d=64", "d_k = 64", r"d_{\mathrm{model}} = 512", r"n_{kv\_heads} = 3", "n_heads=8",
    "head_dim = 64, n_heads = 8", r"d = 64,\ n = 128", r"\epsilon = 10^{-6}", "θ = 1e4", "lr = 0.003", "float32",
    "sm_90", "torch.float16", "GPT-2", "softmax(x, axis=-1)", "(b, h, t, d)", "(2, 3)", "[1, 2, 3]", "x = [0.5, 0.5]",
    "torch.tensor([0.1, 0.2])", "x[0]", "x.shape == (2, 3)", "exp(1000)", r"1/\sqrt{d}", r"\frac{1}{\sqrt{d}}",
    r"\frac{1}{2}(x + y)", "n × n", r"n \times n", "8 × 8", "e⁸/e⁻⁸", r"e^{8} / e^{-8}", "w.sum() == 1",
    r"\sum_j w_{ij} = 1", r"e^0 = 1", r"\exp(-\infty) = 0", "i < 3", "j <= i + t_kv - t_q", r"x_i \ge 0",
    "q.shape[-1] ** -0.5", "OMP_NUM_THREADS=1", "--jobs=2", "nox -s build", "-inf", r"-\infty", "nan", "", " ",
    r"\mathrm{Var}(q \cdot k) = d", r"\sigma = 8", r"\begin{pmatrix} 0.3 & -\infty \\ 0.1 & 0.5 \end{pmatrix}",
    "for i in range(8):", "def f(x): return x[1]", "k0", "Q4_1", r"\lim_{n \to \infty} a_n", "x != 3",
    r"m_{ij} = \begin{cases} 0 & j \le i \\ -\infty & j > i \end{cases}",
    r"\begin{aligned} \sum_j w_j &= \frac{s}{s} \\ &= 1 \end{aligned}", "[-6e4, -7e4]", "[40000, 40001]",
]  # fmt: skip

RESULTS = [
    "0.98", "3", "-1e9", "1e-6", "= 8886110", "≈ 3", r"\approx 9 \times 10^6", "98%", r"98\%", "約900万", "9 million",
    "8 GiB", "128k", "8B", "1,024", r"8{,}886{,}110", r"\frac{1}{8}", r"9 \times 10^{6}", "9*10**6", "1_000_000",
    "[0.87, 0.13]", "(0.87, 0.13)", "[[0.1, 0.9], [0.5, 0.5]]", "x ≈ 3", r"x \approx 3", r"p_{\max} \simeq 0.98",
    "x ≒ 3", r"e^8 / e^{-8} \approx 9\times 10^6", "e⁸/e⁻⁸ ≈ 9百万", "softmax(x)[0] = 0.98", "softmax(x)[0] == 0.98",
    "0.98 = softmax(x)[0]", "x = a/b = 0.98", r"\sqrt{64} = 8", "2^{17} = 131072", "64 * 8 = 512",
    "max(abs(a - b)) < 1e-6", r"\max_i |a_i - b_i| \le 10^{-6}", "len(x) -> 3", "softmax(x)  # 0.98",
    "d = 64, softmax(x)[0] = 0.98", '"0.98"', "０．９８", "[1e-6, 2e-6]",
    r"\begin{aligned} r &= \frac{a}{b} \\ &= 0.98 \end{aligned}", r"8\,886\,110", "−0.98",
    r"\mathrm{Var}(q \cdot k) = 64", r"\text{loss}(x) = 0.5", "w.sum() == 1.0001",
]  # fmt: skip


@pytest.mark.parametrize("code", DEFINITIONS)
def test_code_that_defines_or_names_is_no_result(code):
    """A name for a number, a shape, a law with 0 or 1, a condition, a call."""
    assert not states_result(code, "ja")


@pytest.mark.parametrize("code", RESULTS)
def test_a_number_without_a_name_and_a_computed_value_are_results(code):
    """They belong into a claim."""
    assert states_result(code, "ja")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("piece", ["(", "1,", "x=", "\\frac{", "0.1 ", "a_{", "≈", "\\begin{matrix}", "x_1"])
def test_hostile_code_is_read_in_reasonable_time(piece):
    """No code makes the search run away."""
    states_result(piece * 1000, "ja")
