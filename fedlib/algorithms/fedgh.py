"""FedGH: Yi, Wang, Liu, Shi, Yu, "FedGH: Heterogeneous Federated Learning with Generalized Global Header", ACM MM
2023, Algorithm 1.

Clients upload the mean representation of each seen class (local averaged representation, LAR); the server trains one
global header on the pairs (LAR, class) by SGD, and the header replaces each client's. Extractors stay local. Down:
the header; up: a LAR and its label a class. The server's step is Eq. 4's SGD whatever optimiser the clients use; Eq. 5
puts the header in place of the client's, and Eq. 6 is the local step.

The released code computes these gradients but never applies them (its optimiser holds another network), so its
header stays what it was initialised to (`server_update=frozen`); this file trains it, as the paper says. Released too:
no header goes down in round 0 (`first_header=own`), and the LARs are those of augmented images (`lars=augmented`; its
mean of batch means is not reproduced). Other libraries train the header on shuffled mini-batches of LARs
(`server_update=minibatch`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..fields import setting
from ..randomness import fork_torch
from ..training import class_means
from .base import Algorithm, Client, ClientContext, ClientInfo, Look, Message, ServerContext, ServerState, Upload


@dataclass(frozen=True)
class FedGH(Algorithm):
    """server_lr: eta_theta, the server's learning rate, >= 0; 0 freezes the header. Default 0.01 (section 5.1).
    server_update: `per_lar` (the default), one SGD step per LAR in order of arrival (Algorithm 1); `minibatch`, one
    shuffled pass in batches of B; `frozen`, none (released code).
    first_header: what a client starts round 0 with, the `global` header (the default, Algorithm 1) or its `own`
    (released code).
    lars: of the `plain` images (the default, Eq. 3), or of `augmented` ones where the protocol augments (released
    code).
    """

    name = "FedGH"
    paper = "Yi et al., ACM MM 2023"
    exchanges = "header down, class means of representations up"
    needs = "features"
    uncounted = ("header.bias",)  # the paper's Table 3 counts d * C floats down, and comes out to the last digit
    look = Look("#cc78bc", "D", (0, (5, 1, 1, 1, 1, 1)))

    server_lr: float = setting(0.01, ge=0)
    server_update: str = setting("per_lar", choices=("per_lar", "minibatch", "frozen"))
    first_header: str = setting("global", choices=("global", "own"))
    lars: str = setting("plain", choices=("plain", "augmented"))

    def init_server(self, context: ServerContext) -> ServerState:
        with fork_torch(context.generator("server")):
            header = torch.nn.Linear(context.initial_header().in_features, context.num_classes)
        return {name: tensor.to(context.device) for name, tensor in header.state_dict(prefix="header.").items()}

    def download(self, server: ServerState, info: ClientInfo, context: ServerContext) -> Message:
        header = dict(server)
        if self.first_header == "own" and context.round == 0:  # released code
            header = {}
        return Message(header)

    def local_round(self, client: Client, message: Message, context: ClientContext) -> Message:
        if message.tensors:
            header = {"weight": message["header.weight"], "bias": message["header.bias"]}
            client.model.header.load_state_dict(header)  # Eq. 5
        context.train()  # Eq. 6
        lars = class_means(self._extractor(client, context), client.pool, client.train, client.classes)  # Eq. 3
        return Message({"lars": lars, "classes": client.classes}, client.num_samples)

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], context: ServerContext) -> None:
        lars, labels = (torch.cat([message[name] for _, message in uploads]) for name in ("lars", "classes"))
        steps: Iterable[tuple[Tensor, Tensor]] = zip(lars, labels, strict=True)  # in order of arrival, one pass
        if self.server_update != "per_lar":
            steps = self._other_steps(lars, labels, context)
        weight = server["header.weight"].clone().requires_grad_()
        bias = server["header.bias"].clone().requires_grad_()
        optimiser = torch.optim.SGD([weight, bias], self.server_lr)
        for lar, label in steps:
            optimiser.zero_grad()
            F.cross_entropy(F.linear(lar, weight, bias), label).backward()
            optimiser.step()  # Eq. 4
        server.update({"header.weight": weight.detach(), "header.bias": bias.detach()})

    # What is not the paper's.

    def _extractor(self, client: Client, context: ClientContext) -> Callable[[Tensor], Tensor]:
        """The client's own, or that of augmented images (`lars`)."""
        augment, extractor = context.augment, client.model.extractor
        if augment and self.lars == "augmented":
            return lambda images: extractor(augment(images))
        return extractor

    def _other_steps(self, lars: Tensor, labels: Tensor, context: ServerContext) -> Iterable[tuple[Tensor, Tensor]]:
        """None, or a shuffled pass in batches (`server_update`)."""
        if self.server_update == "frozen":
            return []
        order = torch.from_numpy(context.generator("server").permutation(len(labels))).to(context.device)
        size = context.settings.batch_size
        return zip(lars[order].split(size), labels[order].split(size), strict=True)
