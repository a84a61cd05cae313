"""The story line `stages FILE…`."""

import pytest

from services.scenarios.script.scenario import ScriptError, parse_story

VERBS = frozenset({"pod"})


def test_stage_files_are_beside_the_story_and_in_order():
    story = parse_story("stages a.yaml b.yaml\nstages sub/c.yaml\npod x\n", "dir/tale.txt", VERBS)

    assert story.stages == ("dir/a.yaml", "dir/b.yaml", "dir/sub/c.yaml")
    assert parse_story("pod x\n", "t.txt", VERBS).stages == ()


def test_stages_without_a_file_or_after_the_first_act_are_refused():
    with pytest.raises(ScriptError, match="want files beside the story"):
        parse_story("stages\npod x\n", "t.txt", VERBS)
    with pytest.raises(ScriptError, match="before the first act"):
        parse_story("pod x\nstages a.yaml\n", "t.txt", VERBS)
