"""The copy of the tree that mutants are tried in has every module of the product."""

from tests.mutation.trial import Copy


def test_a_copy_leaves_out_recordings_of_the_tree_and_keeps_a_package_of_that_name(tmp_path):
    root = tmp_path / "tree"
    for file in ("runs/trials.jsonl", "build/page.html", "lab/runs/folder.py", "tests/unit/runs/test_folder.py"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("")

    copy = Copy(root, tmp_path / "copy").place

    files = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert {"lab/runs/folder.py", "tests/unit/runs/test_folder.py"} == files
