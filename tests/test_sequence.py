"""The notation, the dimensions it implies, and the composed map."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from _oracles import one_thread  # noqa: F401
from hypothesis import example, given
from hypothesis import strategies as st

from finemorphs.engines.reference import ReferenceEngine
from finemorphs.exceptions import DimensionError, FineMorphsError, SequenceError
from finemorphs.kernels import Kernel
from finemorphs.modules import Affine, Diffeo
from finemorphs.notation import Chain, canonical, parse
from finemorphs.sequence import ModuleSequence

letters_of_sequences = st.text("AD", min_size=1, max_size=60)

# --- notation -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("notation", "letters"),
    [
        ("A", "A"),
        ("D", "D"),
        ("ADA", "ADA"),
        ("DA", "DA"),
        ("AD", "AD"),
        ("AD2A2", "ADDAA"),
        ("AD^2A^2", "ADDAA"),
        ("AD^4A", "ADDDDA"),
        ("AD4A", "ADDDDA"),
        ("AD**4A", "ADDDDA"),
        ("(AD)^3A", "ADADADA"),
        ("(AD)3A", "ADADADA"),
        ("(DA)2", "DADA"),
        ("ADDAA", "ADDAA"),
        ("AD²A²", "ADDAA"),
        ("AD¹²A", "A" + "D" * 12 + "A"),
        ("(AD)³A", "ADADADA"),
        ("ad4a", "ADDDDA"),
        ("aD^2A", "ADDA"),
        (" A D ^ 2 A ", "ADDA"),
        ("A\tD\nA", "ADA"),
        ("((AD)^2A)^2", "ADADAADADA"),
        ("(A(D(A)2)2)", "ADAADAA"),
        ("A(D)A", "ADA"),
        ("D10", "D" * 10),
        ("A1D1A1", "ADA"),
    ],
)
def test_spellings(notation, letters):
    assert parse(notation) == letters


@pytest.mark.parametrize(
    ("letters", "short"),
    [
        ("ADA", "ADA"),
        ("ADDAA", "AD^2A^2"),
        ("ADDDDA", "AD^4A"),
        ("ADADA", "(AD)^2A"),
        ("ADADADA", "(AD)^3A"),
        ("DADA", "(DA)^2"),
        ("ADDADD", "(AD^2)^2"),
        ("DD", "D^2"),
    ],
)
def test_canonical_form(letters, short):
    assert canonical(letters) == short


@given(letters_of_sequences)
def test_canonical_is_read_back(letters):
    assert parse(canonical(letters)) == letters


@given(letters_of_sequences)
def test_canonical_is_not_longer_than_the_letters_with_their_powers(letters):
    assert len(canonical(letters)) <= 2 * len(letters)
    assert canonical(parse(canonical(letters))) == canonical(letters)


@given(letters_of_sequences, st.data())
def test_case_and_spaces_do_not_matter(letters, data):
    tokens = re.findall(r"\d+|.", canonical(letters))
    spelt = "".join(data.draw(st.sampled_from([t, t.lower(), f" {t}", f"{t}\n"])) for t in tokens)
    assert parse(spelt) == letters


def test_a_space_does_not_join_two_numbers():
    with pytest.raises(SequenceError, match="cannot be read at ' '"):
        parse("A^1 0")


@given(st.text(max_size=30) | st.text("ADad()^*23 ²⁰9", max_size=30))
@example("((((((((((((((((((((((((((((((A")
@example("A^99999999999999999999")
@example("(A200)200")
@example("A٣")
@example("\x85A\u2028D")
def test_any_text_is_read_or_refused_as_a_sequence(text):
    """Garbage ends in SequenceError and in nothing else; what is read are letters."""
    try:
        letters = parse(text)
    except SequenceError:
        return
    assert letters
    assert set(letters) <= {"A", "D"}
    assert parse(letters) == letters


@pytest.mark.parametrize(
    ("notation", "words"),
    [
        ("", "is empty"),
        ("   ", "is empty"),
        ("()", "nothing between two brackets"),
        ("ABA", "cannot be read at 'B'; use the letters A and D"),
        ("2AD", "cannot be read at '2'"),
        ("A^", r"cannot be read at '\^'"),
        ("A^^2", r"cannot be read at '\^'"),
        ("A2^3", r"cannot be read at '\^3'"),
        ("A-D", "cannot be read at '-'"),
        ("(AD", "opening bracket left open"),
        ("((A)D", "opening bracket left open"),
        ("AD)", "closes a bracket that it never opened"),
        ("A)D(", "closes a bracket that it never opened"),
        ("AD^0A", "repeats a part 0 times; leave it out"),
        ("AD201A", "more than 200 modules; use fewer"),
        ("((A20)20)20", "more than 200 modules"),
        ("A99999999999", "cannot be read at '99999999999'"),
        ("(" * 25 + "A" + ")" * 25, r"cannot be read at '\('"),
    ],
)
def test_errors_say_what_is_wrong(notation, words):
    with pytest.raises(SequenceError, match=words):
        parse(notation)


@pytest.mark.parametrize("thing", [None, 3, ["A"], b"ADA"])
def test_only_text_is_a_notation(thing):
    with pytest.raises(SequenceError, match=f"must be text .* not {type(thing).__name__}"):
        parse(thing)


def test_errors_are_value_errors_of_the_library():
    for error in (SequenceError, DimensionError):
        assert issubclass(error, ValueError)
        assert issubclass(error, FineMorphsError)


# --- places and dimensions ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("notation", "affine", "diffeo"),
    [
        ("A", [1], []),
        ("D", [0, 0], [1]),
        ("ADA", [1, 1], [1]),
        ("DA", [0, 1], [1]),
        ("AD", [1, 0], [1]),
        ("ADDAA", [1, 0, 1, 1], [1, 1, 0]),
        ("(AD)^2A", [1, 1, 1], [1, 1]),
        ("AA", [1, 1], [0]),
        ("DD", [0, 0, 0], [1, 1]),
    ],
)
def test_identities_fill_the_chain(notation, affine, diffeo):
    chain = Chain.from_notation(notation)
    assert [int(there) for there in chain.affine] == affine
    assert [int(there) for there in chain.diffeo] == diffeo
    assert chain.m == len(diffeo)


@given(letters_of_sequences)
def test_a_chain_holds_its_letters(letters):
    chain = Chain.from_notation(letters)
    assert len(chain.affine) == len(chain.diffeo) + 1
    there = "".join(
        letter * present
        for q in range(chain.m + 1)
        for letter, present in (("D", q > 0 and chain.diffeo[q - 1]), ("A", chain.affine[q]))
    )
    assert there == letters


@pytest.mark.parametrize(
    ("notation", "d_in", "d_out", "dims", "expected"),
    [
        ("A", 5, 2, None, [5, 2]),
        ("ADA", 5, 2, None, [5, 5, 2]),
        ("ADA", 5, 2, 3, [5, 3, 2]),
        ("ADA", 5, 2, [7], [5, 7, 2]),
        ("DA", 5, 2, None, [5, 5, 2]),
        ("AD", 5, 2, None, [5, 2, 2]),  # the identity A1 takes what leaves it
        ("D", 5, 5, None, [5, 5, 5]),
        ("AD2A", 5, 2, None, [5, 5, 5, 2]),
        ("AD2A", 5, 2, 3, [5, 3, 3, 2]),
        ("AD2A", 5, 2, [3, 3], [5, 3, 3, 2]),
        ("AD3", 5, 2, None, [5, 2, 2, 2, 2]),
        ("D2A", 5, 2, None, [5, 5, 5, 2]),
        ("(AD)^2A", 5, 2, [3, 4], [5, 3, 4, 2]),
        ("(AD)^2A", 5, 2, (3, 4), [5, 3, 4, 2]),
        ("AD2A2", 5, 2, None, [5, 5, 5, 5, 2]),
        ("AD2A2", 5, 2, [3, 3, 4], [5, 3, 3, 4, 2]),
        ("AA", 5, 2, None, [5, 5, 2]),
    ],
)
def test_dimensions(notation, d_in, d_out, dims, expected):
    assert Chain.from_notation(notation).dimensions(d_in, d_out, dims) == expected


@pytest.mark.parametrize("dims", [np.int64(3), np.array([3, 3])], ids=["scalar", "array"])
def test_dimensions_may_be_numpys(dims):
    assert Chain.from_notation("AD2A").dimensions(5, 2, dims) == [5, 3, 3, 2]


@given(letters_of_sequences, st.integers(1, 6), st.integers(1, 6), st.none() | st.integers(1, 6))
def test_identities_never_change_the_dimension(letters, d_in, d_out, dims):
    chain = Chain.from_notation(letters)
    try:
        d = chain.dimensions(d_in, d_out, dims)
    except DimensionError:
        assert not all(chain.affine)
        return
    assert (d[0], d[-1]) == (d_in, d_out)
    assert all(chain.affine[q] or d[q] == d[q + 1] for q in range(chain.m + 1))
    if dims is not None:
        assert set(d[1:-1]) <= {dims}


@pytest.mark.parametrize(
    ("notation", "d_in", "d_out", "dims", "words"),
    [
        ("D", 5, 2, None, "A1 .* 'D', but 5 .* enter it and 2 leave it; end the sequence with"),
        ("AD", 5, 2, 3, "A1 .* 'AD', but 3 .* enter it and 2 leave it; end the sequence with"),
        ("DA", 5, 2, 3, "A0 .* 'DA', but 5 .* enter it and 3 leave it; begin the sequence with"),
        (
            "AD2A",
            5,
            2,
            [3, 4],
            r"A1 .* 'AD\^2A', but 3 .* enter it and 4 leave it; put an A module there, or give "
            "dims equal values at places 1 and 2",
        ),
        ("ADA", 5, 2, [3, 4], "dims has 2 values but .* 'ADA' has 1 inner .* one value, or 1"),
        ("AD2A", 5, 2, [3], r"dims has 1 values but .* 'AD\^2A' has 2 inner .* one value, or 2"),
    ],
)
def test_dimension_errors_name_the_module_and_both_dimensions(notation, d_in, d_out, dims, words):
    with pytest.raises(DimensionError, match=words):
        Chain.from_notation(notation).dimensions(d_in, d_out, dims)


# --- building -----------------------------------------------------------------------------


def test_build_names_and_sizes_the_modules():
    sequence = ModuleSequence.build("AD2A2", 5, 2, 7, dims=[3, 3, 4], n_steps=6)
    assert [m.name for m in sequence.modules] == ["A0", "D1", "D2", "A2", "A3"]
    assert [(m.d_in, m.d_out) for m in sequence.modules] == [(5, 3), (3, 3), (3, 3), (3, 4), (4, 2)]
    assert [m.n_parameters for m in sequence.modules] == [18, 126, 126, 16, 10]
    assert sequence.n_parameters == 296
    assert (sequence.d_in, sequence.d_out) == (5, 2)
    assert [m.name for m in sequence.affines] == ["A0", "A2", "A3"]
    assert [m.name for m in sequence.diffeos] == ["D1", "D2"]
    assert str(sequence) == "AD^2A^2"
    assert repr(sequence) == "ModuleSequence('AD^2A^2', d_in=5, d_out=2)"


def test_build_gives_one_value_to_every_module():
    sequence = ModuleSequence.build(
        "AD2A", 4, 1, 3, kernel="gaussian", kernel_width=0.3, n_steps=4, ridge=0.5
    )
    assert [m.kernel for m in sequence.diffeos] == [Kernel("gaussian", width=0.3)] * 2
    assert [m.n_steps for m in sequence.diffeos] == [4, 4]
    assert [m.ridge for m in sequence.affines] == [0.5, 0.5]


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_build_gives_one_value_each(kind):
    sequence = ModuleSequence.build(
        "ADADA", 4, 1, 3, kernel_width=kind([0.3, 0.6]), n_steps=kind([4, 8]), ridge=kind([1, 2, 3])
    )
    assert [m.kernel.width for m in sequence.diffeos] == [0.3, 0.6]
    assert [m.n_steps for m in sequence.diffeos] == [4, 8]
    assert [m.ridge for m in sequence.affines] == [1, 2, 3]


def test_build_spreads_the_widths():
    def widths(value):
        diffeos = ModuleSequence.build("AD^3A", 4, 1, 3, kernel_width=value).diffeos
        return [m.kernel.width for m in diffeos]

    assert widths("increasing") == [0.25, 0.5, 0.75]
    assert widths("decreasing") == [0.75, 0.5, 0.25]
    with pytest.raises(ValueError, match=r"'growing' is not known; use a number, .*'increasing'"):
        widths("growing")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("kernel_width", [1, 2, 3], r"kernel_width has 3 values but .* 'AD\^2A' has 2 D modules"),
        ("n_steps", [1], r"n_steps has 1 values but .* 2 D modules; give one value, or 2"),
        ("ridge", [1.0] * 3, r"ridge has 3 values but .* 2 A modules; give one value, or 2"),
    ],
)
def test_build_refuses_a_wrong_number_of_values(option, value, words):
    with pytest.raises(SequenceError, match=words):
        ModuleSequence.build("AD2A", 4, 1, 3, **{option: value})


@pytest.mark.parametrize(
    ("notation", "dims", "pulled"),
    [
        ("(AD)^2A", None, ["A1"]),
        ("(AD)^2A", [3, 4], []),  # not square
        ("(AD)^3A", None, ["A1", "A2"]),
        ("ADA", None, []),  # no inner module
        ("AD2A2", None, ["A2"]),
    ],
)
def test_inner_square_modules_are_pulled_to_the_identity(notation, dims, pulled):
    sequence = ModuleSequence.build(notation, 4, 4, 3, dims=dims, inner_affine="identity")
    assert [m.name for m in sequence.affines if m.towards_identity] == pulled
    ridge = ModuleSequence.build(notation, 4, 4, 3, dims=dims)
    assert not any(m.towards_identity for m in ridge.affines)


def test_neighbours_must_agree():
    with pytest.raises(DimensionError, match="A0 gives 3 dimensions but D1 takes 2"):
        ModuleSequence("AD", [Affine("A0", 2, 3), Diffeo("D1", 2, Kernel(), 1, 1)])


# --- the composed map ---------------------------------------------------------------------


def composed(notation="AD2A2", n_controls=4, **options):
    sequence = ModuleSequence.build(notation, 3, 2, n_controls, n_steps=[2, 3], **options)
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(sequence.n_parameters, dtype=torch.float64, generator=generator)
    x = torch.randn(6, 3, dtype=torch.float64, generator=generator)
    return sequence, theta, x


def test_parameters_are_one_vector_in_the_order_of_the_modules():
    sequence, theta, _ = composed()
    parts = sequence.split(theta)
    assert [len(part) for part in parts] == [m.n_parameters for m in sequence.modules]
    assert torch.equal(torch.cat(parts), theta)
    parts[2][0] = 7.0
    assert (theta == 7.0).sum() == 1


def test_start_is_drawn_module_by_module():
    sequence, _, _ = composed()
    start = sequence.start(np.random.default_rng(3))
    rng = np.random.default_rng(3)
    assert np.array_equal(start, np.concatenate([m.start(rng) for m in sequence.modules]))
    for module, part in zip(sequence.modules, sequence.split(torch.as_tensor(start)), strict=True):
        assert bool(part.any()) == isinstance(module, Affine)


def test_rows_are_carried_as_in_training():
    """What prediction does with the control points is what training did with them."""
    engine = ReferenceEngine()
    sequence, theta, x = composed(n_controls=6)
    steps = sequence.forward(engine, theta, x)
    centers = sequence.centers(engine, theta, x)
    assert [c.shape for c in centers] == [(2, 6, 3), (3, 6, 3)]
    states = sequence.trajectory(engine, theta, centers, x)
    for module, step, state in zip(sequence.modules, steps, states, strict=True):
        if isinstance(module, Diffeo):
            torch.testing.assert_close(state, step.cache.states)
            state = state[-1]
        torch.testing.assert_close(state, step.output)


@pytest.mark.parametrize("natural", [False, True])
def test_backward_gives_the_natural_twin_where_asked(natural):
    engine = ReferenceEngine()
    sequence, theta, x = composed(n_controls=6)
    steps = sequence.forward(engine, theta, x)
    costates = torch.ones_like(steps[-1].output)
    gradient, twin = sequence.backward(engine, theta, steps, costates, natural)
    assert (twin is not None) == natural
    if twin is not None:
        parts = zip(sequence.modules, sequence.split(gradient), sequence.split(twin), strict=True)
        for module, plain, other in parts:
            assert torch.equal(plain, other) == isinstance(module, Affine)
