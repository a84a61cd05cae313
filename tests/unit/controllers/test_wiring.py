import pytest

from services.controllers.wiring import choose_registrations, registered_controllers
from services.runtime.config import StartError
from services.runtime.supervisor import CLIENT_CONTROLLERS

BY_DEFAULT = [name for name in registered_controllers() if name not in CLIENT_CONTROLLERS]


@pytest.mark.parametrize(
    ("names", "expected"),
    [(("*",), BY_DEFAULT), (("gc", "replicaset"), ["replicaset", "gc"]), (("*", *CLIENT_CONTROLLERS), list(registered_controllers())),
     (("-gc",), [n for n in BY_DEFAULT if n != "gc"]), (("*", "-gc"), [n for n in BY_DEFAULT if n != "gc"])],
)  # fmt: skip
def test_controllers_are_chosen_by_name_or_left_out_by_a_minus(names, expected):
    assert [each.name for each in choose_registrations(names)] == expected


def test_an_unknown_controller_is_refused_with_the_names_there_are():
    with pytest.raises(StartError, match="no controller 'nope'; there are: replicaset"):
        choose_registrations(("nope",))
