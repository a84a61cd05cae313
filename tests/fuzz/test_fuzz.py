"""A share of `make fuzz` with one seed, and what its oracles find when the server is broken on purpose."""

import msgspec
import pytest

from apiserver_fake.registry import registry
from apiserver_fake.registry.write import Write
from apiserver_fake.registry.writes.bodies import Bodies
from services.api.wire import Response
from tests.fuzz import expressions, frames, parsers, rest
from tests.fuzz.running import findings, go
from tests.fuzz.target import Target, valid_objects

SEED = 1
CASES = {"rest": 500, "grpc": 120, "parsers": 1_500, "expressions": 1_650}


def quiet(text):
    """Show nothing: a finding is in what fails."""


@pytest.fixture(scope="module")
def target():
    with Target() as found:
        yield found


def test_as_40_generated_requests_are_answered_and_change_nothing_that_is_refused(target):
    assert go("rest", target, CASES["rest"], SEED, report=quiet) == []


def test_as_40_generated_frames_are_answered_and_end_no_other_call(target):
    assert go("grpc", target, CASES["grpc"], SEED, report=quiet) == []


def test_as_40_generated_texts_are_read_or_refused():
    assert go("parsers", None, CASES["parsers"], SEED, report=quiet) == []


def test_generated_expressions_over_every_function_have_a_value_or_an_error_of_their_language():
    assert go("expressions", None, CASES["expressions"], SEED, report=quiet) == []


def test_every_function_of_every_library_is_written_in_some_expression():
    among = expressions.every_library()
    wanted = {name for library in among for name in library.functions if "@" not in name} | {
        name for library in among for name, _, _ in library.macros
    }
    assert wanted <= set(expressions.functions(among))
    names = [expressions.Writer(seed, among).chosen for seed in range(3_000)]
    assert set(expressions.functions(among)) == set(names)


def test_an_exception_that_a_net_has_caught_is_found(monkeypatch):
    def broken(*_):
        raise IndexError("broken on purpose")

    monkeypatch.setattr(expressions.libraries.kubernetes.addresses, "_parse", broken)
    expressions.libraries.kubernetes.addresses.ip.cache_clear()
    found = "\n".join(go("expressions", None, 300, SEED, "language", report=quiet))
    assert "IndexError: broken on purpose" in found
    assert "repeat it: make fuzz ONLY=expressions PLACE=language N=300 SEED=1" in found


def test_every_kind_has_a_valid_object_to_begin_with(target):
    assert set(valid_objects()) == set(target.server.catalogue.resources) - {"things.fuzzed.example.com"}


# -- the oracles themselves


def found_at(target, name, cases):
    """Return what is found at one place."""
    [place] = [each for each in rest.places(target.server.catalogue) if str(each) == name]
    oracle = rest.Rest(target)

    def check(case):
        oracle.restore(place)
        oracle.check(case)

    return "\n".join(findings(rest.cases(rest.schemas_of(target), place), check, cases, SEED, shrinks=False))


def test_an_exception_in_a_write_is_found(monkeypatch):
    def broken(self, *_):
        raise KeyError("broken on purpose")

    with Target() as target:
        monkeypatch.setattr(Bodies, "check_name", broken)
        monkeypatch.setattr(Bodies, "place", broken)
        assert "broken on purpose" in found_at(target, "v1/configmaps", 60)


def test_a_refusal_that_changes_something_is_found(monkeypatch):
    update = Write.update

    def broken(self, *arguments, **more):
        answer = update(self, *arguments, **more)
        return Response(code=422, body=b'{"kind":"Status","code":422,"message":"no"}') if answer.code == 200 else answer

    with Target() as target:
        monkeypatch.setattr(Write, "update", broken)
        assert "the state has changed after an answer 422" in found_at(target, "v1/configmaps", 60)


def test_a_dry_run_that_writes_is_found(monkeypatch):
    prepare = registry.Registry.prepare

    def broken(self, identity, request, *arguments):
        return prepare(self, identity, msgspec.structs.replace(request, dry_run=False), *arguments)

    with Target() as target:
        monkeypatch.setattr(registry.Registry, "prepare", broken)
        assert "the state has changed after an answer 20" in found_at(target, "v1/configmaps", 60)


def test_a_call_that_ends_its_stream_is_found(monkeypatch):
    with Target() as target:
        oracle = frames.Frames(target)
        monkeypatch.setattr("apiserver_fake.grpc.server._answer_to", lambda error, request: _raise(error))
        strategy = frames.frames(target.server.catalogue, rest.schemas_of(target))
        assert findings(strategy, lambda case: oracle.check(*case), 60, SEED, shrinks=False)


def _raise(error):
    raise error


def test_a_parser_that_raises_something_else_is_found(monkeypatch):
    broken = parsers.Parser(lambda text: int(text) if "1" in text else {}[text], seeds=("1",), parts=("1", "a"))
    monkeypatch.setitem(parsers.PARSERS, "duration", broken)
    found = findings(parsers.texts_for(broken), lambda text: parsers.check("duration", text), 200, SEED)
    assert "KeyError" in "\n".join(found)


def test_what_is_found_names_its_seed_and_the_command_that_repeats_it(monkeypatch):
    monkeypatch.setitem(parsers.PARSERS, "duration", parsers.Parser(lambda text: {}[text], seeds=("1",)))
    [found] = go("parsers", None, 20, 7, "duration", report=quiet)
    assert "repeat it: make fuzz ONLY=parsers PLACE=duration N=20 SEED=7" in found
