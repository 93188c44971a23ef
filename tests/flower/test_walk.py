"""The page for real machines, walked: a server and four owners in network namespaces with an address each. And what says
whether Flower is to be believed, without Flower.
"""

import os
import shutil
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
import walk
from PIL import Image

from fedlib import Dataset, FedlibError, RunSpec, data, lab, simulate
from fedlib.flower import check, loopback, owners


def test_the_pages_plan_can_be_read(tmp_path):
    (text,) = (text for language, _, text in walk.blocks() if language == "toml")
    (tmp_path / "plan.toml").write_text(text)
    assert owners.read_plan(tmp_path / "plan.toml").run.spec.algorithm == "FedSSA"
    assert [first for _, first, _ in walk.blocks()].count("# on the server's machine") == 4


def configured(tmp_path, monkeypatch, text):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text(text)


def test_a_superlink_is_believed_when_it_answers_with_a_trusted_certificate(tmp_path, monkeypatch):
    pytest.importorskip("trustme")
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    with pytest.raises(
        FedlibError, match=r"config\.toml: cannot be read .* without it Flower starts a SuperLink of its own$"
    ):
        check.connection("owners")
    loopback.write_certificates(tmp_path / "own")
    loopback.write_certificates(tmp_path / "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own/server.pem", tmp_path / "own/server.key")
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as superlink:
        superlink.socket = context.wrap_socket(superlink.socket, server_side=True)
        threading.Thread(target=superlink.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{superlink.server_port}"
        for trusted, fits in (("own", True), ("other", False)):
            configured(
                tmp_path,
                monkeypatch,
                f'[superlink.owners]\naddress = "{address}"\nroot-certificates = "{trusted}/ca.pem"\n',
            )
            if fits:
                assert check.connection("owners") == address
            else:
                with pytest.raises(FedlibError, match=r"^superlink owners at .*: does not answer with a trusted cert"):
                    check.connection("owners")
        superlink.shutdown()
    with pytest.raises(FedlibError, match=r"^superlink owners at .*: does not answer with a trusted certificate"):
        check.connection("owners")
    with pytest.raises(FedlibError, match=r"superlink = 'owner' is unknown: did you mean 'owners'\?"):
        check.connection("owner")
    configured(tmp_path, monkeypatch, '[superlink.owners]\naddress = "fed.example.org"\n')
    with pytest.raises(FedlibError, match=r"superlink\.owners\.root-certificates = None: must be given$"):
        check.connection("owners")


def test_a_result_says_how_far_the_run_is(tmp_path):
    with pytest.raises(FedlibError, match=r"nothing has come of a run yet"):
        check.result(tmp_path)
    (tmp_path / "messages.csv").write_text("round,client\n-1,0\n0,1\n")
    assert check.result(tmp_path) == "is in its rounds: 1 is done"
    (tmp_path / "rounds.csv").write_text("round,accuracy\n-1,0.1\n0,0.2\n1,0.3\n")
    assert check.result(tmp_path) == "finished after round 2"
    (tmp_path / "error.txt").write_text("round 1: none of the clients can be used\n")
    with pytest.raises(FedlibError, match=r"^round 1: none of the clients can be used$"):
        check.result(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("ip", "openssl", "ssh-keygen"))), reason="needs root and iproute2"
)
def test_the_pages_commands_federate_four_owners(tmp_path):
    pytest.importorskip("flwr")
    stream, every = np.random.default_rng(5), []
    for client in range(walk.OWNERS):
        for label, name in enumerate(("crack", "dent", "none")):
            folder = tmp_path / f"owner-{client}" / "images" / name
            folder.mkdir(parents=True)
            for number in range(0 if label == client % 3 else 15 + client):
                pixels = (stream.integers(0, 80, (32, 32, 3)) + np.array([80 * label, 40, 160 - 80 * label])).astype(
                    np.uint8
                )
                Image.fromarray(pixels).save(folder / f"{number:03}.png")
                every.append((pixels.transpose(2, 0, 1), label, client))
    here = str(Path(lab.__file__).parents[2])
    script = f"import sys; sys.path.insert(0, {str(Path(walk.__file__).parent)!r}); import walk; walk.walk({str(tmp_path)!r})"
    environment = os.environ | {
        "PYTHONPATH": here,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    images, labels, whose = (np.array(part) for part in zip(*every, strict=True))
    united = Dataset.from_arrays(
        "united", images, labels, images[:0], labels[:0], 3, mean=[0.4] * 3, std=[0.3] * 3, groups=(whose, [])
    )
    data.register("united", lambda: united)
    run = lab.resolve(
        RunSpec("FedSSA", dataset="united", partition="groups", num_clients=4, participation=0.5, rounds=3, local_epochs=1,
                batch_size=16, precision="fp32")
    )  # fmt: skip
    outcome = simulate(lab.federation_of(run), run.algorithm, 3, 0.5)
    for name, table in (("rounds", lab.rounds_of(outcome)), ("clients", lab.clients_of(outcome))):
        found = (tmp_path / f"server/out/{name}.csv").read_text()
        assert found == table.to_csv(index=False, lineterminator="\n")
