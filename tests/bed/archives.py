"""Container images written as an archive, without a daemon: a folder becomes an image of one layer."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderImage:
    """An image whose only layer is `root`; everything in it belongs to uid 0."""

    tag: str
    root: Path
    entrypoint: Sequence[str] = ()
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": PATH})

    def config(self, layer_digest: str) -> bytes:
        """The image's configuration, as the OCI image specification has it."""
        settings: dict[str, object] = {"Env": [f"{name}={value}" for name, value in self.environment.items()]}
        if self.entrypoint:
            settings["Entrypoint"] = list(self.entrypoint)
        if self.user:
            settings["User"] = self.user
        return json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": settings,
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
            }
        ).encode()


def write_archive(target: Path, images: Sequence[FolderImage]) -> None:
    """Writes `images` in the format of `docker save`, which containerd imports too."""
    manifest = []
    with tarfile.open(target, "w") as archive:
        for number, image in enumerate(images):
            layer = target.with_name(f"{target.name}.layer")
            digest = _write_layer(layer, image.root)
            config = image.config(digest)
            config_name = f"{hashlib.sha256(config).hexdigest()}.json"
            layer_name = f"{number}-{digest}/layer.tar"
            member = tarfile.TarInfo(layer_name)
            member.size = layer.stat().st_size
            with layer.open("rb") as file:
                archive.addfile(member, file)
            layer.unlink()
            _add_bytes(archive, config_name, config)
            manifest.append({"Config": config_name, "RepoTags": [image.tag], "Layers": [layer_name]})
        _add_bytes(archive, "manifest.json", json.dumps(manifest).encode())


def _write_layer(target: Path, root: Path) -> str:
    """Writes `root` as a tar file; returns its SHA-256. Owners and times are left out: same files, same digest."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = 0
        return member

    with tarfile.open(target, "w") as layer:
        for path in sorted(root.iterdir()):
            layer.add(path, path.name, filter=plain)
    with target.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add_bytes(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))
