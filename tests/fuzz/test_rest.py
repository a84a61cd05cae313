"""Requests that are generated, at a real server (T-FUZZ, V1 to V14)."""

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.fuzz import rest
from tests.fuzz.target import Target


@pytest.fixture(scope="module")
def target():
    with Target() as found:
        yield found


def run_place(target, schemas, oracle, place, count, number):
    @seed(number)
    @settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False
    )
    @given(rest.cases(schemas, place))
    def one(case):
        oracle.restore(place)
        oracle.check(case)

    one()
