import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.inputs import GenerationInputs
from pyconfd.model.rendering import Fragment, FragmentSet

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
fragments = st.lists(st.tuples(texts, texts), max_size=4, unique_by=lambda pair: pair[0]).map(
    lambda pairs: tuple(Fragment(*pair) for pair in pairs)
)
settings = st.dictionaries(texts, st.one_of(st.booleans(), st.integers(), texts, st.lists(texts)), max_size=3)
inputs = st.builds(
    GenerationInputs,
    st.builds(FragmentSet, fragments, fragments),
    st.dictionaries(st.sampled_from(["a", "b"]), settings),
)


@given(inputs)
def test_what_is_kept_is_given_back(inputs: GenerationInputs) -> None:
    again = GenerationInputs.decoded(inputs.encoded())
    assert (again.fragments, again.settings, again.digest) == (inputs.fragments, inputs.settings, inputs.digest)
    assert inputs.changes_to(again) == ()


@given(inputs, inputs)
def test_two_have_one_digest_only_if_they_are_the_same(one: GenerationInputs, other: GenerationInputs) -> None:
    assert (one.digest == other.digest) == ((one.fragments, one.settings) == (other.fragments, other.settings))


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"fragments": [[1]], "includable": [], "settings": {}}'])
def test_what_is_none_is_told(data: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        GenerationInputs.decoded(data)


def made(files: dict[str, str], **values: object) -> GenerationInputs:
    return GenerationInputs(FragmentSet(tuple(Fragment(*item) for item in files.items())), values)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (made({"a": "1"}), made({}), ["fragment a removed"]),
        (made({}), made({"a": "1"}), ["fragment a added"]),
        (made({"a": "1\n2\n"}), made({"a": "2\n3\n4\n"}), ["fragment a edited (+2 -1 lines)"]),
        (made({"a": "1\n2\n"}), made({"a": "2\n1\n"}), ["fragment a edited (order of lines, or blanks at its end)"]),
        (made({}, vars={"x": 1}), made({}, vars={"x": 2}), ["setting vars.x changed"]),
        (
            made({}, vars={"x": {"y": 1, "z": 2}}),
            made({}, vars={"x": {"z": 2, "w": 3}}),
            ["setting vars.x.w set", "setting vars.x.y no longer set"],
        ),
    ],
)
def test_changes_are_named_and_their_content_is_not(
    before: GenerationInputs, after: GenerationInputs, said: list[str]
) -> None:
    assert [str(each) for each in before.changes_to(after)] == said
