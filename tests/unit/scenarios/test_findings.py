"""What the README.md of a folder of experiments says is found."""

from lab.scenarios.findings import finding_of_scenario, read_findings

PAGE = """# Two gangs

Finding: the quorum is at the
wrong place.

Picture: `keplab run two.txt`

| Scenario | Switch | What differs |
|---|---|---|
| `one` | `a=b` | the first *differs* |
| two, three.txt | | [more](x.md) |
| fm-k5-missing, -foreign | | a checkpoint |
| ../other/four | | elsewhere |
| [five](five.txt) | | linked |

| Arm | Finding |
|---|---|
| six | is no scenario |

* `seven.txt`: an item
  of two lines.
* `eight.txt`: another.
"""


def test_a_finding_is_a_paragraph_and_what_a_scenario_shows_a_row_or_an_item():
    found = read_findings(PAGE)

    assert "Two gangs" == found.title
    assert "the quorum is at the wrong place." == found.finding
    assert "keplab run two.txt" == found.picture
    assert found.of_scenario == {
        "one": "the first *differs*",
        "two": "[more](x.md)",
        "three": "[more](x.md)",
        "fm-k5-missing": "a checkpoint",
        "fm-k5-foreign": "a checkpoint",
        "five": "linked",
        "seven": "an item of two lines.",
        "eight": "another.",
    }


def test_a_scenario_without_a_row_has_its_folders_finding_and_without_a_page_none(tmp_path):
    (tmp_path / "README.md").write_text(PAGE)

    assert "the first *differs*" == finding_of_scenario(tmp_path / "one.txt")
    assert "the quorum is at the wrong place." == finding_of_scenario(tmp_path / "nine.txt")
    assert "" == finding_of_scenario(tmp_path / "below" / "nine.txt")


def test_the_arms_of_a_scenario_are_those_of_the_comparison_with_most_of_them():
    text = """`keplab compare e/one.txt --arm default`

    keplab compare e/one.txt --seeds 5 --arm a:x=1,y=2 \\
      --arm b
    keplab compare e/two.txt --set z=1 --arm a:x=1 --arm b
"""
    assert {"one": ("a:x=1,y=2", "b")} == read_findings(text).arms
