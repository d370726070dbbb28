"""Writes docs/configuration.md from the settings' declarations: `python -m scripts.configuration_docs`."""

from pathlib import Path

from gateway.config.render import documentation
from platforms.core.registry import specs

if __name__ == "__main__":
    page = Path(__file__).parents[1] / "docs/configuration.md"
    page.write_text(documentation(specs()), encoding="utf-8")
