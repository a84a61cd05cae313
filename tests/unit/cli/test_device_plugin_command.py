"""`keplab device-plugin` says in one line what it cannot do."""

import pytest

from lab.cli.__main__ import run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--resource", "example.com/gpu"], "want either --node NODE"),
        (["--node", "n1", "--folder", ".", "--resource", "example.com/gpu"], "want either --node NODE"),
        (["--node", "n9", "--resource", "example.com/gpu"], "node n9 of the mesh on mesh takes no device plugins"),
        (["--folder", ".", "--resource", "gpu"], "device plugin gpu: resource: 'gpu', want an extended resource"),
        (["--folder", ".", "--resource", "example.com/gpu", "--devices", "2", "--topology", "0"],
         "device plugin example.com/gpu: topology: 1 NUMA nodes for 2 devices"),
        (["--folder", ".", "--resource", "example.com/gpu", "--topology", "x"], "want the NUMA node of each device"),
        (["--folder", ".", "--resource", "example.com/gpu", "dance"], "no act 'dance'; there are: accept, add"),
        (["--folder", ".", "--resource", "example.com/gpu", "stop"], "has no emulated device plugin example.com/gpu"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_one_line_and_exit_code_2(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mesh" / "nodes").mkdir(parents=True)
    if "--data" not in arguments:
        arguments = ["--data", "mesh", *arguments]

    try:
        code = run(["device-plugin", *arguments])
    except SystemExit as end:
        code = end.code

    text = capsys.readouterr().err
    assert code == 2
    assert said in text
    assert len(text.splitlines()) == 1


def test_device_sockets_belong_into_a_nodes_file_when_there_is_one(tmp_path, capsys):
    (tmp_path / "nodes.json").write_text('[{"name": "n1"}]')

    code = run(["up", "--device-sockets", "--nodes-file", str(tmp_path / "nodes.json"), "--data", str(tmp_path)])

    assert code == 2
    assert "set deviceSocket of each node" in capsys.readouterr().err
