"""What a test in this folder leaves behind in its process, undone."""

import pytest
import structlog


@pytest.fixture(autouse=True)
def logging_is_as_it_was():
    """A run as processes tells its own process to log errors only; the next test may expect more."""
    yield
    structlog.reset_defaults()
