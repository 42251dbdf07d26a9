"""Salts: each user has one, and nobody else can make it."""

from draft_node.serve.salts import Salts


def test_a_user_has_one_salt_and_others_have_others() -> None:
    salts = Salts()
    assert salts.of("alice") == salts.of("alice")
    assert len({salts.of("alice"), salts.of("bob"), salts.of(""), salts.lone(), salts.lone()}) == 5
    assert all(0 < len(salt) <= 32 for salt in (salts.of("alice"), salts.lone()))


def test_another_process_has_other_salts() -> None:
    assert Salts().of("alice") != Salts().of("alice")
