"""Installed distributions with entry points, made up by tests."""

from pathlib import Path


def write_distribution(folder: Path, name: str, entry_points: str) -> None:
    """Write the metadata of a distribution that is installed in `folder`."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
