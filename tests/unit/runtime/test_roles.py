"""Roles are files: read whole, refused whole, with what every controller may do added."""

import pytest

from services.runtime.roles import OF_EVERY_CONTROLLER, controller_identities, controller_roles, read_roles

ROLE = "user: {user}\nrules:\n  - {{name: read, verbs: [get], resources: [pods]{more}}}\n"


def write(folder, name, user, more=""):
    (folder / name).mkdir()
    (folder / name / "role.yaml").write_text(ROLE.format(user=user, more=more))


def test_a_controllers_role_has_events_and_its_own_lease_without_saying_so(tmp_path):
    write(tmp_path, "b", "system:controller:b")
    write(tmp_path, "a", "system:pod-unbinder")

    unbinder, controller = controller_roles(tmp_path)

    assert [rule.name for rule in unbinder.rules] == ["read"]
    assert controller.rules[1:] == OF_EVERY_CONTROLLER


@pytest.mark.parametrize("more", [", mayTouch: [spec]", ", needs: uid"])
def test_a_file_that_is_no_role_is_named(tmp_path, more):
    write(tmp_path, "a", "system:controller:a", more)

    with pytest.raises(ValueError, match=r"a/role\.yaml"):
        controller_roles(tmp_path)


def test_a_list_of_roles_is_read_as_it_stands(tmp_path):
    (tmp_path / "roles.yaml").write_text("- user: group:g\n  rules: []\n")

    assert [role.user for role in read_roles(tmp_path / "roles.yaml")] == ["group:g"]


def test_no_two_controllers_share_a_role():
    users = [identity.user for identity in controller_identities()]

    assert len(set(users)) == len(users)
