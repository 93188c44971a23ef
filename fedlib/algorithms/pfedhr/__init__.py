"""pFedHR: Wang, Yang, Cui, Che, Lyu, Xu, Ma, "Towards Personalized Federated Learning via Heterogeneous Model
Reassembly", NeurIPS 2023, appendix Algorithm 1.

Clients upload whole models of any structure. The server takes them apart into layers, groups the layers by what they
compute on public images, chains layers of different models into candidates, stitches and fine-tunes these, and gives
each client the one whose answers are most like its own model's; the client learns from it by distillation. Down: the
matched candidate with its structure; up: the model. `reassembly` holds the steps.

The teacher of a client is there in the next round only: a client that is not selected again then trains on its own
(section 3.2; `teacher=last_match` keeps it). Clients' models are fine-tuned on copies, for the matching alone.
Layers are copied into candidates, so nothing is shared, and each network is fine-tuned from a random stream of its own, a
child of the round's, so it does not matter in which order. When a round has no candidate, because none satisfies R1 to
R4 or all diverge in fine-tuning, nobody gets a teacher; `details` says why. Every round records `taught`, the share of
its clients that had a teacher, 0 where nobody had.

`public_only` is a control of ours: no client's model enters a teacher. Where clients would get their matches, each gets a
network of its own architecture that the server has drawn (one a round and architecture, from the round's stream) and
trained on the labelled public images, as long and by the same optimiser; also in rounds without a candidate. What pFedHR's
teachers bring beyond these comes from the clients; what these bring beyond training alone (`weight=0`), from public labels.

Known disagreements: the authors' code samples chains at random in place of Algorithm 1, shares layers among
candidates, stitches flattened feature maps without ReLU, and uses the last pooled map as the features of linear
layers. Reproduced from it are `clusters=2, weight=0.1, kd=raw, client_reset=True, crop=0.8, projection=0`.

Eq. 6 prints KL(alpha, alpha-hat), the client's logits first, and names no direction. Here it is KL(teacher || client)
of their softmax outputs (*chosen*), as in the mutual learning that section 3.2 says to follow: the teacher is the
target. SimCLR puts its head on a network's representation and throws both the head and the classifier away; a candidate
is matched by its logits, so the head stands on these, and the last layer is trained too.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from ... import side_by_side, training
from ...errors import FedlibError, require
from ...fields import later, setting
from ...models import build, num_floats
from ..base import (
    Algorithm,
    Client,
    ClientContext,
    ClientInfo,
    Federation,
    Look,
    Message,
    ServerContext,
    ServerState,
    Upload,
    check_public_labels,
)
from . import contrastive, reassembly
from .reassembly import Source


def distillation_loss(
    model: nn.Module, images: Tensor, labels: Tensor, teacher: nn.Module, weight: float, kd: str
) -> Tensor:
    """Eq. 6: CE + weight * KL(teacher || model), or with kd `raw` weight * cross-entropy to the teacher's raw logits."""
    logits, target = model(images), teacher(images)
    distance = training.kl_divergence(target, logits) if kd == "kl" else F.cross_entropy(logits, target)
    return F.cross_entropy(logits, labels) + weight * distance


@dataclass(frozen=True)
class PFedHR(Algorithm):
    """clusters: K, groups of layers, >= 1. Default 4 (section 4.2).
    server_epochs: E_s, epochs of fine-tuning, >= 1. Default 3 (section 4.2). server_lr: of its Adam. Default 0.001.
    weight: lambda of Eq. 6, >= 0; 0 is Standalone. Default 0.2 (appendix 2). kd: `kl` (Eq. 6) or `raw` (see above).
    teacher: `next_round` only (section 3.2) or the `last_match`. client_reset: a client without teacher starts from
    its initial model (authors' code).
    search: `greedy` (Algorithm 1) or `exhaustive`. max_candidates: of them a round, >= 1. Default 8 (*chosen*: the
    text has no bound). stitch_layers: linear layers of a stitch, 1 to 3. Default 1.
    cka_samples: public images for Eq. 3; 0 for all. Default 512 (*chosen*). activations: `full`, or maps `pooled`.
    merge_same: average the models of one structure first (section 4.2, for N = 100).
    temperature, crop, projection: SimCLR's, its smallest crop in (0, 1], and the width of a projection head on the
    logits, thrown away afterwards; 0 for none (authors' code). Default 0.5, 0.08 and 128, SimCLR's, which section 3.1
    says to follow.
    public_only: the control above. Default false.
    medoid_starts: random starts of the grouping, the best of which is taken, >= 1. Default 1, as in the results of record: on
    layers of three and four untrained models of M1 to M3 it missed the best groups in 386 of 3 600 starts, ten in 0 of 360.
    """

    name = "pFedHR"
    paper = "Wang et al., NeurIPS 2023"
    exchanges = "model up, reassembled model down"
    public_data = "unlabelled"
    needs = "images"
    together = "makes a client's teacher of other clients' layers: of one model there is nothing to group"
    look = Look("#000000", "o")

    clusters: int = setting(4, ge=1)
    server_epochs: int = setting(3, ge=1)
    server_lr: float = setting(0.001, ge=0)
    weight: float = setting(0.2, ge=0)
    kd: str = setting("kl", choices=("kl", "raw"))
    teacher: str = setting("next_round", choices=("next_round", "last_match"))
    client_reset: bool = False
    search: str = setting("greedy", choices=("greedy", "exhaustive"))
    max_candidates: int = setting(8, ge=1)
    stitch_layers: int = setting(1, ge=1, le=3)
    cka_samples: int = setting(512, ge=0)
    activations: str = setting("full", choices=("full", "pooled"))
    merge_same: bool = False
    temperature: float = setting(0.5, gt=0)
    crop: float = setting(0.08, gt=0, le=1)
    projection: int = setting(128, ge=0)
    public_only: bool = later(False, neutral=False)
    medoid_starts: int = later(1, neutral=1, ge=1)

    def check(self, federation: Federation) -> None:
        super().check(federation)
        if federation.public is not None and federation.public.labelled:
            check_public_labels(self.name, federation.public, federation.num_classes)
        elif self.public_only:
            raise FedlibError("public_only = True: must be False: the public images have no labels")
        else:
            dtype = federation.sample.dtype
            require(
                dtype == "uint8", "images of pFedHR's SimCLR", dtype, "uint8, whose colours it changes, or labelled"
            )
        sizes = federation.num_classes, federation.sample
        names = sorted(set(federation.architectures))
        depths = {name: len(reassembly.blueprint(name, *sizes).blocks) for name in names}
        allowed = f"at most {max(depths.values())}, as a candidate has a layer of each group; layers by model: {depths}"
        require(self.clusters <= max(depths.values()), "clusters", self.clusters, allowed)

    def init_server(self, context: ServerContext) -> ServerState:
        return {"teachers": {}}  # client id -> its matched candidate's tensors and structure

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        teacher = server["teachers"].get(info.id)
        return Message(teacher["tensors"], structure=teacher["structure"]) if teacher else Message()

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        taught = bool(message.structure)
        if message.structure:
            teacher = self._network(message.structure, context, context.generator("method"))
            teacher.load_state_dict(message.tensors)
            context.train(distillation_loss, teacher=teacher, weight=self.weight, kd=self.kd)  # Eq. 6
        else:
            if self.client_reset:
                client.model = context.build(client.info.architecture)
            context.train()
        return Message(client.model.state_dict(), client.num_samples, diagnostics={"taught": taught})

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> dict[str, Any]:
        uploads = sorted(uploads, key=lambda upload: upload.info.id)  # the order of arrival does not matter
        stream, pool, indices = context.generator("server"), context.public.pool, context.public.indices
        models: Mapping[Source, Mapping[str, Tensor]] = {
            (info.id, info.architecture): message.tensors for info, message in uploads
        }
        clients = [_loaded(source, models, context) for source in models]
        if self.public_only:
            found, candidates, streams = self._of_public_images(uploads, context, stream)
            networks = candidates
        else:
            found, candidates, streams = self._of_clients(models, uploads, context, stream)
            networks = [*candidates, *clients]
        if candidates:
            tuned = side_by_side.each(
                lambda number: self._finetune(networks[number], streams[number], context),
                range(len(networks)),
                training.processes.get(),
                pack=lambda number, _: networks[number].state_dict(),
                unpack=lambda number, weights: networks[number].load_state_dict(weights),
            )
            with closing(tuned):
                list(tuned)
        of_clients, of_candidates = (
            [training.outputs(network, pool, indices) for network in networks] for networks in (clients, candidates)
        )
        similarity, matches = reassembly.match(of_clients, of_candidates)  # Eq. 5 and 2
        if self.public_only:
            places = {structure[0].architecture: place for place, structure in enumerate(found.candidates)}
            own = [places[info.architecture] for info, _ in uploads]
            matches = [place if row[place] is not None else None for place, row in zip(own, similarity, strict=True)]

        if self.teacher == "next_round":
            server["teachers"] = {}
        for (info, _), place in zip(uploads, matches, strict=True):
            if place is not None:
                structure = tuple(tuple(layer) for layer in found.candidates[place])
                server["teachers"][info.id] = {"tensors": candidates[place].state_dict(), "structure": structure}
        return {
            "layers": len(found.layers),
            "candidates": len(candidates),
            "dropped": found.dropped,
            "diverged": sum(not bool(logits.isfinite().all()) for logits in of_candidates),
            "matched": sum(place is not None for place in matches),
            **found.details(),
            "parameters": [num_floats(network) for network in candidates],
            "clients": [info.id for info, _ in uploads],
            "similarity": similarity,
            "matches": matches,
        }

    def _of_clients(
        self,
        models: Mapping[Source, Mapping[str, Tensor]],
        uploads: Sequence[Upload],
        context: ServerContext,
        stream: np.random.Generator,
    ) -> tuple[reassembly.Found, list[nn.Module], list[np.random.Generator]]:
        """Algorithm 1's candidates, and a stream for each of them and of the clients, whatever the others draw."""
        public = context.public
        if self.merge_same:
            models = reassembly.averaged(models, [info.num_samples for info, _ in uploads])
        blocks = {source: reassembly.decompose(_loaded(source, models, context)) for source in models}
        count = self.cka_samples or len(public.indices)
        sample = public.pool.batch(public.sample(count, context.generator("public"))).float()
        pooled = self.activations == "pooled"
        how = self.clusters, self.search, self.max_candidates
        found = reassembly.reassemble(blocks, sample, pooled, *how, stream, self.medoid_starts)
        streams = stream.spawn(len(found.candidates) + len(uploads))
        drawn = zip(found.candidates, streams, strict=False)
        return found, [self._network(structure, context, own, blocks) for structure, own in drawn], streams

    def _of_public_images(
        self, uploads: Sequence[Upload], context: ServerContext, stream: np.random.Generator
    ) -> tuple[reassembly.Found, list[nn.Module], list[np.random.Generator]]:
        """The control: a network as it is drawn of each architecture that arrived, and its stream, the same whoever did."""
        every = sorted({info.architecture for info in context.infos})
        arrived, sizes = {info.architecture for info, _ in uploads}, (context.num_classes, context.sample)
        structures, networks, streams = [], [], []
        for architecture, own in zip(every, stream.spawn(len(every)), strict=True):
            if architecture in arrived:
                source = (reassembly.PUBLIC, architecture)
                blocks = reassembly.decompose(build(architecture, *sizes, own))
                structures.append(tuple(reassembly.layers_of(source, blocks)))
                networks.append(self._network(structures[-1], context, own, {source: blocks}))
                streams.append(own)
        layers = [layer for structure in structures for layer in structure]
        return reassembly.Found(layers, np.empty((0, 0)), [], structures, 0), networks, streams

    def _network(
        self,
        structure: tuple[Any, ...],
        context: ServerContext | ClientContext,
        stream: np.random.Generator,
        blocks: Any = None,
    ) -> nn.Module:
        sizes = context.num_classes, context.sample, self.stitch_layers
        return reassembly.assemble(structure, *sizes, stream, blocks).to(context.device)

    def _finetune(self, network: nn.Module, stream: np.random.Generator, context: ServerContext) -> None:
        """E_s epochs of Adam on the public images: by their labels or, where they have none, by SimCLR."""
        public = context.public
        settings = training.Settings(self.server_epochs, context.settings.batch_size, self.server_lr, optimiser="adam")
        if public.labelled:
            training.train(training.cross_entropy, {"model": network}, public.pool, public.indices, settings, stream)
        else:
            simclr = (self.temperature, self.crop, self.projection)
            contrastive.train(network, context.num_classes, public.pool, public.indices, settings, stream, *simclr)


def _loaded(source: Source, models: Mapping[Source, Mapping[str, Tensor]], context: ServerContext) -> nn.Module:
    """A copy of an uploaded model."""
    network = context.build(source[1])
    network.load_state_dict(models[source])
    return network
