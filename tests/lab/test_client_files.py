"""Visited clients in files: the same bits with room for none, for some and for all; a checkpoint costs what has changed. How a process
ends at any moment is in test_bits.
"""

import signal
from pathlib import Path
from typing import Any

import pytest
import tiny

from fedlib import Federation, FedlibError, lab, simulation, training
from fedlib import simulate as plain
from fedlib.algorithms import Algorithm, make
from fedlib.lab import checkpoint, clientfiles, simulate
from fedlib.lab.clientfiles import ClientFiles
from fedlib.simulation import Outcome

CLIENTS, PARTICIPATION, ROUNDS = 12, 0.25, 7  # 3 clients a round
MODEL = 4 * (4 + 2 * 3 + 3)  # bytes of `tiny`


def built(**protocol: Any) -> Federation:
    return tiny.federation_of([[k % 3, (k + 1) % 3, k % 3] for k in range(CLIENTS)], **protocol)


def run(
    file: Path, federation: Federation | None = None, method: Algorithm | None = None, **given: Any
) -> tuple[Outcome, Federation]:
    federation = federation or built()
    return simulate(federation, method or make("FedSSA"), ROUNDS, PARTICIPATION, checkpoint=file, **given), federation


def in_memory(federation: Federation) -> tuple[int, int]:
    """How many clients are, and their bytes."""
    there = [client for client in federation.clients if client._model is not None]
    return len(there), sum(part.nbytes for client in there for part in training.tensors(client.snapshot()))


def stop_after(round: int):
    def stop(row: dict[str, Any], timing: dict[str, Any]) -> None:
        if row["round"] == round:
            signal.raise_signal(signal.SIGTERM)

    return stop


@pytest.mark.thorough
@pytest.mark.parametrize("room", [0, 2, CLIENTS])
@pytest.mark.parametrize(("method", "protocol"), [("FedSSA", {}), ("FedProto", {"inherit": "first_visit"})])
def test_the_room_in_memory_changes_no_bit(room, method, protocol, tmp_path, monkeypatch):
    expected, bytes = plain(built(**protocol), make(method), ROUNDS, PARTICIPATION), room * (MODEL + 100)
    monkeypatch.setattr(clientfiles, "MEMORY", bytes)  # FedProto's client keeps prototypes besides
    outcome, federation = run(tmp_path / "x.pt", built(**protocol), make(method))

    def fits() -> bool:
        count, held = in_memory(federation)
        return held <= bytes and count >= room / 2 if room else count == 1  # the one used last stays in any case

    assert sum(client.visited for client in federation.clients) > 6 and fits()
    assert outcome.digest() == expected.digest()  # reads them all
    assert fits()
    assert lab.clients_of(outcome).equals(lab.clients_of(expected))
    assert (tmp_path / "x.pt.clients").exists() == (room < CLIENTS)  # a short run with room for all writes nothing


def test_the_room_in_memory_can_be_said(tmp_path, monkeypatch):
    def held(room: str) -> int:
        monkeypatch.setenv("FEDLIB_CLIENT_MEMORY", room)
        return in_memory(run(tmp_path / f"{room}.pt")[1])[0]

    assert held("0") == 1 < held("0.5")
    for wrong, said in {"much": "must be a number", "-1": "must be at least 0, in GiB"}.items():
        with pytest.raises(FedlibError, match=f"^FEDLIB_CLIENT_MEMORY = '{wrong}': {said}"):
            held(wrong)


@pytest.mark.parametrize("room", [0, CLIENTS])
def test_a_checkpoint_writes_what_changed_and_keeps_what_it_names(room, tmp_path, monkeypatch):
    monkeypatch.setattr(clientfiles, "MEMORY", room * MODEL)
    monkeypatch.setattr(checkpoint, "CHECKPOINT_SECONDS", 0.0)
    file, folder, seen = tmp_path / "x.pt", tmp_path / "x.pt.clients", []
    save, write = checkpoint.save, ClientFiles._write
    written: list[int] = []

    def noted(self: ClientFiles, id: int) -> None:
        written.append(id)
        write(self, id)

    def saved(path: Path, label: str, outcome: Outcome, clients: ClientFiles) -> None:
        save(path, label, outcome, clients)
        last = [row["client"] for row in outcome.client_rows if row["round"] == outcome.round_rows[-1]["round"]]
        assert sorted(written) == sorted(last) and len(last) == 3
        written.clear()
        visited = {client.id for client in outcome.clients if client.visited}
        assert {int(path.name.split("-")[1]) for path in folder.iterdir()} == visited == set(clients.newest)
        assert len(list(folder.iterdir())) == len(visited)  # one file each
        seen.append(len(visited))

    monkeypatch.setattr(ClientFiles, "_write", noted)
    monkeypatch.setattr(checkpoint, "save", saved)
    outcome, _ = run(file)
    assert len(seen) == ROUNDS - 1 and seen[-1] > seen[0] == 3
    assert outcome.digest() == plain(built(), make("FedSSA"), ROUNDS, PARTICIPATION).digest()


@pytest.mark.thorough(None)
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"x" + path.read_bytes()[1:])])
def test_a_client_file_that_is_gone_or_damaged_is_set_aside_with_its_checkpoint(damage, tmp_path, capsys):
    with pytest.raises(lab.Interrupted):
        run(tmp_path / "x.pt", progress=stop_after(2))
    damage(min((tmp_path / "x.pt.clients").iterdir()))
    outcome, _ = run(tmp_path / "x.pt")
    assert outcome.digest() == plain(built(), make("FedSSA"), ROUNDS, PARTICIPATION).digest()
    assert "x.pt: corrupted, set aside as x.pt.corrupted-1\n" in capsys.readouterr().err
    assert (tmp_path / "x.pt.corrupted-1.clients").is_dir()


def test_a_client_file_that_is_damaged_while_the_run_trains_is_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(clientfiles, "MEMORY", 0)
    outcome, federation = run(tmp_path / "x.pt")
    away = next(client for client in federation.clients if client.visited and client._model is None)
    for path in (tmp_path / "x.pt.clients").glob(f"client-{away.id}-*"):
        path.write_bytes(b"")
    with pytest.raises(FedlibError, match=rf"client-{away.id}-1.pt: cannot be read \(it is not what was written\)"):
        outcome.digest()


def test_client_files_that_are_deleted_while_the_run_needs_them(tmp_path, monkeypatch):
    """Those of clients in memory are written again; without the others nothing is saved."""
    monkeypatch.setattr(checkpoint, "CHECKPOINT_SECONDS", 0.0)

    def delete(row: dict[str, Any], timing: dict[str, Any]) -> None:
        for path in tmp_path.glob("*.clients/*"):
            path.unlink()

    def delete_and_stop(row: dict[str, Any], timing: dict[str, Any]) -> None:
        delete(row, timing)
        stop_after(4)(row, timing)

    with pytest.raises(lab.Interrupted):
        run(tmp_path / "x.pt", progress=delete_and_stop)
    outcome, _ = run(tmp_path / "x.pt")
    assert outcome.digest() == plain(built(), make("FedSSA"), ROUNDS, PARTICIPATION).digest()
    assert not list(tmp_path.glob("*corrupted*"))
    monkeypatch.setattr(clientfiles, "MEMORY", 0)
    with pytest.raises(FedlibError, match=r"client-.*: cannot be read"):
        run(tmp_path / "y.pt", progress=delete)


@pytest.mark.thorough
def test_a_federation_that_was_trained_before(tmp_path, monkeypatch):
    """Its clients go on from where they are, wherever they lie, and later runs do not disturb one another's files."""
    twice = built()
    plain(twice, make("FedSSA"), ROUNDS, PARTICIPATION)
    expected = plain(twice, make("FedProto"), ROUNDS, PARTICIPATION).digest()
    monkeypatch.setattr(clientfiles, "MEMORY", 2 * MODEL)
    _, federation = run(tmp_path / "x.pt")
    outcome, _ = run(tmp_path / "y.pt", federation, make("FedProto"))
    assert outcome.digest() == expected
    other = built()
    run(tmp_path / "x2.pt", other)
    assert plain(other, make("FedProto"), ROUNDS, PARTICIPATION).digest() == expected


@pytest.mark.thorough(None)
@pytest.mark.parametrize("room", [0, CLIENTS])
def test_the_same_federation_goes_on_after_it_was_stopped_inside_a_round(room, tmp_path, monkeypatch):
    """What it trained after the last checkpoint counts for nothing."""
    monkeypatch.setattr(clientfiles, "MEMORY", room * MODEL)
    monkeypatch.setattr(checkpoint, "CHECKPOINT_SECONDS", 0.0)
    federation, answered = built(inherit="first_visit"), []
    hits = simulation._hits

    def stopped(algorithm: Algorithm, client: Any, num_classes: int) -> Any:
        answered.append(client.id)
        if len(answered) == 3 * 2 + 2:  # in the third round
            raise KeyboardInterrupt
        return hits(algorithm, client, num_classes)

    with monkeypatch.context() as patch:
        patch.setattr(simulation, "_hits", stopped)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "x.pt", federation)
    assert sum(client.visited for client in federation.clients) > len(set(answered[:6]))
    outcome, _ = run(tmp_path / "x.pt", federation)
    expected = plain(built(inherit="first_visit"), make("FedSSA"), ROUNDS, PARTICIPATION)
    assert outcome.digest() == expected.digest()
    assert lab.clients_of(outcome).equals(lab.clients_of(expected))
