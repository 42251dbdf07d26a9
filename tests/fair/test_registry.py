"""A registry makes things by name, and refuses names and options that it does not know."""

import pytest

from goodspeed.errors import ConfigError, UnknownPolicyError
from goodspeed.fair.registry import Registry


def shapes():
    registry: Registry[object] = Registry("shape", "no shape is called {name!r}", UnknownPolicyError)
    registry.register("line")(lambda: "line")

    @registry.register("box")
    def box(num_sides, colour="red"):
        return num_sides, colour

    return registry


def test_what_is_registered_is_made_by_name():
    assert shapes().names() == ["box", "line"]
    assert shapes().create("line") == "line"
    assert shapes().create("box", 4) == (4, "red")
    assert shapes().create("box", 4, colour="blue") == (4, "blue")


def test_an_unknown_name_is_refused_with_the_error_of_its_kind():
    with pytest.raises(UnknownPolicyError, match=r"^no shape is called 'disk'; choose one of: box, line$"):
        shapes().create("disk")


def test_an_unknown_option_is_refused():
    with pytest.raises(ConfigError, match=r"^shape 'line' has no option 'colour'; it has no options$"):
        shapes().create("line", colour="blue")
    with pytest.raises(ConfigError, match=r"^shape 'box' has no option 'size'; its options are: colour$"):
        shapes().create("box", 4, size=1)
