"""Packages are made and installed here, which takes longer than other tests may."""

import pytest


@pytest.fixture(autouse=True)
def bounded():
    """In place of the bound for all tests: each program that is run here has one of its own."""
