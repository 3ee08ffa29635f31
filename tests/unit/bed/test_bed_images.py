"""Images: their archives, what travels to a node, and what their builds get."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bed.archives import FolderImage, write_archive
from bed.errors import BedError
from bed.images import IMAGES, default_registry, full_name, image_named, loaded_images, worker_nodes
from bed.nodes import named
from bed.places import ROOT
from bed.transfers import write_thin_layout
from bed.wheels import platforms, without_markers


def an_image(folder: Path, tag: str, text: str) -> FolderImage:
    root = folder / tag.replace(":", "-")
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "program").write_text(text)
    (root / "link").symlink_to("bin/program")
    return FolderImage(tag=tag, root=root, entrypoint=["/bin/program"], user="65535")


def contents(archive: Path | io.BytesIO) -> dict[str, bytes]:
    where: dict[str, Any] = {"name": archive} if isinstance(archive, Path) else {"fileobj": archive}
    with tarfile.open(**where) as file:
        members = [(member.name, file.extractfile(member)) for member in file if member.isfile()]
        return {name: data.read() for name, data in members if data is not None}


def test_an_archive_names_each_image_its_configuration_and_its_layer(tmp_path: Path) -> None:
    archive = tmp_path / "images.tar"
    write_archive(archive, [an_image(tmp_path, "one:1", "1"), an_image(tmp_path, "two:1", "2")])

    files = contents(archive)
    entries = json.loads(files["manifest.json"])
    assert [entry["RepoTags"] for entry in entries] == [["one:1"], ["two:1"]]
    for entry in entries:
        config = json.loads(files[entry["Config"]])
        (layer,) = entry["Layers"]
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(files[layer]).hexdigest()}"]
        assert config["config"]["Entrypoint"] == ["/bin/program"]
        assert config["config"]["User"] == "65535"
    with tarfile.open(fileobj=io.BytesIO(files[entries[0]["Layers"][0]])) as layer_file:
        assert layer_file.getnames() == ["bin", "bin/program", "link"]
        assert {member.uid for member in layer_file} == {0}


def test_the_same_files_give_the_same_archive(tmp_path: Path) -> None:
    image = an_image(tmp_path, "one:1", "1")
    write_archive(tmp_path / "a.tar", [image])
    (image.root / "bin" / "program").touch()
    write_archive(tmp_path / "b.tar", [image])
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def a_saved_archive(target: Path) -> dict[str, str]:
    """Two images that share a layer, as `docker save` writes them; returns the digests of the layers."""
    layers = {name: f"layer {name}".encode() for name in ("base", "app", "other")}
    digests = {name: f"sha256:{hashlib.sha256(data).hexdigest()}" for name, data in layers.items()}
    with tarfile.open(target, "w") as archive:

        def add(name: str, data: bytes) -> None:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))

        manifest = []
        for tag, own in (("one:dev", "app"), ("two:dev", "other")):
            config = json.dumps({"rootfs": {"diff_ids": [digests["base"], digests[own]]}}).encode()
            add(f"{own}.json", config)
            add(f"{own}/layer.tar", layers[own])
            if own == "app":
                add("base1/layer.tar", layers["base"])
                base = "base1/layer.tar"
            else:
                link = tarfile.TarInfo("base2/layer.tar")
                link.type, link.linkname = tarfile.SYMTYPE, "../base1/layer.tar"
                archive.addfile(link)
                base = "base2/layer.tar"
            layer_files = [base, f"{own}/layer.tar"]
            manifest.append({"Config": f"{own}.json", "RepoTags": [tag], "Layers": layer_files})
        add("manifest.json", json.dumps(manifest).encode())
    return digests


def test_only_the_layers_that_a_node_lacks_are_in_what_it_gets(tmp_path: Path) -> None:
    saved = tmp_path / "saved.tar"
    digests = a_saved_archive(saved)
    target = io.BytesIO()
    names = {"one:dev": "r/library/one:dev", "two:dev": "r/library/two:dev"}

    contained = write_thin_layout(saved, target, frozenset({digests["base"]}), names)

    assert contained == [digests["app"], digests["other"]]
    target.seek(0)
    files = contents(target)
    index = json.loads(files["index.json"])
    assert [m["annotations"]["io.containerd.image.name"] for m in index["manifests"]] == list(names.values())
    for described, own in zip(index["manifests"], ("app", "other"), strict=True):
        manifest = json.loads(files["blobs/" + described["digest"].replace(":", "/")])
        assert [layer["digest"] for layer in manifest["layers"]] == [digests["base"], digests[own]]
        assert manifest["layers"][0]["size"] == len(b"layer base")
        config = files["blobs/" + manifest["config"]["digest"].replace(":", "/")]
        assert json.loads(config)["rootfs"]["diff_ids"] == [digests["base"], digests[own]]
    for name, data in files.items():
        if name.startswith("blobs/sha256/"):
            assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"
    assert "blobs/" + digests["base"].replace(":", "/") not in files


def test_a_node_without_anything_gets_each_layer_once(tmp_path: Path) -> None:
    saved = tmp_path / "saved.tar"
    digests = a_saved_archive(saved)
    names = {"one:dev": "r/one:dev", "two:dev": "r/two:dev"}
    contained = write_thin_layout(saved, io.BytesIO(), frozenset(), names)
    assert sorted(contained) == sorted(digests.values())


LISTING = """\
REF TYPE DIGEST SIZE PLATFORMS LABELS
registry.example/library/dockwork-runtime:dev application/x sha256:1 197.4 MiB linux/amd64 \
dockwork.dev/id=sha256:aa,io.cri-containerd.image=managed
registry.example/dockwork-bed/shell:1 application/x sha256:2 3.0 MiB linux/amd64 io.cri-containerd.image=managed
sha256:aa application/x sha256:1 197.4 MiB linux/amd64 io.cri-containerd.image=managed
"""


def test_what_a_node_has_is_read_with_our_label() -> None:
    assert loaded_images(LISTING) == {
        "dockwork-runtime:dev": ("registry.example/library/dockwork-runtime:dev", "sha256:aa"),
        "dockwork-bed/shell:1": ("registry.example/dockwork-bed/shell:1", ""),
        "sha256:aa": ("sha256:aa", ""),
    }


def test_a_full_name_is_the_one_that_kubernetes_looks_for() -> None:
    registry = default_registry("https://index.registry.example/v1/")
    assert registry == "registry.example"
    assert full_name("dockwork-runtime:dev", registry) == "registry.example/library/dockwork-runtime:dev"
    assert full_name("dockwork-bed/shell:1", registry) == "registry.example/dockwork-bed/shell:1"


def test_images_go_to_the_nodes_that_run_pods() -> None:
    assert worker_nodes(["b-worker2", "b-control-plane", "b-worker"]) == ["b-worker", "b-worker2"]
    assert worker_nodes(["b-control-plane"]) == ["b-control-plane"]


def test_every_image_has_a_containerfile_that_takes_a_base_and_ends_without_root() -> None:
    for image in IMAGES.values():
        text = (ROOT / image.folder / "Containerfile").read_text()
        users = [line.split()[1] for line in text.splitlines() if line.startswith("USER ")]
        assert "ARG BASE=" in text, image.name
        assert not users or users[-1] == "65532:65532", image.name
        assert users or image.base, image.name


def test_an_image_is_known_by_both_of_its_names_and_any_folder_can_be_one(tmp_path: Path) -> None:
    assert image_named("redis") is image_named("dockwork-redis") is IMAGES["redis"]
    (tmp_path / "Containerfile").write_text("ARG BASE=x\nFROM ${BASE}\n")
    own = image_named(str(tmp_path))
    assert (own.name, own.base, own.has_folder) == (tmp_path.name, "dockwork-runtime", True)
    with pytest.raises(BedError, match="expected one of runtime, operator, redis, thumbnails or a folder"):
        image_named("nothing")


LOCK = """\
async-timeout==5.0.1 ; python_full_version < '3.11.3' \\
    --hash=sha256:1
    # via redis
colorama==0.4.6 ; sys_platform == 'win32' \\
    --hash=sha256:2 \\
    --hash=sha256:3
    # via click
uvloop==0.23.0 ; platform_python_implementation == 'CPython' and sys_platform != 'win32' \\
    --hash=sha256:4
click==8.5.1 \\
    --hash=sha256:5
"""


def test_wheels_for_the_images_python_are_fetched_whatever_python_fetches_them() -> None:
    assert without_markers(LOCK) == (
        "async-timeout==5.0.1 \\\n    --hash=sha256:1\n    # via redis\n"
        "uvloop==0.23.0 \\\n    --hash=sha256:4\n"
        "click==8.5.1 \\\n    --hash=sha256:5\n"
    )


def test_the_real_locks_lose_nothing_but_markers() -> None:
    for lock in (ROOT / "requirements").glob("*.lock"):
        text = without_markers(lock.read_text())
        assert " ; " not in text
        assert "colorama" not in text
        assert text.count("--hash=") > 0


def test_wheel_platforms_start_with_the_newest_glibc_that_fits() -> None:
    assert platforms("x86_64")[0] == "manylinux_2_36_x86_64"
    assert {"manylinux2014_x86_64", "linux_x86_64"} <= set(platforms("x86_64"))


def test_a_control_plane_image_is_found_by_its_short_name() -> None:
    images = ["r.example/kube-proxy:v1", "r.example/pause:3.10", "r.example/coredns/coredns:v1"]
    assert named(images, "pause") == "r.example/pause:3.10"
    with pytest.raises(BedError, match="kubeadm names no image 'etcd'"):
        named(images, "etcd")
