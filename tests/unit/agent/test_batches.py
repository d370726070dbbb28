import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools.batches import BatchItem, normalize_path, split_batches

BESIDE = BatchItem(parallel=True)
ALONE = BatchItem(parallel=False)


def on(path: str) -> BatchItem:
    return BatchItem(parallel=True, path=normalize_path("/desk", path))


@pytest.mark.parametrize(
    ("places", "sizes"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([BESIDE] * 3, [3], id="parallel calls"),
        pytest.param([BESIDE] * 10, [8, 2], id="more than the maximum"),
        pytest.param([BESIDE, ALONE, BESIDE, BESIDE], [1, 1, 2], id="a barrier"),
        pytest.param([ALONE, ALONE], [1, 1], id="barriers"),
        pytest.param([on("a"), on("b"), BESIDE], [3], id="different paths"),
        pytest.param([on("a"), on("b"), on("./a")], [2, 1], id="one path"),
        pytest.param([on("a"), on("a"), on("a")], [1, 1, 1], id="one path, three times"),
        pytest.param([on("a"), on("/desk/b/../a")], [1, 1], id="one path in two notations"),
        pytest.param([on("a/b/c"), on("a")], [1, 1], id="in a folder"),
        pytest.param([on("a"), on("a/b/c")], [1, 1], id="a folder, then a file in it"),
        pytest.param([on("a"), on("ab")], [2], id="common prefix of names"),
        pytest.param([on("X"), on("X/a")], [1, 1], id="a folder with the name X"),
        pytest.param([on("X"), on("b")], [2], id="a folder with the name X, and a file beside"),
        pytest.param([on("."), on("a")], [1, 1], id="the workspace itself"),
        pytest.param([on("/"), on("/desk/a")], [1, 1], id="the root"),
        pytest.param([on("a"), on("b"), on("a"), on("b")], [2, 2], id="alternating"),
    ],
)
def test_calls_are_split_into_batches(places: list[BatchItem], sizes: list[int]) -> None:
    assert [len(batch) for batch in split_batches(places)] == sizes


PLACES = st.builds(
    BatchItem, parallel=st.booleans(), path=st.sampled_from([None, "/", "/a", "/a/b", "/ab", "/c"])
)


@given(st.lists(PLACES, max_size=30))
def test_every_call_is_in_one_batch_in_order_and_batches_have_no_conflicts(
    places: list[BatchItem],
) -> None:
    cut = list(split_batches(places))
    assert [at for batch in cut for at in batch] == list(range(len(places)))
    for batch in cut:
        assert 0 < len(batch) <= 8
        inside = [places[at] for at in batch]
        assert len(inside) == 1 or all(place.parallel for place in inside)
        paths = [place.path for place in inside if place.path]
        assert len(set(paths)) == len(paths)
        assert len(paths) == 1 or "/" not in paths
        assert not {"/a", "/a/b"} <= set(paths)
