"""Per-FedAvg: a round by hand, limits, and the traps of other implementations."""

import tiny
import torch
from steps import federation, mean, moved, slopes

from fedlib import simulate
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.per_fedavg import PerFedAvg, meta_loss


def test_per_fedavg_one_round_by_hand() -> None:
    alpha, beta, built = 0.2, 0.4, federation()
    method, context = PerFedAvg(alpha=alpha, beta=beta), tiny.context(built)
    server = method.init_server(context)
    start, expected = tiny.Net(server), []
    uploads = tiny.play(method, server, built, context)
    for client in built.clients:
        x, y = tiny.training_data(client)  # both batches are all of the client's images
        tentative = moved(start, alpha, slopes(start, x, y))  # w~ = w - alpha * grad f(w)
        trained = moved(start, beta, slopes(tentative, x, y))  # w <- w - beta * grad f(w~), no Hessian
        trained.agrees(uploads[client.id].message.tensors)
        trained.agrees(client.state["w"])
        moved(trained, alpha, slopes(trained, x, y)).agrees(client.model)  # evaluated: adapted by one step
        expected.append(trained)
    method.aggregate(server, uploads, context)
    mean(expected).agrees(server)


def test_per_fedavg_without_adaptation_is_fedavg_on_the_second_batches_at_rate_beta() -> None:
    meta, plain = federation(2, batch_size=2, lr=0.9), federation(2, batch_size=2, lr=0.3)
    simulate(meta, PerFedAvg(alpha=0.0, beta=0.3), 3)
    simulate(plain, FedAvg(), 3)
    assert tiny.same_models(meta, plain)


def test_per_fedavg_beta_is_the_runs_rate_unless_given() -> None:
    default, given = federation(lr=0.3), federation(lr=0.9)
    simulate(default, PerFedAvg(), 2)
    simulate(given, PerFedAvg(beta=0.3), 2)
    assert tiny.same_models(default, given)


def test_per_fedavg_adapts_on_a_batch_of_its_own() -> None:
    seen = []

    def spy(images: torch.Tensor, support_images: torch.Tensor, **rest: object) -> torch.Tensor:
        seen.append((images.flatten(1)[:, 0].tolist(), support_images.flatten(1)[:, 0].tolist()))
        return meta_loss(images=images, support_images=support_images, **rest)

    built = federation(epochs=4, batch_size=2)
    built.client_context(1).train(spy, support="method", alpha=0.1)
    assert len(seen) == 12 and all(len(one) == len(other) for one, other in seen)  # 3 batches an epoch, the last of 1
    assert sum(set(one) == set(other) for one, other in seen) < 6  # independent draws
