import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.values.size import Size, format_size


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("20MB", 20_000_000),
        ("512 KB", 512_000),
        ("1.5 gb", 1_500_000_000),
        ("16MiB", 16 * 1024**2),
        ("77", 77),
        ("77 b", 77),
        (1234, 1234),
        (0, 0),
    ],
)
def test_sizes_are_parsed_as_people_write_them(written: object, size: int) -> None:
    assert Size.parse(written) == size


@pytest.mark.parametrize("written", ["", "MB", "20 XB", "3 ib", "-1", "1e3", -2, 1.5, True, None])
def test_an_invalid_size_is_refused_with_a_sentence(written: object) -> None:
    with pytest.raises(ValueError, match="must be an amount such as"):
        Size.parse(written)


@given(st.integers(0, 10**13))
def test_a_written_size_is_parsed_back(size: int) -> None:
    assert Size.parse(str(Size(size))) == size


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1 KB"),
        (120_400, "120.4 KB"),
        (999_499, "999.5 KB"),
        (999_999, "1 MB"),
        (35_000_000, "35 MB"),
        (2_000_000_000, "2 GB"),
    ],
)
def test_a_size_is_formatted_for_people(size: int, words: str) -> None:
    assert format_size(size) == words
