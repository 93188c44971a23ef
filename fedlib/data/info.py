"""What is known of data sets without their images, and who reads them: the registry."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..fields import later
from ..sample import Sample


@dataclass(frozen=True)
class DatasetInfo:
    """What can be known of a data set without reading its images.

    channels: length of a sample's first axis, see `Sample.channels`; num_train, num_test: samples of the official parts;
    mean, std: per channel, of bytes as numbers in [0, 1], of floats as they are; fingerprint: of the content, see
    `Dataset.fingerprint` (SVHN's is that of the published MD5s of its files); augment: whether training images may be
    flipped, erased and cropped (`Protocol.augmentation`), which mirrors digits and text; size: of a sample's further axes,
    such as height and width; kind, dtype, vocabulary: see `Sample`; groups: how many subjects, writers or domains the
    samples are of, 0 where that is not known.
    """

    name: str
    num_classes: int
    channels: int
    num_train: int
    num_test: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    fingerprint: str
    augment: bool = field(default=False, metadata={"in_key": False})  # acts through the protocol, which is in the key
    size: tuple[int, ...] = later((32, 32), neutral=(32, 32))
    kind: str = later("image", neutral="image")
    dtype: str = later("uint8", neutral="uint8")
    vocabulary: int = later(0, neutral=0)
    groups: int = later(0, neutral=0)

    @property
    def sample(self) -> Sample:
        """What a sample looks like."""
        return Sample(self.kind, (self.channels, *self.size), self.dtype, self.vocabulary)

    @property
    def num_images(self) -> int:
        return self.num_train + self.num_test

    @property
    def embedded(self) -> bool:
        """Whether it is one of the stand-ins that come with the installation: never set beside a paper's number as if
        comparable.
        """
        return self.name in READERS and not READERS[self.name].folder


@dataclass(frozen=True)
class Reader:
    """Who reads a data set that comes with fedlib.

    read: called with the root of the real data and whether to download, returns a `Dataset`; folder: the set's own under the root, none for
    an embedded one; checked_files: whether `read` compares the files with their published sums, which then are the
    fingerprint in place of the images.
    """

    read: Callable[[Path, bool], Any]
    folder: str = ""
    checked_files: bool = False


BUILT_IN: dict[str, DatasetInfo] = {}  # every line is checked when its set is loaded
READERS: dict[str, Reader] = {}
DESCRIBED: dict[str, DatasetInfo] = {}  # whose images are elsewhere, see `described`
REGISTERED: dict[str, Callable[[], Any]] = {}  # a person's own, also under the name of a built-in one


def provide(info: DatasetInfo, read: Callable[[Path, bool], Any], folder: str = "", **more: bool) -> None:
    """Make a data set part of fedlib; see `Reader`."""
    BUILT_IN[info.name], READERS[info.name] = info, Reader(read, folder, **more)
