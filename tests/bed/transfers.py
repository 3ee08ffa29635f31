"""Moving images into a node: only the layers that the node lacks travel.

`docker save` writes whole images; containerd, given an OCI layout, takes what is missing from its own store. So the
archive that Docker wrote is rewritten as a layout in which the layers that the node has are named but not contained.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
NAME = "io.containerd.image.name"


def write_thin_layout(
    saved: Path, target: IO[bytes], present: frozenset[str], names: Mapping[str, str]
) -> list[str]:
    """Writes the images of `saved` to `target`, and returns the digests of the layers that it contains.

    saved     an archive of `docker save`
    present   digests (sha256:…) that the node's store has
    names     tag -> the full name under which the node shall know it
    """
    contained: list[str] = []
    manifests: list[dict[str, Any]] = []
    with tarfile.open(saved) as source, tarfile.open(fileobj=target, mode="w|") as layout:
        written: set[str] = set()
        for image in json.loads(_read(source, "manifest.json")):
            config = _read(source, image["Config"])
            layers = []
            # The digest of an unpacked layer is in the configuration, in the order of the layers.
            for digest, file in zip(json.loads(config)["rootfs"]["diff_ids"], image["Layers"], strict=True):
                member = _resolved(source, file)
                layers.append({"mediaType": LAYER_TYPE, "digest": digest, "size": member.size})
                if digest not in present and digest not in written:
                    _add_member(layout, source, member, digest)
                    written.add(digest)
                    contained.append(digest)
            manifest = _json(
                {
                    "schemaVersion": 2,
                    "mediaType": MANIFEST_TYPE,
                    "config": _add_blob(layout, config, CONFIG_TYPE, written),
                    "layers": layers,
                }
            )
            described = _add_blob(layout, manifest, MANIFEST_TYPE, written)
            manifests += [
                {**described, "annotations": {NAME: names[tag]}} for tag in image["RepoTags"] if tag in names
            ]
        _add(layout, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": manifests}
        _add(layout, "index.json", _json(index))
    return contained


def _resolved(source: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    """The member itself: Docker writes a layer that several images share once, and links to it from the others."""
    member = source.getmember(name)
    if member.issym():
        folder = Path(name).parent
        parts: list[str] = []
        for part in (folder / member.linkname).parts:
            if part == "..":
                parts.pop()
            else:
                parts.append(part)
        return source.getmember("/".join(parts))
    return source.getmember(member.linkname) if member.islnk() else member


def _read(source: tarfile.TarFile, name: str) -> bytes:
    file = source.extractfile(_resolved(source, name))
    assert file is not None
    return file.read()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _add_blob(layout: tarfile.TarFile, data: bytes, kind: str, written: set[str]) -> dict[str, object]:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if digest not in written:
        _add(layout, _blob(digest), data)
        written.add(digest)
    return {"mediaType": kind, "digest": digest, "size": len(data)}


def _add_member(
    layout: tarfile.TarFile, source: tarfile.TarFile, member: tarfile.TarInfo, digest: str
) -> None:
    copy = tarfile.TarInfo(_blob(digest))
    copy.size = member.size
    layout.addfile(copy, source.extractfile(member))


def _add(layout: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    layout.addfile(member, io.BytesIO(data))


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/', 1)}"
