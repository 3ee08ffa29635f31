"""The project's images: built from their Containerfiles, and loaded into the bed's nodes."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bed.clusters import Cluster
from bed.debian import root_filesystem
from bed.engines import Engine
from bed.errors import BedError
from bed.locks import locked
from bed.places import ROOT
from bed.redis_debian import redis_packages
from bed.routes import Route
from bed.shell import niced, run
from bed.steps import say, step
from bed.transfers import write_thin_layout
from bed.wheels import locked_wheels, project_wheel

BASE_PACKAGES = ("python3-minimal", "python3-venv", "ca-certificates", "tzdata")
TAG = "dev"
"""The tag of what is built here. There is no registry behind it, so it is never pulled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """One image of the project.

    folder      where its Containerfile lies, below the checkout
    lock        the requirements whose wheels it gets, or ""
    base        the image of ours that it is built on, or "" for the base image
    has_app     whether it gets the project's wheel
    has_folder  whether the folder's other files are in the context too
    has_redis   whether it gets Redis's packages
    """

    name: str
    folder: str
    lock: str = ""
    base: str = ""
    has_app: bool = False
    has_folder: bool = False
    has_redis: bool = False

    @property
    def tag(self) -> str:
        return f"{self.name}:{TAG}"


IMAGES: dict[str, Image] = {
    image.name.removeprefix("dockwork-"): image
    for image in (
        Image(name="dockwork-runtime", folder="images/runtime", lock="runtime", has_app=True),
        Image(name="dockwork-operator", folder="images/operator", lock="operator", has_app=True),
        Image(name="dockwork-redis", folder="images/redis", has_redis=True),
        Image(
            name="dockwork-thumbnails",
            folder="examples/thumbnails",
            lock="thumbnails",
            base="dockwork-runtime",
            has_folder=True,
        ),
    )
}


def image_named(name: str) -> Image:
    """The image of that name, with or without `dockwork-`; or one made from any folder with a Containerfile."""
    image = IMAGES.get(name.removeprefix("dockwork-"))
    if image is not None:
        return image
    folder = Path(name).absolute()
    if (folder / "Containerfile").is_file():
        return Image(name=folder.name, folder=str(folder), base="dockwork-runtime", has_folder=True)
    raise BedError(
        f"expected one of {', '.join(IMAGES)} or a folder with a Containerfile, got {name!r}",
        remedy="python3 tests/bed build --help",
    )


def build(
    cluster: Cluster,
    image: Image,
    *,
    tag: str = "",
    arguments: Mapping[str, str] | None = None,
    wheel: Path | None = None,
) -> str:
    """Builds `image` and returns its tag. What did not change comes from Docker's layers.

    wheel   the project's wheel, if it was built before for several images
    """
    tag = tag or image.tag
    if not (ROOT / image.folder / "Containerfile").is_file():
        raise BedError(f"{image.folder}/Containerfile is missing", remedy="build another image")
    with locked(cluster.bed.cache / "locks" / "images", "the images"), step(f"image {tag}"):
        context = _context(cluster, image, wheel)
        given = {**base_argument(cluster, image), **(arguments or {})}
        words = [word for name, value in given.items() for word in ("--build-arg", f"{name}={value}")]
        network = ["--network", "none"] if cluster.route is Route.LOCAL else []
        command: list[str | Path] = ["build", "-q", "-t", tag, *network, *words]
        command += ["-f", ROOT / image.folder / "Containerfile", context]
        run(niced([cluster.engine.docker, *command]), env=cluster.engine.environment, log=cluster.log)
        shutil.rmtree(context)
    return tag


def base_argument(cluster: Cluster, image: Image) -> dict[str, str]:
    """The build argument BASE; none where the Containerfile's own default, a public image, can be had."""
    if image.base:
        return {"BASE": f"{image.base}:{TAG}"}
    if cluster.route is Route.PUBLIC:
        return {}
    return {"BASE": base_image(cluster.engine, cluster.bed.cache, cluster.log)}


def base_image(engine: Engine, cache: Path, log: Path) -> str:
    """The tag of the base image: Debian with Python. Imported where the daemon has none."""
    root = root_filesystem("base", BASE_PACKAGES, cache, log)
    tag = f"dockwork-bed/base:{root.name.rsplit('-', 1)[-1]}"
    if not engine.has_image(tag):
        with step("importing the base image"):
            engine.import_folder(root, tag)
    return tag


def _context(cluster: Cluster, image: Image, wheel: Path | None) -> Path:
    """A folder with what the Containerfile copies, put together from the cache and the checkout."""
    bed = cluster.bed
    context = bed.folder / "contexts" / f"{image.name}-{os.getpid()}"
    if context.exists():
        shutil.rmtree(context)
    if image.has_folder:
        shutil.copytree(ROOT / image.folder, context, ignore=shutil.ignore_patterns("__pycache__"))
    context.mkdir(parents=True, exist_ok=True)
    if image.lock:
        lock = ROOT / "requirements" / f"{image.lock}.lock"
        wheels = locked_wheels(lock, bed.cache, cluster.log)
        shutil.copytree(wheels, context / "wheels", copy_function=os.link)
        shutil.copy2(lock, context / "requirements.txt")
    if image.has_app:
        if wheel is None:
            project_wheel(context / "app", cluster.log)
        else:
            (context / "app").mkdir()
            shutil.copy2(wheel, context / "app")
    if image.has_redis:
        packages = redis_packages(cluster.route, BASE_PACKAGES, bed.cache, cluster.log)
        if packages is None:
            (context / "packages").mkdir()
        else:
            shutil.copytree(packages, context / "packages", copy_function=os.link)
    return context


def build_all(cluster: Cluster, names: Sequence[str] = ()) -> list[str]:
    """Builds the named images, by default all whose Containerfile is there, and returns their tags."""
    chosen = [image_named(name) for name in names] or [
        image for image in IMAGES.values() if (ROOT / image.folder / "Containerfile").is_file()
    ]
    with TemporaryDirectory(dir=cluster.bed.folder) as folder:
        wheel = None
        if any(image.has_app for image in chosen):
            with step("the project's wheel"):
                wheel = project_wheel(Path(folder) / "wheel", cluster.log)
        return [build(cluster, image, wheel=wheel) for image in chosen]


def load(cluster: Cluster, tags: Sequence[str]) -> None:
    """Brings the images `tags` onto every node that runs pods, where it does not have them yet."""
    identities = {tag: cluster.engine.run("image", "inspect", "-f", "{{.Id}}", tag).strip() for tag in tags}
    nodes = [Node(cluster=cluster, name=name) for name in worker_nodes(list(cluster.nodes()))]
    lacking = {node.name: node.lacks(identities) for node in nodes}
    wanted = [tag for tag in tags if any(tag in those for those in lacking.values())]
    if not wanted:
        say(f"bed: the nodes have {', '.join(tags)} already")
        return
    archive = cluster.bed.folder / f"images-{os.getpid()}.tar"
    with step(f"loading {', '.join(wanted)}"):
        try:
            cluster.engine.run("save", "-o", archive, *wanted, log=cluster.log)
            registry = default_registry(cluster.engine.run("info", "-f", "{{.IndexServerAddress}}").strip())
            carried = {tag: identities[tag] for tag in wanted}
            _on_each(
                [node for node in nodes if lacking[node.name]],
                lambda node: node.take(archive, carried, registry),
            )
        finally:
            archive.unlink(missing_ok=True)


def worker_nodes(names: Sequence[str]) -> list[str]:
    """The nodes on which pods run: without the control plane, unless it is alone."""
    workers = [name for name in names if not name.endswith("-control-plane")]
    return sorted(workers or names)


def _on_each(nodes: Sequence["Node"], act: Callable[["Node"], None]) -> None:
    with ThreadPoolExecutor(max_workers=max(1, len(nodes))) as pool:
        for done in [pool.submit(act, node) for node in nodes]:
            done.result()


LABEL = "dockwork.dev/id"
"""A label on an image in a node's containerd: the identity of the Docker image that it was loaded from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A node's containerd, spoken to through its container."""

    cluster: Cluster
    name: str

    def ctr(self, *words: str) -> str:
        return self.cluster.engine.run("exec", self.name, "ctr", "-n", "k8s.io", *words)

    def lacks(self, identities: Mapping[str, str]) -> list[str]:
        """The tags that this node does not have, or has from another build."""
        there = loaded_images(self.ctr("images", "ls"))
        return [tag for tag, identity in identities.items() if there.get(tag, ("", ""))[1] != identity]

    def take(self, archive: Path, identities: Mapping[str, str], registry: str) -> None:
        """Imports the images of `archive`, then marks each with where it came from."""
        present = frozenset(self.ctr("content", "ls", "-q").split())
        names = {tag: full_name(tag, registry) for tag in identities}
        words = ("exec", "-i", self.name, "ctr", "-n", "k8s.io", "images", "import")
        process = self.cluster.engine.popen(
            *words, "--snapshotter", "overlayfs", "-", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            with process.stdin as pipe:
                write_thin_layout(archive, pipe, present, names)
        except BrokenPipeError:
            pass  # its exit code and its words, below, say why it stopped reading
        with process.stderr as errors:
            said = errors.read().decode(errors="replace").strip()
        if process.wait() != 0:
            raise BedError(f"{self.name}: {said}", remedy="docker ps; df")
        there = loaded_images(self.ctr("images", "ls"))
        for tag, identity in identities.items():
            if tag in there:
                self.ctr("images", "label", there[tag][0], f"{LABEL}={identity}")


def full_name(tag: str, registry: str) -> str:
    """The name under which Kubernetes looks for the image `tag`: with the registry that Docker takes by default."""
    repository = tag.partition(":")[0]
    return f"{registry}/{tag}" if "/" in repository else f"{registry}/library/{tag}"


def default_registry(index_address: str) -> str:
    """The name of the default registry, from the address of its index that `docker info` prints."""
    host = re.sub(r"^\w+://", "", index_address).partition("/")[0]
    return host.removeprefix("index.")


def loaded_images(listing: str) -> dict[str, tuple[str, str]]:
    """Tag -> full reference and our label, from what `ctr images ls` prints.

    A tag without a registry gets one, and `library/`, in front when it is loaded: both are left out.
    """
    images = {}
    for line in listing.splitlines()[1:]:
        reference = line.split()[0]
        identity = line.partition(f"{LABEL}=")[2].split(",")[0].split(" ")[0].strip()
        tag = reference.partition("/")[2].removeprefix("library/") or reference
        images[tag] = (reference, identity)
    return images


def sizes(cluster: Cluster) -> dict[str, int]:
    """The images' sizes in bytes, as Docker counts them: with the layers of the base."""
    found = {}
    for image in IMAGES.values():
        if cluster.engine.has_image(image.tag):
            said = json.loads(cluster.engine.run("image", "inspect", image.tag))
            found[image.tag] = int(said[0]["Size"])
    return found
