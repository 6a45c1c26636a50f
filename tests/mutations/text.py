"""Sentences made false, one at a time: a number, a sign, a comparison, a unit, an id, a role, a place."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

ONE = "book/01-one-line.md"
NAMES = "book/02-three-names.md"
SCALING = "book/03-scaling.md"
SOFTMAX = "book/04-softmax.md"
MASK = "book/05-mask.md"
FRONT = "book/index.md"


def _claim(why: str, path: str, ident: str, old: str, new: str, *by: str, role: str = "claim") -> Mutation:
    """Rewrite the text of the only claim of `ident` in the file that reads `old`."""
    before, after = (f"{{{role}}}`{text} <{ident}>`" for text in (old, new))
    return Mutation(why, path, before, after, ident, by or ("drift",))


def _bind(why: str, path: str, text: str, old: str, new: str, *by: str, role: str = "claim") -> Mutation:
    """Bind the text to another id; the claim of the new id must notice."""
    before, after = (f"{{{role}}}`{text} <{ident}>`" for ident in (old, new))
    return Mutation(why, path, before, after, new, by)


NUMBERS = (
    _claim("a count is one too many", ONE, "oneline.statements", "三つ", "四つ"),
    _claim("the last digit is one too high", ONE, "oneline.hand_weight_first", "0.665", "0.666"),
    _claim("a zero is left out", ONE, "oneline.hand_weight_third", "0.090", "0.90"),
    _claim("digits are swapped", ONE, "oneline.hand_out", "14.2", "12.4"),
    _claim("a digit is swallowed", ONE, "oneline.rows", "2440個", "244個"),
    _claim("an exact number is only near", ONE, "oneline.hand_mean", "20", "21"),
    _claim("two numbers of a table are swapped", ONE, "oneline.hand_weight_second", "0.245", "0.090"),
    _claim("about, and still too far", ONE, "oneline.hand_weight_ratio", "約2.72倍", "約3.2倍"),
    _claim("a bound is ten times too tight", ONE, "oneline.torch_error64", "1e-12未満", "1e-17未満"),
    _claim("a scale word is dropped", NAMES, "names.parameters", "1万2288個", "2288個"),
    _claim("a scale word is another", NAMES, "names.parameters", "1万2288個", "1億2288個"),
    _claim("a digit more than was measured", NAMES, "names.own_weight_1", "0.280", "0.2803"),
    _claim("full-width digits are digits", NAMES, "names.entries", "8個", "９個"),
    _claim("nine million is eight", FRONT, "scaling.score_ratio", "約900万倍", "約800万倍"),
    _claim("nine million is nine hundred million", SCALING, "scaling.score_ratio", "約900万倍", "約9億倍"),
    _claim("a standard deviation is a variance", FRONT, "scaling.score_sd_64", "約8", "約64"),
    _claim("a range ends below the value", SCALING, "scaling.max_weight_divided_n16_d64", "0.24〜0.25", "0.21〜0.22"),
    _claim(
        "a random value has more digits than its spread",
        SCALING,
        "scaling.jacobian_free_d1024",
        "0.2",
        "0.2000",
        "drift",
        "fragile",
    ),
    _claim("a count of pairs is off by one row", MASK, "mask.strict_pairs", "21組", "28組"),
)

SIGNS = (
    _claim("a sign is added", ONE, "oneline.hand_score_second", "1", "−1"),
    _claim("minus infinity loses its sign", MASK, "mask.dead_lse", "−inf", "inf"),
    _claim("an exponent loses its sign", ONE, "oneline.row_sum_error", "1e-6未満", "1e6以上"),
)

COMPARISONS = (
    _claim("less than becomes at least", ONE, "oneline.torch_error32", "1e-5未満", "1e-5以上"),
    _claim("at least becomes less than", NAMES, "names.self_top_one_map", "99%以上", "99%未満"),
    _claim("a bound becomes an equality", ONE, "oneline.beyond_hull", "1e-6未満", "1e-6"),
    _claim("at least becomes at most", SCALING, "scaling.plain_over_divided", "10倍以上", "10倍以下"),
    _claim("a factor loses its bound", MASK, "mask.scores_ratio", "8倍以上", "8倍"),
)

UNITS = (
    _claim("per cent is left out", NAMES, "names.lookup_error_8", "1%未満", "1e-9未満"),
    _claim("a ratio becomes points", MASK, "mask.honest_free", "98%以上", "98ポイント以上", "unit"),
    _claim("per cent becomes per mille", SCALING, "scaling.within_8", "約70%", "約70‰", "unreadable", "unit", "drift"),
    _claim("a count becomes bytes", ONE, "oneline.rows", "2440個", "2440バイト", "unit"),
    Mutation(
        "the unit is moved out of the role",
        MASK,
        "{claim}`約10% <mask.decoder_fill_first>`",
        "{claim}`約0.1 <mask.decoder_fill_first>`%",
        "mask.decoder_fill_first",
        ("unit outside",),
    ),
    Mutation(
        "about is moved out of the role",
        SCALING,
        "{claim}`約6 <scaling.stretched_sd>`",
        "約{claim}`6 <scaling.stretched_sd>`",
        "scaling.stretched_sd",
        ("unit outside", "drift"),
    ),
)

IDS = (
    _bind("another measurement's id", ONE, "14.2", "oneline.hand_out", "oneline.hand_mean", "drift"),
    _bind(
        "an id with a slip of the pen", ONE, "25.8", "oneline.hand_turned_out", "oneline.hand_turnd_out", "unknown id"
    ),
    _bind(
        "a statement bound to a number",
        ONE,
        "二つは平均をはさんでちょうど対称です",
        "oneline.hand_turned_symmetric",
        "oneline.hand_mean",
        "not boolean",
        role="holds",
    ),
    _bind(
        "a number bound to a statement", NAMES, "0.66", "names.crowd_weight_16", "names.reads_backwards", "not a number"
    ),
    Mutation(
        "a sentence with its measurement is deleted",
        NAMES,
        "{claim}`2.303 <names.tenfold_scale>`",
        "その値",
        "names.tenfold_scale",
        ("quoted nowhere",),
    ),
)

FORM = (
    _claim("kilo is not written k", ONE, "oneline.rows", "2440個", "2k", "unreadable"),
    _claim("a comma in the wrong place", NAMES, "names.parameters", "1万2288個", "122,88個", "unreadable"),
    _claim("a hyphen for a range", SCALING, "scaling.jacobian_plain_n16_d64", "0.17〜0.18", "0.17-0.18", "unreadable"),
    _claim("a range without an end", SCALING, "scaling.jacobian_plain_n128_d64", "0.21〜0.23", "0.21〜", "unreadable"),
    _claim("words that are no number", MASK, "mask.one_query_sees", "5個", "たくさん", "unreadable"),
    _claim("a placeholder is left", MASK, "mask.billion_spacing", "64", "?", "placeholder"),
    _claim(
        "a number hides in a statement",
        MASK,
        "mask.probe_passes_right",
        "正しいマスクのモデルは合格し",
        "正しいマスクのモデルは100%合格し",
        "unreadable",
        role="holds",
    ),
    Mutation(
        "a role without an id",
        MASK,
        "{claim}`3行 <mask.short_memory_empty_rows>`",
        "{claim}`3行`",
        "3行",
        ("malformed",),
    ),
    Mutation(
        "a role in a heading",
        ONE,
        "# コードは三行",
        "# コードは{claim}`三つ <oneline.statements>`",
        "三つ",
        ("misplaced",),
    ),
    Mutation(
        "a role in code",
        NAMES,
        "{claim}`8個 <names.entries>`",
        "`` {claim}`8個 <names.entries>` ``",
        "names.entries",
        ("printed",),
    ),
    Mutation("a number that nobody owns", MASK, "{claim}`34組 <mask.leaky_pairs>`", "34組", "34", ("unowned",)),
    Mutation(
        "a full-width number that nobody owns",
        ONE,
        "{claim}`100 <oneline.hand_shift>`",
        "１００",
        "１００",
        ("unowned",),
    ),
    Mutation(
        "a result hides in code", ONE, "{claim}`0.867 <oneline.hand_doubled_first>`", "`0.867`", "0.867", ("unowned",)
    ),
)

TEXT = (*NUMBERS, *SIGNS, *COMPARISONS, *UNITS, *IDS, *FORM)
