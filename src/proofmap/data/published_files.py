"""The published files of MNIST and CIFAR-10, with the SHA-256 of their unpacked content.

A wrong byte in a data set changes accuracies and explanations without any error. The loaders therefore refuse a file
that differs from the published one, unless `verify=False`.
"""

from pathlib import Path

from proofmap.errors import FileError, InputError

PUBLISHED = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}


def check_split(split: str) -> None:
    """Raise InputError unless the split is "train" or "test"."""
    if split not in ("train", "test"):
        raise InputError(f"got split {split!r}, expected 'train' or 'test'")


def first_file(*paths: Path, otherwise: str) -> Path:
    """Return the first of these paths that is a file; raise FileError with a message otherwise."""
    for path in paths:
        if path.is_file():
            return path
    raise FileError(otherwise)


def check(path: Path, name: str, digest: str) -> None:
    """Raise FileError unless `digest`, the SHA-256 of the content of `path`, is that of the published file `name`."""
    if digest != PUBLISHED[name]:
        raise FileError(
            f"{path} is not the published {name}: its content has SHA-256 {digest}, expected {PUBLISHED[name]}; "
            "fetch it again, or pass verify=False to read it as it is"
        )
