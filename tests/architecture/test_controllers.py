"""A controller is a folder: what it shares with others has a name of its own and lies beside the folders."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "services" / "controllers"
CLAIM_FOLDER = Path(__file__).parents[2] / "claim_controller"
IMPORT = re.compile(r"^from services\.controllers\.(\w+)", re.M)


def test_no_controller_imports_another():
    found = [
        f"{path.relative_to(FOLDER)}: {name}"
        for path in sorted(FOLDER.glob("*/*.py"))
        for name in IMPORT.findall(path.read_text())
        if name != path.parent.name and not name.startswith("shared_")
    ]

    assert found == []


def test_no_controller_of_claims_imports_another():
    found = [
        f"{path.relative_to(CLAIM_FOLDER)}: {name}"
        for path in sorted(CLAIM_FOLDER.glob("*/*.py"))
        for name in re.findall(r"^from claim_controller\.(\w+)", path.read_text(), re.M)
        if name not in (path.parent.name, "switches") and not name.startswith("shared_")
    ]

    assert found == []


def test_what_lies_beside_the_folders_is_shared_by_two_of_them_at_least():
    text = {folder.name: "".join(path.read_text() for path in folder.glob("*.py")) for folder in FOLDER.iterdir()}
    shared = {path.stem: path.read_text() for path in FOLDER.glob("shared_*.py")}

    def users(name):
        among = [folder for folder, code in text.items() if f".{name} " in code or f" {name} " in code]
        return len(among) + sum(name in code for other, code in shared.items() if other != name)

    assert [name for name in sorted(shared) if users(name) < 2] == []
