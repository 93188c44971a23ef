"""The steps of model reassembly, each against numbers worked out by hand or by NumPy."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedlib import FedlibError, models
from fedlib.algorithms.pfedhr import reassembly
from fedlib.algorithms.pfedhr.reassembly import Activations, Layer, cka
from fedlib.randomness import generator


def layers_of(origin: int, name: str, channels: int = 3) -> list[Layer]:
    return reassembly.layers_of((origin, name), reassembly.blueprint(name, 10, channels).blocks)


def stream(seed: int = 0) -> np.random.Generator:
    return generator(seed, "server")


def build(name: str, channels: int = 3, seed: int = 0) -> nn.Module:
    return models.build(name, 10, channels, generator(seed, "init"))


def numbers(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


# ------------------------------------------------------------------------------------------------------ decomposition


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(models.BUILT_IN.keys() - models.OTHER_KINDS.keys()))
def test_the_layers_of_a_model_compute_what_it_does(name):
    model, images = build(name), torch.randn(3, 3, 32, 32)
    blocks, plan = reassembly.decompose(model), reassembly.blueprint(name, 10, 3)
    values = images
    for block, before, after in zip(blocks, plan.inputs, plan.outputs, strict=True):
        assert before in (tuple(values.shape[1:]), (values[0].numel(),))
        values = block(values)
        assert tuple(values.shape[1:]) == after
    assert torch.equal(values, model(images))
    assert sum(map(models.num_floats, blocks)) == models.num_floats(model)


def test_layers_and_operation_types_of_the_papers_models():
    def kinds(name: str) -> list[str]:
        return [layer.kind for layer in layers_of(7, name, 1)]

    assert kinds("M1") == ["conv"] * 2 + ["fc"] * 2
    assert kinds("M2") == ["conv"] * 3 + ["fc"] * 2
    assert kinds("M3") == ["conv"] * 5 + ["fc"] * 4
    assert kinds("M4") == ["conv"] * 6 + ["fc"] * 4
    assert layers_of(7, "M1", 1)[2] == (7, "M1", 3, "fc")


def test_a_model_that_is_no_sequence_is_refused():
    class Branches(nn.Module):
        extractor, header = nn.Bilinear(1, 1, 1), nn.Linear(1, 1)

    with pytest.raises(FedlibError, match=r"^extractor = Bilinear: .*nn.Sequential$"):
        reassembly.decompose(Branches())


# -------------------------------------------------------------------------------------------------------------- CKA


@pytest.mark.parametrize("forms", list(itertools.product(("gram", "features"), repeat=2)))
def test_cka_by_hand(forms):
    def of(one: torch.Tensor, other: torch.Tensor) -> float:
        return cka(Activations.of(one, forms[0]), Activations.of(other, forms[1]))

    # One centred column each: (x . y)^2 / (|x|^2 |y|^2), (1*2 + 0 + 1*1)^2 / (2 * 6).
    x, y = numbers([1], [0], [-1]), numbers([2], [-1], [-1])
    assert of(x, y) == pytest.approx(9 / 12, abs=1e-12)
    assert of(x, numbers([1], [-2], [1])) == pytest.approx(0, abs=1e-12)
    # K = [[1, 0, -1], [0, 1, -1], [-1, -1, 2]], |K| = sqrt(10); L = x x^T, |L| = 2; <K, L> = 1 + 1 + 1 + 2.
    assert of(numbers([1, 0], [0, 1], [-1, -1]), x) == pytest.approx(5 / (2 * 10**0.5), abs=1e-12)


matrices = st.tuples(st.integers(0, 1000), st.integers(2, 9), st.integers(1, 12), st.integers(1, 12))


@settings(max_examples=60, deadline=None)
@given(matrices)
def test_forms_agree_and_invariances(sizes):
    seed, n, p, q = sizes
    draw = np.random.default_rng(seed)
    x, y = (torch.from_numpy(draw.normal(size=(n, width))) for width in (p, q))
    values = {
        forms: cka(Activations.of(x, forms[0]), Activations.of(y, forms[1]))
        for forms in itertools.product(("gram", "features", "smaller"), repeat=2)
    }
    plain = values["gram", "gram"]
    assert all(abs(value - plain) < 1e-12 for value in values.values())
    assert -1e-12 <= plain <= 1 + 1e-12
    assert cka(Activations.of(x), Activations.of(x)) == pytest.approx(1, abs=1e-12)
    turn = torch.from_numpy(np.linalg.qr(draw.normal(size=(p, p)))[0])
    moved = 3.5 * x @ turn + torch.from_numpy(draw.normal(size=p))
    assert cka(Activations.of(moved), Activations.of(y)) == pytest.approx(plain, abs=1e-10)


@pytest.mark.parametrize("form", ["gram", "features"])
@pytest.mark.parametrize("constant", [0.0, 1.0, 123.456, float("nan"), float("inf")])
def test_constant_and_broken_activations_are_like_nothing(form, constant):
    flat = Activations.of(torch.full((6, 4), constant), form)
    other = Activations.of(torch.randn(6, 4), form)
    assert flat.norm == 0 and cka(flat, other) == cka(other, flat) == cka(flat, flat) == 0


def test_the_smaller_form_is_chosen():
    assert Activations.of(torch.randn(4, 9)).matrix.shape == (4, 4)
    assert Activations.of(torch.randn(9, 2, 2)).matrix.shape == (9, 4)


def test_activations_are_the_layers_inputs_and_outputs():
    model, images = build("M1"), torch.randn(6, 3, 32, 32)
    found = reassembly.activations(reassembly.decompose(model), images, pooled=True)
    pooled = model.extractor[:3](images).mean((2, 3))  # conv1's block
    expected = [images.mean((2, 3)), pooled, model.extractor[:6](images).mean((2, 3)), model.extractor(images)]
    expected.append(model(images))
    assert len(found) == 5
    for one, values in zip(found, expected, strict=True):
        assert cka(one, Activations.of(values)) == pytest.approx(1, abs=1e-5)
    full = reassembly.activations(reassembly.decompose(model), images)
    assert cka(full[1], Activations.of(model.extractor[:3](images))) == pytest.approx(1, abs=1e-5)
    assert cka(full[1], found[1]) < 0.999


def test_eq_3():
    draw = np.random.default_rng(1)
    values = [[torch.from_numpy(draw.normal(size=(7, width))) for width in widths] for widths in ((3, 5, 2), (3, 4))]
    values[1][0] = values[0][0]  # the same images go into both
    found = reassembly.distances([[Activations.of(value) for value in model] for model in values])
    layers = [(values[0][0], values[0][1]), (values[0][1], values[0][2]), (values[1][0], values[1][1])]

    def by_hand(x: np.ndarray, y: np.ndarray) -> float:
        x, y = x - x.mean(0), y - y.mean(0)
        return float(((y.T @ x) ** 2).sum() / np.linalg.norm(x.T @ x) / np.linalg.norm(y.T @ y))

    for i, j in itertools.product(range(3), repeat=2):
        terms = [by_hand(layers[i][part].numpy(), layers[j][part].numpy()) for part in (0, 1)]
        assert found[i, j] == pytest.approx(1 / sum(terms), rel=1e-10)
    assert np.allclose(np.diag(found), 0.5) and (found >= 0.5 - 1e-12).all()


def test_layers_with_nothing_in_common_are_far_apart_not_infinitely():
    constant = Activations.of(torch.ones(4, 2))
    assert reassembly.distances([[constant, constant], [constant, constant]]).tolist() == [[1e6] * 2] * 2


# ---------------------------------------------------------------------------------------------------------- grouping


def chain(origin: int, kinds: str) -> list[Layer]:
    """Layers of a model from letters: c for a convolution, f for a fully connected layer."""
    return [Layer(origin, f"A{origin}", i, {"c": "conv", "f": "fc"}[kind]) for i, kind in enumerate(kinds, 1)]


def test_groups_are_numbered_from_input_to_output():
    layers = chain(0, "ccf") + chain(1, "ccf")
    near = np.full((6, 6), 5.0)
    for members in ([0, 3], [1, 4], [2, 5]):
        near[np.ix_(members, members)] = 0.6
    np.fill_diagonal(near, 0.5)
    for seed in range(5):
        assert reassembly.group(layers, near, 3, stream(seed)) == [0, 1, 2, 0, 1, 2]
    order = [5, 1, 0, 2, 4, 3]  # the models' order does not matter
    shuffled = reassembly.group([layers[i] for i in order], near[np.ix_(order, order)], 3, stream())
    assert shuffled == [2, 1, 0, 2, 1, 0]


def test_of_ten_starts_the_best_groups_are_taken():
    """Layers at 0, 12, 13, 17, 20 and 22: apart {0} and the rest around 17 cost 5 + 4 + 3 + 5 = 17; one start most often stops
    at {0, 12, 13} around 12 and {17, 20, 22} around 20, 12 + 1 + 3 + 2 = 18, which no single change betters."""
    places = np.array([0, 12, 13, 17, 20, 22])
    given = chain(0, "cccccc"), np.abs(places[:, None] - places)
    one, ten = ([reassembly.group(*given, 2, stream(seed), starts) for seed in range(12)] for starts in (1, 10))
    assert [0, 0, 0, 1, 1, 1] in one and ten == [[0, 1, 1, 1, 1, 1]] * 12


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 8), st.integers(0, 7))
def test_every_group_has_layers_and_the_draw_is_the_streams(seed, clusters, more):
    layers = chain(0, "c" * (clusters + more))
    draw = np.random.default_rng(seed)
    values = draw.uniform(0.5, 3, (len(layers),) * 2)
    near = np.where(draw.random() < 0.3, 0.5, (values + values.T) / 2)  # now and then all layers alike
    found = reassembly.group(layers, near, clusters, stream(seed))
    assert set(found) == set(range(clusters))
    assert found == reassembly.group(layers, near, clusters, stream(seed))


@pytest.mark.parametrize("clusters", [0, 5])
def test_more_groups_than_layers(clusters):
    with pytest.raises(FedlibError, match=rf"^clusters = {clusters}: must be between 1 and 4, the number of layers"):
        reassembly.group(chain(0, "ccff"), np.full((4, 4), 0.5), clusters, stream())


# ------------------------------------------------------------------------------------------------------ candidates


def names(candidates: list[reassembly.Structure]) -> list[str]:
    return ["".join(f"{'ab'[layer.origin]}{layer.depth}" for layer in candidate) for candidate in candidates]


LAYERS, GROUPS = chain(0, "cff") + chain(1, "ccf"), [0, 1, 2, 0, 1, 2]


def test_candidates_of_a_constructed_example():
    """Two models, a = conv, fc, fc and b = conv, conv, fc; groups {a1, b1}, {a2, b2}, {a3, b3}.

    From a1: nothing of group 0 fits (index 1), of group 1 a2 is first, of group 2 a3: a1 a2 a3. From b1 likewise. From
    a2 or b2 group 0 is out of reach, so is everything from a3 and b3.
    """
    assert names(reassembly.search(LAYERS, GROUPS, "greedy", 8, stream())[0]) == ["a1a2a3", "b1a2a3"]
    # All chains: one of each index, and no convolution (b2) after a fully connected layer, of which none is before it.
    everything = ["a1a2a3", "a1a2b3", "a1b2a3", "a1b2b3", "b1a2a3", "b1a2b3", "b1b2a3", "b1b2b3"]
    found, dropped = reassembly.search(LAYERS, GROUPS, "exhaustive", 8, stream())
    assert sorted(names(found)) == everything and dropped == 0


@pytest.mark.parametrize(
    ("kinds", "groups", "found"),
    [
        ("cccff", [0, 0, 1, 2, 2], ["a1a2a3a4", "a2a3a4"]),  # from 1, its own group adds 2, and 4 comes before 5
        ("cf", [0, 0], ["a1a2"]),  # both starts of one group may give one chain
        ("fc", [0, 1], []),  # both groups are met only by a convolution after a fully connected layer
    ],
)
def test_candidates_of_one_model(kinds, groups, found):
    layers = chain(0, kinds)
    assert names(list(reassembly.greedy(layers, groups))) == found
    if not found:
        assert reassembly.search(layers, groups, "exhaustive", 8, stream()) == ([], 0)


def test_duplicates_are_removed_and_the_rest_is_counted():
    found, dropped = reassembly.search(LAYERS, GROUPS, "exhaustive", 3, stream())
    assert len(set(found)) == 3 and dropped == 5
    again, _ = reassembly.search(LAYERS, GROUPS, "exhaustive", 3, stream())
    assert found == again
    draws = {tuple(names(reassembly.search(LAYERS, GROUPS, "exhaustive", 3, stream(seed))[0])) for seed in range(20)}
    assert len(draws) > 5
    assert reassembly.search(LAYERS, GROUPS, "greedy", 1, stream())[1] == 1


models_of_letters = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 3)).map(lambda sizes: "c" * sizes[0] + "f" * sizes[1]),
    min_size=1,
    max_size=3,
)


@settings(max_examples=80, deadline=None)
@given(models_of_letters, st.integers(1, 4), st.integers(0, 1000))
def test_every_candidate_satisfies_the_four_rules(letters, clusters, seed):
    layers = [layer for origin, kinds in enumerate(letters) for layer in chain(origin, kinds)]
    draw = np.random.default_rng(seed)
    clusters = min(clusters, len(layers))
    groups = draw.permutation([*range(clusters), *draw.integers(0, clusters, len(layers) - clusters)]).tolist()
    of = dict(zip(layers, groups, strict=True))

    def satisfies(candidate: tuple[Layer, ...]) -> bool:
        pairs = list(itertools.pairwise(candidate))
        r1 = all(two.depth > one.depth for one, two in pairs)
        r2 = all((one.kind, two.kind) != ("fc", "conv") for one, two in pairs)
        r3 = {layer.kind for layer in candidate} == {"conv", "fc"}
        r4 = len({of[layer] for layer in candidate}) == clusters
        return r1 and r2 and r3 and r4

    by_depth = [[layer for layer in layers if layer.depth == depth] for depth in range(1, max(map(len, letters)) + 1)]
    choices = itertools.product(*([None, *same] for same in by_depth))  # R1 allows one of each index
    brute = {chosen for choice in choices if satisfies(chosen := tuple(layer for layer in choice if layer))}
    exhaustive = reassembly.Exhaustive(layers, groups)
    assert exhaustive.total == len(brute)
    assert set(exhaustive) == brute  # iterating ends
    for method in ("greedy", "exhaustive"):
        found, dropped = reassembly.search(layers, groups, method, 5, stream(seed))
        assert set(found) <= brute and len(set(found)) == len(found) <= 5
        if method == "exhaustive":
            assert len(found) + dropped == len(brute)


def test_exhaustive_search_counts_what_it_cannot_list():
    layers = [layer for origin in range(10) for layer in chain(origin, "c" * 8 + "f" * 8)]
    groups = [layer.depth % 4 for layer in layers]
    found, dropped = reassembly.search(layers, groups, "exhaustive", 8, stream())
    assert len(found) == 8 and 10**15 < dropped < 11**16


# ----------------------------------------------------------------------------------------------------------- stitches


def network(structure: list[Layer], channels: int = 3, blocks: Any = None) -> nn.Module:
    return reassembly.assemble(structure, 10, channels, 1, stream(), blocks)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_sizes_of_stitches(depth):
    def floats(before: tuple[int, ...], after: tuple[int, ...]) -> int:
        return models.num_floats(reassembly.stitch(before, after, depth))

    assert floats((10, 14, 14), (10, 14, 14)) == floats((50,), (50,)) == floats((64, 5, 5), (1600,)) == 0
    assert floats((10, 14, 14), (32, 8, 8)) == (10 + 1) * 32 + (depth - 1) * 33 * 32  # 1x1 convolutions
    assert floats((10, 14, 14), (10, 8, 8)) == (10 + 1) * 10 * depth
    assert floats((64, 5, 5), (2048,)) == (64 + 1) * 2048 + (depth - 1) * 2049 * 2048  # of the channels' means
    assert floats((50,), (1024,)) == (50 + 1) * 1024 + (depth - 1) * 1025 * 1024
    stitched = reassembly.stitch((10, 14, 14), (32, 8, 8), depth)(torch.randn(2, 10, 14, 14))
    assert stitched.shape == (2, 32, 8, 8) and (stitched >= 0).all()


def test_a_stitch_by_hand():
    """ReLU(W x + b) of the channels' means."""
    seam = reassembly.stitch((2, 2, 2), (3,))
    images = torch.arange(8.0).view(1, 2, 2, 2)
    linear = next(part for part in seam if isinstance(part, nn.Linear))
    expected = linear.weight @ torch.tensor([1.5, 5.5]) + linear.bias
    torch.testing.assert_close(seam(images)[0], expected.clamp(min=0))


@pytest.mark.parametrize(
    ("before", "after"), [((32, 32), (14, 14)), ((5, 5), (8, 8)), ((8, 8), (4, 4)), ((4, 3), (3, 7))]
)
def test_resizing_is_adaptive_average_pooling(before, after):
    maps = torch.randn(2, 3, *before)
    torch.testing.assert_close(reassembly.Resize(before, after)(maps), F.adaptive_avg_pool2d(maps, after))


def splices(channels: int) -> list[list[Layer]]:
    """For each pair of M1..M4: what begins as one and goes on as the other with the next index, everywhere that R1 and
    R2 allow; and what begins in the middle.
    """
    found = []
    for one, other in itertools.product(("M1", "M2", "M3", "M4"), repeat=2):
        first, second = (layers_of(id, name, channels) for id, name in enumerate((one, other)))
        for cut in range(1, len(first) + 1):
            rest = second[cut:]
            if rest and reassembly.follows(first[cut - 1], rest[0]):
                found += [first[:cut] + rest, [first[cut - 1], rest[0]]]
    return found


@pytest.mark.parametrize("channels", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_stitched_candidates_of_all_pairs_take_every_image_and_give_logits(channels):
    """The first linear map of a stitch reads as many numbers as the layer before has channels or features, and no flattened map."""
    images, widest = torch.randn(2, channels, 32, 32), 0
    for structure in splices(channels):
        candidate = network(structure, channels)
        for parameter in candidate.parameters():  # layers come without weights
            nn.init.zeros_(parameter)
        assert structure[-1].kind == "conv" or candidate(images).shape == (2, 10), structure
        parts, width = dict(candidate.named_children()), channels
        for number, layer in enumerate(structure, 1):
            plan = reassembly.blueprint(layer.architecture, 10, channels)
            seam = parts.pop(f"stitch{number}", [])
            for linear in (part for part in seam if isinstance(part, nn.Conv2d | nn.Linear)):
                assert linear.weight.shape[1] == width and linear.weight[0, 0].numel() == 1
                widest = max(widest, models.num_floats(linear))
            own = parts.pop(f"layer{number}")
            assert models.num_floats(own) == models.num_floats(plan.blocks[layer.depth - 1])
            width = plan.outputs[layer.depth - 1][0]
        assert list(parts) == (["output"] if structure[-1].depth < len(plan.blocks) else [])
    assert widest == (1024 + 1) * 4096  # M4's FC1 after another FC1


@pytest.mark.parametrize("name", ["M1", "M2", "M3", "M4"])
def test_a_model_reassembled_from_its_own_layers_is_the_model(name):
    model, images = build(name), torch.randn(4, 3, 32, 32)
    structure = layers_of(3, name, 3)
    candidate = network(structure, blocks={(3, name): reassembly.decompose(model)})
    assert all(child.startswith("layer") for child, _ in candidate.named_children())
    torch.testing.assert_close(candidate(images), model(images))


def test_candidates_share_parameters_with_nothing():
    clients = {(0, "M1"): build("M1"), (1, "M2"): build("M2")}
    blocks = {source: reassembly.decompose(model) for source, model in clients.items()}
    one = layers_of(0, "M1", 3)[:2] + layers_of(1, "M2", 3)[2:]
    structures = [one, one, layers_of(1, "M2", 3)]
    candidates = [network(structure, blocks=blocks) for structure in structures]
    tensors = [tensor for each in [*clients.values(), *candidates] for tensor in each.state_dict().values()]
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == len(tensors)


def test_the_stitches_are_the_streams():
    structure = [layers_of(0, "M1", 3)[0], layers_of(1, "M2", 3)[3]]
    one, again = network(structure), network(structure)
    other = reassembly.assemble(structure, 10, 3, 1, stream(1))
    assert torch.equal(one.stitch2[2].weight, again.stitch2[2].weight)
    assert not torch.equal(one.stitch2[2].weight, other.stitch2[2].weight)


def test_building_draws_nothing_from_torchs_generator():
    before = torch.random.get_rng_state()
    reassembly._blueprint.cache_clear()
    network(layers_of(0, "M4"))
    assert torch.equal(torch.random.get_rng_state(), before)


# ----------------------------------------------------------------------------------------------------------- matching


def test_eq_5_and_eq_2():
    draw = np.random.default_rng(0)
    own, other = draw.normal(size=(6, 3)), draw.normal(size=(6, 3))
    cosines = (own * other).sum(1) / np.linalg.norm(own, axis=1) / np.linalg.norm(other, axis=1)
    tensors = [torch.tensor(values, dtype=torch.float32) for values in (own, other)]
    assert reassembly.similarity(*tensors) == pytest.approx(cosines.mean(), abs=1e-6)
    assert reassembly.similarity(tensors[0], -2 * tensors[0]) == pytest.approx(-1)
    assert reassembly.similarity(tensors[0], tensors[1] * float("nan")) is None
    # Two clients and three candidates, one of which diverged: cosines by the angles.
    logits = [torch.tensor([values]) for values in ([1.0, 0.0], [0.0, 2.0], [3.0, 3.0], [float("nan")] * 2)]
    alike, matched = reassembly.match(logits[:2], logits[3:] + logits[1:3])
    assert np.allclose([row[1:] for row in alike], [[0, 0.5**0.5], [1, 0.5**0.5]])
    assert [row[0] for row in alike] == [None, None] and matched == [2, 1]
    assert reassembly.match(logits[:2], [])[1] == reassembly.match(logits[:2], logits[3:])[1] == [None, None]
