"""Tests of the imports of a gateway whose API has no request yet."""

import subprocess
import sys

import pytest


@pytest.mark.process
def test_the_protocols_of_the_api_are_imported_with_their_first_request() -> None:
    code = (
        "import sys, gateway.runner; "
        "names = ('chat_shapes', 'responses_shapes', 'messages.shapes', 'plain.completions'); "
        "print(*(name for name in names if f'gateway.http.api.{name}' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
