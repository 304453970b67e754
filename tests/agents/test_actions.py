"""The action table: native actions as output rows."""

import numpy as np
import pytest

from peira.agents.actions import ActionTable
from peira.agents.text import ByteText
from peira.agents.types import Legal
from peira.tools.errors import UsageError
from peira.tools.native import NativeAction

NATIVE = (NativeAction("go", "go there", routing=True), NativeAction("A", " A"), NativeAction("B", " B"))
TABLE = ActionTable.build("toy", NATIVE, ByteText().encode, 261)


def test_rows_follow_the_vocabulary() -> None:
    assert TABLE.ids == (261, 262, 263)
    assert [TABLE.id_of(name) for name in ("go", "A", "B")] == [261, 262, 263]
    assert [TABLE.name_of(row) for row in (260, 261, 263, 264)] == [None, "go", "B", None]
    assert TABLE.routing == (True, False, False)
    assert bytes(TABLE.written_of(261).tolist()) == b"go there"
    assert TABLE.written_of(262).dtype == np.int32


def test_legal_sets_are_sorted_and_shared() -> None:
    assert TABLE.legal(("B", "A"), False) == Legal(False, (262, 263))
    assert TABLE.legal(("go",), True) == Legal(True, (261,))
    assert TABLE.legal((), True) == Legal(True, ())
    assert TABLE.legal(("go",), True) is TABLE.legal(("go",), True)


def test_the_fingerprint_covers_all_that_is_read_and_written() -> None:
    encode = ByteText().encode
    same = ActionTable.build("toy", NATIVE, encode, 261)
    assert same == TABLE
    assert same.fingerprint == TABLE.fingerprint
    others = [
        ActionTable.build("other", NATIVE, encode, 261),
        ActionTable.build("toy", NATIVE, encode, 262),
        ActionTable.build("toy", NATIVE[:2], encode, 261),
        ActionTable.build("toy", (NativeAction("go", "go her", routing=True), *NATIVE[1:]), encode, 261),
        ActionTable.build("toy", (NativeAction("go", "go there"), *NATIVE[1:]), encode, 261),
    ]
    assert len({TABLE.fingerprint, *(table.fingerprint for table in others)}) == 6


@pytest.mark.parametrize(
    ("native", "says"),
    [
        ((), "no native actions"),
        ((NativeAction("A", "a"), NativeAction("A", "b")), "more than once"),
        ((NativeAction("A", ""),), "must not be empty"),
    ],
)
def test_actions_that_cannot_be_rows_are_refused(native: tuple[NativeAction, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        ActionTable.build("toy", native, ByteText().encode, 261)


def test_unknown_actions_are_named() -> None:
    with pytest.raises(UsageError, match=r"unknown native action of world 'toy' 'goo'. Did you mean 'go'"):
        TABLE.id_of("goo")
    with pytest.raises(UsageError, match="id 5 is not a native action"):
        TABLE.written_of(5)
