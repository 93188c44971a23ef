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

import pytest
import united
import walk

from fedlib import FedlibError, lab
from fedlib_flower import check, loopback, owners


def test_the_pages_plan_can_be_read(tmp_path):
    (text,) = (text for language, _, text in walk.blocks() if language == "toml")
    (tmp_path / "plan.toml").write_text(text)
    assert owners.read_plan(tmp_path / "plan.toml").run.spec.algorithm == "FedSSA"
    assert [first for _, first, _ in walk.blocks()].count("# on the server's machine") == 3


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


@pytest.mark.parametrize("text", ["superlink = 3", "superlink = [1]"])
def test_a_superlink_that_is_no_table_is_one_line(tmp_path, monkeypatch, text):
    configured(tmp_path, monkeypatch, text)
    with pytest.raises(FedlibError, match=r"config\.toml: superlink = .*: must be a table of them"):
        check.connection("owners")


def test_a_result_in_damaged_files_is_one_line(tmp_path):
    for file, content in (
        *(("messages.csv", content) for content in (b"a,b\n1,2\n", b"round,client,reason\nx,0,\n", b"\xff\n1\n")),
        ("error.txt", b"\xff"),
    ):
        (tmp_path / file).write_bytes(content)
        with pytest.raises(FedlibError, match=r"^out = '.*': has a damaged file: ") as error:
            check.result(tmp_path)
        assert "\n" not in str(error.value)
    (tmp_path / "error.txt").unlink()
    os.mkfifo(tmp_path / "error.txt")
    with pytest.raises(FedlibError, match=r"error\.txt is no regular file"):
        check.result(tmp_path)


def test_a_result_says_how_far_the_run_is(tmp_path):
    with pytest.raises(FedlibError, match=r"nothing has come of a run yet"):
        check.result(tmp_path)
    (tmp_path / "messages.csv").write_text("round,client,reason\n-1,0,\n0,1,\n")
    assert check.result(tmp_path) == "is in its rounds: 1 is done"
    (tmp_path / "messages.csv").write_text("round,client,reason\n-1,0,\n0,1,cannot be read\n")
    assert check.result(tmp_path) == (
        "is in its rounds: 1 is done; 1 of 2 requests in vain, lastly client 1 in round 0: cannot be read"
    )
    (tmp_path / "messages.csv").write_text("round,client,reason\n-1,0,\n0,1,\n")
    (tmp_path / "rounds.csv").write_text("round,accuracy\n-1,0.1\n0,0.2\n1,0.3\n")
    assert check.result(tmp_path) == "finished after round 2"
    (tmp_path / "error.txt").write_text("round 1: none of the clients can be used\n")
    with pytest.raises(FedlibError, match=r"^round 1: none of the clients can be used$"):
        check.result(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("ip", "openssl", "ssh-keygen"))), reason="needs root and iproute2"
)
@pytest.mark.parametrize(
    "algorithm",
    ["FedSSA", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("FedGH", "FedProto", "SharedBias"))],
)
def test_the_pages_commands_federate_four_owners(tmp_path, package, mine, algorithm):
    pytest.importorskip("flwr")
    sides = tmp_path / "sides"
    owned = united.pictures(sides / f"owner-{client}" for client in range(walk.OWNERS))
    (plan,) = (text for language, _, text in walk.blocks() if language == "toml")
    script = "import sys, walk; walk.walk(*sys.argv[1:])"
    paths = [Path(walk.__file__).parent, Path(lab.__file__).parents[2], package]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    words = [sys.executable, "-c", script, str(sides), plan.replace("FedSSA", algorithm)]
    subprocess.run(words, check=True, env=environment)
    assert united.tables(sides / "server/out") == united.simulated(owned, algorithm, rounds=3)
