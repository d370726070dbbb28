"""Writes docs/configuration.md from the settings structs: `python -m scripts.configuration_docs`."""

from pathlib import Path

from gateway.config.render import render_documentation
from platforms.core.registry import load_specs

if __name__ == "__main__":
    page = Path(__file__).parents[1] / "docs/configuration.md"
    page.write_text(render_documentation(load_specs()), encoding="utf-8")
