"""`fedlib node` and `fedlib server`: what each side of a federation has to make before it begins."""

from pathlib import Path

from cyclopts import App

from fedlib.errors import coerce, require

# What loads torch is imported by the function that needs it: `fedlib --help` lists these, too.
node = App(
    name="node",
    help="""an owner of data in a real federation; share: its part of a plan, made from its own images

* `fedlib node share plan.toml --client 0 --images photographs --out shares`
* `fedlib node share plan.toml --client 1 --images mine.npz --out shares`""",
)
server = App(
    name="server",
    help="""the server of a real federation; share: its part of a plan; check, result: whether what Flower says is so

* `fedlib server share plan.toml told-0.json told-1.json --out shares`
* `fedlib server check hospitals --nodes 2`""",
)


@node.command
def share(plan: str, /, *, client: str, images: str, out: str) -> None:
    """an owner's share of a plan, made from its own images where they lie

    Prints the file that the server is to get: seen classes and number of training images, no image. A node with several
    clients calls this for each of them.

    * `fedlib node share plan.toml --client 0 --images photographs --out shares`
    * `fedlib node share plan.toml --client 1 --images mine.npz --out shares`

    Parameters
    ----------
    plan
        the TOML file that all sides have
    client
        which of the plan's clients this is, from 0
    images
        a folder with a folder of pictures for each class, or an .npz file with images and labels
    out
        the node's folder of shares, which its SuperNode names
    """
    from . import owners

    read = owners.read_plan(plan)
    found, labels = owners.read_images(images, read)
    number = int(coerce("client", client, int))
    told = owners.own_share(read, number, found, labels, out)
    print(f"run {read.run.key}: client {number} has {len(labels)} images; the server is to get {told}")


@server.command(name="share")
def server_share(plan: str, told: tuple[str, ...], /, *, out: str) -> None:
    """the server's share of a plan, made of what the owners have told

    * `fedlib server share plan.toml told-0.json --out shares`
    * `fedlib server share plan.toml told-0.json told-1.json --out shares`

    Parameters
    ----------
    plan
        the TOML file that all sides have
    told
        the file of each client that `fedlib node share` has printed
    out
        the server's folder of shares
    """
    from . import owners

    print(owners.server_share(owners.read_plan(plan), [Path(file) for file in told], out))


@server.command
def bundle() -> None:
    """where the app is that `flwr run` sends to the SuperLink

    * `fedlib server bundle`
    * `fedlib server bundle > bundle.txt`
    """
    from .loopback import BUNDLE

    print(BUNDLE)


@server.command
def check(superlink: str, /, *, nodes: str = "0") -> None:
    """whether Flower's commands reach the SuperLink that they name, and which SuperNodes are there

    * `fedlib server check hospitals`
    * `fedlib server check hospitals --nodes 4`

    Parameters
    ----------
    superlink
        its name in Flower's config.toml
    nodes
        how many SuperNodes there must be (default 0)
    """
    from . import check as checks

    least = int(coerce("nodes", nodes, int))
    address = checks.connection(superlink)
    found = checks.online(superlink)
    require(len(found) >= least, "SuperNodes that are there", len(found), f"{least} or more")
    print(f"{superlink}: {address} answers with a trusted certificate; {len(found)} SuperNodes are there")


@server.command
def result(out: str, /) -> None:
    """how far a run has come, or the line that it ended with

    * `fedlib server result results`
    * `fedlib server result /srv/federation/results`

    Parameters
    ----------
    out
        the run's folder on the server's machine
    """
    from . import check as checks

    print(f"the run {checks.result(out)}")
