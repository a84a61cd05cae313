"""`keplab dra-driver` says in one line what it cannot do."""

import pytest

from lab.cli.__main__ import run
from lab.cli.commands import dra_driver
from services.runtime.config import EXIT_CONFIG, EXIT_IO, EXIT_LOCKED, EXIT_OK


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--node", "n9", "--driver", "gpu.example.com:1"], "node n9 of the mesh on mesh takes no DRA drivers"),
        (["--node", "n1"], "want --driver NAME:DEVICES or --config FILE"),
        (["--node", "n1", "--driver", "gpu.example.com"], "want NAME:DEVICES"),
        (["--node", "n1", "--driver", "a.b:1+c.d:1"], "DRA driver: want one driver"),
        (["--node", "n1", "--driver", "gpu.example.com:1:fail-prepare=2"], "failPrepare: 2, want 0 to 1"),
        (["--node", "n1", "--driver", "gpu.example.com:1"], "no mesh runs on mesh"),
        (["--node", "n1", "--config", "gone.yaml"], "gone.yaml: "),
        (["--node", "n1", "--config", "list.yaml"], "list.yaml: want an object with the fields of a driver, or a ResourceSlice, not list"),
        (["--node", "n1", "--config", "odd.yaml"], "Object contains unknown field `divices`"),
        (["--node", "n1", "--config", "odd.yaml"], "odd.yaml: Object contains"),
        (["--node", "n1", "--config", "odder.yaml"], "odder.yaml: unknown field \"devices[0].attributes.model.strng\""),
        (["--node", "n1", "--config", "bytes.yaml"], "bytes.yaml: "),
        (["--node", "n1", "--config", "gone.yaml"], "gone.yaml: No such file or directory"),
        (["--node", "n1", "--config", "odd.yaml", "--driver", "a.b:1"], "want --driver or --config, not both: 'a.b:1'"),
        (["--node", "../n1", "--driver", "a.b:1"], "--node '../n1': want lower-case letters"),
        (["--node", "n1", "--driver", "a.b:1", "--instance", "../x"], "--instance '../x': want lower-case letters"),
        (["--node", "n1", "--data", "none", "--driver", "a.b:1"], "no mesh runs on none"),
        (["--node", "n1", "--driver", "gpu.example.com", "dance"], "no act 'dance'; there are: accept, add"),
        (["--node", "n1", "--driver", "gpu.example.com", "taint", "gpu-0"], "want: taint DEVICE… KEY[=VALUE]:EFFECT"),
        (["--node", "n1", "--driver", "gpu.example.com", "stop"], "n1 has no emulated DRA driver gpu.example.com"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_one_line(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mesh" / "nodes" / "n1" / "plugins_registry").mkdir(parents=True)
    (tmp_path / "bytes.yaml").write_bytes(b"name: \xa3")
    (tmp_path / "list.yaml").write_text("- 1\n")
    odder = "name: gpu.example.com\ndevices: [{name: gpu-0, attributes: {model: {strng: h100}}}]\n"
    (tmp_path / "odder.yaml").write_text(odder)
    (tmp_path / "odd.yaml").write_text("name: gpu.example.com\ndivices: 4\n")

    try:
        code = run(["dra-driver", "--data", "mesh", *arguments])
    except SystemExit as end:
        code = end.code

    text = capsys.readouterr().err
    assert code == (1 if "no mesh runs" in said else 2)
    assert said in text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize(("ended", "code"), [(EXIT_OK, 0), (EXIT_LOCKED, 3), (EXIT_IO, 3), (EXIT_CONFIG, 3)])
def test_a_driver_that_cannot_start_is_exit_code_3(ended, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mesh" / "nodes" / "n1" / "plugins_registry").mkdir(parents=True)
    monkeypatch.setattr(dra_driver, "_mesh", lambda *_: {})
    monkeypatch.setattr(dra_driver, "run", lambda *_: ended)

    assert run(["dra-driver", "--data", "mesh", "--node", "n1", "--driver", "gpu.example.com:1"]) == code
