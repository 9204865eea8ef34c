"""Chapter 07: exercises that ask which part is needed, and which operation is exact."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tiny_lm.exercises.core import Exercise

EXACT = "bce"
# What to say when a letter is judged wrongly.
REASONS = {
    "a": "a is not exact: LayerNorm subtracts a mean, and this stream has one.",
    "b": "b is exact: every branch reads the stream through a norm, and norms don't see a common "
    "factor. eps is in units of x², so it has to be divided by 4.",
    "c": "c is exact: a rotation changes no length, so no RMS; and the matrices that read the "
    "stream turn back.",
    "d": "d is not exact: a gain is in the way. It multiplies coordinates, and after the rotation "
    "these are others.",
    "e": "e is exact: attention's write is a sum over its heads, in whatever order.",
    "f": "f is not exact: bfloat16 keeps 8 significant bits of 53.",
}


def _judged(answer: str | Sequence[str]) -> str:
    """The reasons for all letters that are judged wrongly."""
    if not isinstance(answer, Collection):  # such as a generator, which may have no end
        raise ValueError('expected letters from a to f, such as "af"')
    given = {letter for letter in "".join(answer).lower() if letter.isalpha()}
    if not given or not given <= set(REASONS):
        raise ValueError('expected letters from a to f, such as "af"')
    wrong = sorted(given ^ set(EXACT))
    return " ".join(REASONS[letter] for letter in wrong) if wrong else "all six as they are"


EXERCISES = (
    Exercise(
        name="share_and_drop",
        chapter=7,
        title="Hardly a share, but indispensable",
        difficulty=3,
        minutes=4,
        reference="b",
        wrong={
            "The shares add up to the lead to 15 digits: none is lost to rounding.": "a",
            "The final norm rescales all shares alike. It can't make a lead of 9 out of a share "
            "of 0.3.": "c",
            "Its weights say where the answer stood: 98 % of one head. It is no accident of one "
            "story, either: the numbers are means over 24.": "d",
        },
        hints=["Who reads what attention 1 wrote? The output is not the only one."],
    ),
    Exercise(
        name="exact_surgery",
        chapter=7,
        title="Exact, on paper",
        difficulty=3,
        minutes=6,
        reference=EXACT,
        use=_judged,
        wrong={
            reason: "".join(sorted(set(EXACT) ^ {letter})) for letter, reason in REASONS.items()
        },
        hints=[
            "What does an RMSNorm not see? A factor, with eps in step; a rotation, without a gain.",
            "Three of the six are exact.",
        ],
    ),
)
