"""FedKD: Wu, Wu, Lyu, Huang, Xie, "Communication-efficient federated learning via knowledge distillation", Nature
Communications 2022, for image classifiers.

A client trains its own model (the mentor) and a copy of the shared small model (the mentee) side by side. Each fits
the labels, the other's predictions and, through a learnt matrix W, the other's representation; the less both are
right, the less they trust each other:

    L_model  = CE_model + (KL(shared || model) + MSE(h, W h_shared)) / (CE_model + CE_shared)
    L_shared = CE_shared + (KL(model || shared) + MSE(h, W h_shared)) / (CE_model + CE_shared)

Updates of the shared model travel as truncated singular value decompositions, the fewest components that hold a share
of the energy which grows from `energy_start` to `energy_end` over the rounds; the server averages them (unweighted, as
the authors' code) and compresses the mean in the same way. Down: that mean, or the whole shared model for a client
that was not in the last round. Up: the update. Evaluated is the client's own model.

In each loss the partner and the denominator are constants and the KL is a mean over the batch (*chosen*, as in FML, whose
code does so). Both public codes, wuch15/FedKD and HtFLlib, take its mean over the batch and the classes, C times less
(`reduction=all`), and neither detaches anything (`detach=False`), so that each network also gets the gradient of the
other's loss; with C = 100 such a KL is next to nothing, and the hints do its work. Under each of these readings a client is
ahead of training alone after its first visit, before anything was exchanged: `isolated` runs say how far at the end.

Matrices are weights flattened to (outputs, rest); biases go as they are. Traps of other implementations: the literal threshold loop keeps
no component, which zeroes a layer, when only the full rank holds the energy (here at least 1, and the full rank if
need be); HtFLlib compresses parameters instead of updates; factors may be larger than the matrix, which is then sent
as it is. The authors' attention terms have no counterpart in a CNN. CNN-5 is shared, and scored, as in FML.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import models
from ..fields import later, setting
from ..randomness import fork_torch
from ..training import kl_divergence, mean
from .base import (
    Algorithm,
    Client,
    ClientContext,
    ClientInfo,
    Look,
    Message,
    ServerContext,
    ServerState,
    Upload,
)
from .fml import keep_shared, shared_logits

BLOCK, PASSES = 32, 12  # vectors in the block of `leading`; passes before it gives up


def distillation_loss(
    model: models.Model,
    shared: models.Model,
    projection: nn.Linear,
    images: Tensor,
    labels: Tensor,
    reduction: str = "batch",
    detach: bool = True,
) -> Tensor:
    """L_model + L_shared, a scalar; with the partners detached, each network gets the gradient of its own loss only."""
    features, shared_features = model.extractor(images), shared.extractor(images)  # (n, d), (n, d of the shared model)
    logits, shared_logits = model.header(features), shared.header(shared_features)
    loss_model, loss_shared = F.cross_entropy(logits, labels), F.cross_entropy(shared_logits, labels)
    both, mapped = loss_model + loss_shared, projection(shared_features)
    if detach:
        hints = F.mse_loss(features, mapped.detach()) + F.mse_loss(mapped, features.detach())
        mutual = kl_divergence(shared_logits, logits) + kl_divergence(logits, shared_logits)
    else:
        hints = 2 * F.mse_loss(features, mapped)
        own, other = logits.log_softmax(1), shared_logits.log_softmax(1)  # log_target: a probability may underflow
        mutual = F.kl_div(own, other, reduction="batchmean", log_target=True)
        mutual = mutual + F.kl_div(other, own, reduction="batchmean", log_target=True)
    if reduction == "all":
        mutual = mutual / logits.shape[1]
    share = both.detach() if detach else both
    return both + (mutual + hints) / share.clamp_min(1e-8)  # both are 0 in float32 once all is right


def leading(wide: Tensor, energy: float) -> tuple[Tensor, Tensor] | None:
    """Left singular vectors (m, k) of `wide` (m, n), largest singular value first, and `wide` along each: s * v, (k, n);
    at least as many as hold `energy` of the sum of squares, and those right to 1e-6 of the largest square. None where
    a block of `BLOCK` vectors does not find them in `PASSES` products with the matrix and its transpose.
    """
    enough = (energy * wide.square().sum()).cpu()
    start = torch.randn(BLOCK, wide.shape[1], generator=torch.Generator().manual_seed(0))  # any directions will do
    along = start.to(wide.device)
    for _ in range(PASSES):
        block = torch.linalg.qr(wide @ along.T).Q
        within = block.T @ wide
        turn = torch.linalg.eigh(within @ within.T).eigenvectors.flip(1)  # largest eigenvalue first
        vectors, along = block @ turn, turn.T @ within
        squares = along.square().sum(1)
        energies = squares.cpu().cumsum(0)  # on the host: CUDA has no deterministic kernel for it
        if energies[-1] < enough:
            return None
        rank = int((energies < enough).sum()) + 1
        error = wide @ along[:rank].T - vectors[:, :rank] * squares[:rank]
        if error.norm() <= 1e-6 * squares[0]:
            return vectors, along
    return None


def triplets(wide: Tensor, energy: float) -> tuple[Tensor, Tensor]:
    """As `leading`, always: what it does not find comes, whole, from the eigenvectors of the Gram matrix, at less than
    half the cost of a singular value decomposition. A singular value is the length of the matrix along its vector,
    which is exact where an eigenvalue is not.
    """
    try:
        found = leading(wide, energy) if len(wide) > 4 * BLOCK else None
        if found:
            return found
        vectors = torch.linalg.eigh(wide @ wide.T).eigenvectors.flip(1)
    except torch.linalg.LinAlgError:  # no convergence, which hundreds of equal eigenvalues can bring about in float32
        vectors = torch.linalg.svd(wide, full_matrices=False).U
    return vectors, vectors.T @ wide


def factors(matrix: Tensor, energy: float) -> dict[str, Tensor] | None:
    """The fewest singular triplets, at least one, that hold `energy` of the sum of squares of `matrix` (m, n): `u`
    (m, r), `s` (r,), `v` (r, n). None where they would be no smaller than the matrix, or it is not finite.
    """
    if not matrix.isfinite().all():
        return None
    tall = matrix.shape[0] > matrix.shape[1]
    wide = matrix.T if tall else matrix
    vectors, along = triplets(wide, energy)
    energies = along.square().sum(1).cpu().cumsum(0)  # of the first components; on the host, as in `leading`
    enough = (energy * wide.square().sum()).cpu()
    enough = enough.clamp(max=energies[-1])  # rounding must not ask for more than there is
    rank = int((energies < enough).sum()) + 1
    if rank * (matrix.shape[0] + matrix.shape[1] + 1) >= matrix.numel():
        return None
    own, other = vectors[:, :rank], along[:rank]
    s = other.norm(dim=1)
    other = other / s.clamp(min=torch.finfo(s.dtype).tiny)[:, None]
    u, v = (other.T, own.T) if tall else (own, other)
    return {"u": u.contiguous(), "s": s, "v": v.contiguous()}


def compress(update: Mapping[str, Tensor], energy: float) -> dict[str, Tensor]:
    """What is sent of an update: `name.u`, `name.s`, `name.v`, or `name` itself."""
    sent = {}
    for name, tensor in update.items():
        smaller = factors(tensor.flatten(1), energy) if tensor.ndim > 1 else None
        sent.update({f"{name}.{part}": value for part, value in smaller.items()} if smaller else {name: tensor})
    return sent


def expand(sent: Mapping[str, Tensor], model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The update that was compressed into `sent`, with the names and shapes of `model`."""
    update = {}
    for name, tensor in model.items():
        if name in sent:
            update[name] = sent[name]
        else:
            update[name] = ((sent[f"{name}.u"] * sent[f"{name}.s"]) @ sent[f"{name}.v"]).view(tensor.shape)
    return update


@dataclass(frozen=True)
class FedKD(Algorithm):
    """energy_start, energy_end: share of the energy kept in the first and last rounds, in (0, 1]. Default 0.95, 0.98
    (the authors' code);
    shared: architecture of the shared model. Default CNN-5 (FedGH, section 5.2.2);
    reduction: of the KL, a mean over the `batch`, or over `all`, batch and classes (both public codes). Default batch;
    detach: whether partner and denominator are constants (false: both public codes). Default true;
    score_shared: score the shared model, too (see FML). Default false.
    """

    name = "FedKD"
    paper = "Wu et al., Nat. Commun. 2022"
    exchanges = "small shared model, compressed"
    look = Look("#ca9161", "p")

    energy_start: float = setting(0.95, gt=0, le=1)
    energy_end: float = setting(0.98, gt=0, le=1)
    shared: str = setting("CNN-5", choices=models.BUILDERS)
    reduction: str = later("batch", neutral="batch", choices=("batch", "all"))
    detach: bool = later(True, neutral=True)
    score_shared: bool = later(False, neutral=False)

    def energy(self, context: ServerContext | ClientContext) -> float:
        """The share of the energy kept in this round."""
        return self.energy_start + (1 + context.round) / context.rounds * (self.energy_end - self.energy_start)

    def init_server(self, context: ServerContext) -> ServerState:
        sample, stream = context.sample, context.generator("server")
        network = models.build(self.shared, context.num_classes, sample, stream).to(context.device)
        return {"model": dict(network.state_dict()), "update": {}, "holders": []}

    def init_client(self, client: Client, context: ClientContext) -> None:
        shared: Any = context.build(self.shared)
        with fork_torch(context.generator("method")):
            projection = nn.Linear(shared.header.in_features, client.model.header.in_features, bias=False)
        client.state["projection"] = projection.weight.detach().to(context.device)

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        if info.id in server["holders"]:
            return Message(dict(server["update"]))
        return Message({f"model.{name}": tensor for name, tensor in server["model"].items()})

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        if all(name.startswith("model.") for name in message.tensors):
            start = {name.removeprefix("model."): tensor.clone() for name, tensor in message.tensors.items()}
        else:
            update = expand(message.tensors, client.state["shared"])
            start = {name: tensor + update[name] for name, tensor in client.state["shared"].items()}
        shared = context.build(self.shared)
        shared.load_state_dict(start)
        outputs, inputs = client.state["projection"].shape
        projection = nn.Linear(inputs, outputs, bias=False, device="meta")  # draws nothing
        projection.weight = nn.Parameter(client.state["projection"])
        networks = {"model": client.model, "shared": shared, "projection": projection}
        context.train(distillation_loss, networks, reduction=self.reduction, detach=self.detach)
        client.state.update(shared=start, projection=projection.weight.detach())
        if self.score_shared:
            keep_shared(client, shared.state_dict(), start)
        update = {name: tensor - start[name] for name, tensor in shared.state_dict().items()}
        return Message(compress(update, self.energy(context)))

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        updates = [expand(message.tensors, server["model"]) for _, message in uploads]
        averaged = {name: mean([update[name] for update in updates]) for name in server["model"]}
        server["update"] = compress(averaged, self.energy(context))
        applied = expand(server["update"], server["model"])  # what the clients can rebuild, not the mean itself
        server["model"] = {name: tensor + applied[name] for name, tensor in server["model"].items()}
        server["holders"] = [info.id for info, _ in uploads]

    def predict(self, client: Client, images: Tensor) -> dict[str, Tensor]:
        return super().predict(client, images) | shared_logits(client, self.shared, images)
