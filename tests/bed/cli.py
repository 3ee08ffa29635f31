"""The verbs of the bed."""

import argparse
import shlex
from collections.abc import Callable, Sequence

from bed import clusters, images
from bed.errors import BedError
from bed.places import Bed, bed_from
from bed.programs import API_SERVER, PROGRAMS, built
from bed.steps import say
from bed.tools import tool


def main(arguments: Sequence[str]) -> int:
    """Runs one verb; 0 when it succeeded, 1 with a message when not."""
    parsed = _parser().parse_args(arguments)
    act: Callable[[Bed, argparse.Namespace], int] = parsed.act
    try:
        return act(bed_from(), parsed)
    except BedError as error:
        say(f"bed: {error}")
        return 1
    except KeyboardInterrupt:
        say("bed: interrupted; the same verb again goes on from here")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 tests/bed",
        description="The test bed: a kind cluster on this machine, and the project's images in it. "
        "DOCKWORK_BED chooses the bed (default: dockwork), DOCKWORK_CACHE the folder for everything that is built.",
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, act: Callable[[Bed, argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=text, description=text)
        added.set_defaults(act=act)
        return added

    verb("up", _up, "bring the cluster up; goes on from whatever is there")
    verb("down", _down, "delete the cluster, and stop the private Docker daemon if no other bed uses it")
    verb("status", _status, "tell what there is; exit 1 unless the cluster answers")
    verb("env", _env, "print DOCKER_HOST, KUBECONFIG and PATH of the bed, for eval")
    binaries = verb("binaries", _binaries, "build programs into the cache and print where they are")
    binaries.add_argument("names", nargs="*", metavar="PROGRAM", help=f"default: {' '.join(API_SERVER)}")
    every = verb("images", _images, "build the project's images and load them")
    every.add_argument(
        "names", nargs="*", metavar="IMAGE", help=f"of {' '.join(images.IMAGES)}; default: all"
    )
    every.add_argument("--no-load", action="store_true", help="build only")
    one = verb("build", _build, "build one image under a tag of its own")
    one.add_argument("image", help=f"{', '.join(images.IMAGES)} or a folder with a Containerfile")
    one.add_argument("--tag", default="", help="default: the image's name with :dev")
    one.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    one.add_argument("--load", action="store_true", help="load it afterwards")
    loading = verb("load", _load, "load images into the nodes that run pods")
    loading.add_argument("tags", nargs="+", metavar="TAG")
    verb("sizes", _sizes, "print the images' sizes in MB")
    return parser


def _up(bed: Bed, parsed: argparse.Namespace) -> int:
    clusters.up(bed)
    return 0


def _down(bed: Bed, parsed: argparse.Namespace) -> int:
    clusters.down(bed)
    return 0


def _status(bed: Bed, parsed: argparse.Namespace) -> int:
    print("\n".join(clusters.status(bed)))
    return 0 if clusters.is_healthy(bed) else 1


def _env(bed: Bed, parsed: argparse.Namespace) -> int:
    cluster = clusters.the_cluster(bed)
    if host := cluster.engine.environment.get("DOCKER_HOST"):
        print(f"export DOCKER_HOST={shlex.quote(host)}")
    print(f"export KUBECONFIG={shlex.quote(str(bed.kubeconfig))}")
    folders = [tool(name, bed.cache).parent for name in ("kubectl", "helm", "kind")]
    folders.append(cluster.engine.docker.parent)
    print(f"export PATH={':'.join(dict.fromkeys(shlex.quote(str(folder)) for folder in folders))}:$PATH")
    return 0


def _binaries(bed: Bed, parsed: argparse.Namespace) -> int:
    unknown = [name for name in parsed.names if name not in PROGRAMS]
    if unknown:
        raise BedError(f"expected programs of {', '.join(PROGRAMS)}, got {', '.join(unknown)}")
    for path in built(parsed.names or API_SERVER, bed.cache).values():
        print(path)
    return 0


def _images(bed: Bed, parsed: argparse.Namespace) -> int:
    cluster = clusters.the_cluster(bed)
    tags = images.build_all(cluster, parsed.names)
    if not parsed.no_load:
        images.load(cluster, tags)
    return 0


def _build(bed: Bed, parsed: argparse.Namespace) -> int:
    pairs = [argument.partition("=") for argument in parsed.build_arg]
    for name, equals, value in pairs:
        if not (name and equals):
            raise BedError(f"--build-arg: expected NAME=VALUE, got {name + equals + value!r}")
    cluster = clusters.the_cluster(bed)
    arguments = {name: value for name, _, value in pairs}
    tag = images.build(cluster, images.image_named(parsed.image), tag=parsed.tag, arguments=arguments)
    if parsed.load:
        images.load(cluster, [tag])
    print(tag)
    return 0


def _load(bed: Bed, parsed: argparse.Namespace) -> int:
    images.load(clusters.the_cluster(bed), parsed.tags)
    return 0


def _sizes(bed: Bed, parsed: argparse.Namespace) -> int:
    for tag, size in images.sizes(clusters.the_cluster(bed)).items():
        print(f"{tag}\t{size / 1e6:.0f} MB")
    return 0
