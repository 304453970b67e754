"""Whole numbers in English words."""

__all__ = ["WORDS", "in_words"]

_SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = ("", "thousand", "million", "billion", "trillion", "quadrillion", "quintillion")
WORDS = (*_SMALL, *_TENS, "hundred", *_SCALES[1:])
"""Every word ``in_words`` uses."""


def in_words(number: int) -> str:
    """Return a number from 0 to 10**21 - 1 in words: ``1205`` is ``one thousand two hundred five``."""
    if not 0 <= number < 10**21:
        raise ValueError(f"numbers from 0 to 10**21 - 1 have words here, not {number}")
    if not number:
        return _SMALL[0]
    groups = []
    for scale in _SCALES:
        number, group = divmod(number, 1000)
        if group:
            groups.append(f"{_below_thousand(group)} {scale}".rstrip())
    return " ".join(reversed(groups))


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{_SMALL[hundreds]} hundred"] if hundreds else []
    if rest >= 20:
        tens, ones = divmod(rest, 10)
        words.append(f"{_TENS[tens - 2]}-{_SMALL[ones]}" if ones else _TENS[tens - 2])
    elif rest:
        words.append(_SMALL[rest])
    return " ".join(words)
