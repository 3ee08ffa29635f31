"""The node image of the local route: Debian, the bed's programs, and the control plane's images inside."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from bed.archives import FolderImage, write_archive
from bed.debian import SUITE, require_host_packages, root_filesystem
from bed.engines import Engine, PrivateEngine
from bed.errors import BedError
from bed.folders import fresh, remove_tree
from bed.keys import files_under, key_of, key_of_files
from bed.locks import locked
from bed.programs import IN_THE_NODE, KUBERNETES, built, program_path
from bed.shell import end_with_parent, niced, run, succeeds
from bed.steps import step
from bed.waits import wait_until

HERE = Path(__file__).resolve().parent
FILES = HERE / "node"

PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "kmod", "procps", "util-linux", "mount", "ca-certificates"),
    *("containerd", "runc", "containernetworking-plugins"),
    *("iptables", "iproute2", "ethtool", "conntrack", "socat"),
)

PLACES: Mapping[str, str] = {
    "entrypoint": "usr/local/sbin/entrypoint",
    "kubelet-prepare": "usr/local/sbin/kubelet-prepare",
    "kubelet.service": "etc/systemd/system/kubelet.service",
    "containerd.toml": "etc/containerd/config.toml",
    "pods.conflist": "etc/cni/net.d/10-pods.conflist",
    "storage.yaml": "kind/manifests/default-storage.yaml",
}
"""File of `tests/bed/node` -> where it lies in the node."""

ON_THE_NODE = ("kubeadm", "kubelet", "kubectl")

MASKED_UNITS = (
    *("systemd-sysctl.service", "systemd-remount-fs.service", "systemd-logind.service"),
    *("systemd-modules-load.service", "systemd-udevd.service", "systemd-update-utmp.service"),
    *("getty.target", "getty@.service", "console-getty.service", "serial-getty@.service"),
    *("sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-kernel-config.mount"),
    *("dev-hugepages.mount", "dev-mqueue.mount", "proc-sys-fs-binfmt_misc.automount"),
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer"),
    *("e2scrub_all.timer", "e2scrub_reap.service"),
)
"""What of systemd has no meaning in a container, or needs rights that it has not."""

PROVISIONER = "dockwork-bed/local-path-provisioner:v0.0.30"
SHELL = "dockwork-bed/shell:1"


def node_tag(cache: Path) -> str:
    """The image's name; its tag is a key of everything that goes in."""
    programs = [program_path(name, cache).parent.name for name in IN_THE_NODE]
    code = [FILES.parent / name for name in ("nodes.py", "archives.py")]
    return f"dockwork-bed/node:{key_of(SUITE, *PACKAGES, *programs, key_of_files(HERE, [*files_under(FILES), *code]))}"


def node_image(engine: Engine, cache: Path, log: Path) -> str:
    """The tag of the node image, built where the daemon has none."""
    tag = node_tag(cache)
    if engine.has_image(tag):
        return tag
    programs = built(IN_THE_NODE, cache)
    with locked(cache / "locks" / "node", "the node image"):
        if not engine.has_image(tag):
            debian = root_filesystem("node", PACKAGES, cache, log)
            with step("building the node image"):
                _build(engine, tag, debian, programs, cache / "work" / "node", log)
            _remove_older(engine, tag)
    return tag


def _remove_older(engine: Engine, tag: str) -> None:
    """Removes node images that no cluster uses: Docker itself refuses to remove the others."""
    repository = tag.partition(":")[0]
    for other in engine.run("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", repository).split():
        if other != tag:
            succeeds([engine.docker, "image", "rm", other], env=engine.environment)


def _build(
    engine: Engine, tag: str, debian: Path, programs: Mapping[str, Path], work: Path, log: Path
) -> None:
    fresh(work)
    root = work / "root"
    run(["cp", "-a", "--reflink=auto", debian, root], log=log)
    names = control_plane_images(programs["kubeadm"])
    furnish(root, programs, pause=named(names, "pause"))
    write_archive(
        work / "images.tar", [*_control_plane(names, programs, root, work), *_storage(programs, root, work)]
    )
    _preload(root, work, log)
    _import(engine, tag, root, log)
    remove_tree(work)


def control_plane_images(kubeadm: Path) -> list[str]:
    """The names that kubeadm gives the images of its control plane."""
    return run([kubeadm, "config", "images", "list", "--kubernetes-version", KUBERNETES]).split()


def named(images: Iterable[str], short: str) -> str:
    """The one of `images` that is called `short`, whatever stands before and behind."""
    for image in images:
        if re.search(rf"(^|/){short}:", image):
            return image
    raise BedError(f"kubeadm names no image {short!r}")


def furnish(root: Path, programs: Mapping[str, Path], *, pause: str) -> None:
    """Puts the programs, the files of `tests/bed/node` and systemd's settings into the node's file system."""
    for name in ON_THE_NODE:
        shutil.copy2(programs[name], root / "usr" / "bin" / name)
    texts = {"@PAUSE@": pause, "@PROVISIONER@": PROVISIONER, "@SHELL@": SHELL}
    for source, place in PLACES.items():
        target = root / place
        target.parent.mkdir(parents=True, exist_ok=True)
        text = (FILES / source).read_text()
        for mark, value in texts.items():
            text = text.replace(mark, value)
        target.write_text(text)
        target.chmod(0o755 if target.parent.name == "sbin" else 0o644)
    (root / "kind" / "version").write_text(KUBERNETES + "\n")
    units = root / "etc" / "systemd" / "system"
    _link("/lib/systemd/system/multi-user.target", units / "default.target")
    for unit in MASKED_UNITS:
        _link("/dev/null", units / unit)
    wanted = units / "multi-user.target.wants"
    wanted.mkdir(exist_ok=True)
    _link("/lib/systemd/system/containerd.service", wanted / "containerd.service")
    _link("/etc/systemd/system/kubelet.service", wanted / "kubelet.service")


def _link(target: str, link: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _control_plane(
    names: Iterable[str], programs: Mapping[str, Path], debian: Path, work: Path
) -> list[FolderImage]:
    images = []
    for tag in names:
        short = tag.rsplit("/", 1)[-1].split(":")[0]
        root = _image_root(work, short)
        match short:
            case "pause":
                shutil.copy2(programs["pause"], root / "pause")
                images.append(FolderImage(tag=tag, root=root, entrypoint=["/pause"], user="65535:65535"))
            case "coredns":
                shutil.copy2(programs["coredns"], root / "coredns")
                images.append(FolderImage(tag=tag, root=root, entrypoint=["/coredns"]))
            case _:
                shutil.copy2(programs[short], root / "usr" / "local" / "bin" / short)
                if short == "kube-proxy":
                    _add_iptables(root, debian)
                images.append(FolderImage(tag=tag, root=root))
    return images


def _storage(programs: Mapping[str, Path], debian: Path, work: Path) -> list[FolderImage]:
    """The provisioner of volumes, and the few programs with which it makes and removes their folders."""
    provisioner = _image_root(work, "local-path-provisioner")
    shutil.copy2(programs["local-path-provisioner"], provisioner / "usr" / "local" / "bin")
    shell = _image_root(work, "shell")
    for program in ("/bin/sh", "/bin/mkdir", "/bin/rm"):
        copy_with_libraries(program, debian, shell)
    return [FolderImage(tag=PROVISIONER, root=provisioner), FolderImage(tag=SHELL, root=shell)]


def _image_root(work: Path, name: str) -> Path:
    """A bare file system in Debian's layout, where /bin, /sbin and /lib are links into /usr."""
    root = work / "images" / name
    for folder in ("usr/local/bin", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc", "run"):
        (root / folder).mkdir(parents=True)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    for name_ in ("bin", "sbin", "lib", "lib64"):
        (root / name_).symlink_to(f"usr/{name_}")
    return root


def _add_iptables(root: Path, debian: Path) -> None:
    """kube-proxy calls iptables: the program, its extensions, and the libraries of both."""
    copy_with_libraries("/usr/sbin/xtables-nft-multi", debian, root)
    for family in ("iptables", "ip6tables"):
        for verb in ("", "-save", "-restore"):
            (root / "usr" / "sbin" / f"{family}{verb}").symlink_to("xtables-nft-multi")
    for extension in sorted(debian.glob("usr/lib/*/xtables/*.so")):
        copy_with_libraries(f"/{extension.relative_to(debian)}", debian, root)
    for table in ("protocols", "services"):
        if (debian / "etc" / table).is_file():
            shutil.copy2(debian / "etc" / table, root / "etc" / table)


def copy_with_libraries(file: str, debian: Path, root: Path) -> None:
    """Copies `file` of the file system `debian` into `root`, with every library that it loads."""
    said = run(["chroot", debian, "ldd", file]) if succeeds(["chroot", debian, "ldd", file]) else ""
    for place in [file, *re.findall(r"(/\S+\.so\S*)", said)]:
        target = root / place.lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2((debian / place.lstrip("/")), target)


def _preload(root: Path, work: Path, log: Path) -> None:
    """Imports the images into the node's containerd, with a containerd of the host that runs for this moment."""
    store, state = root / "var" / "lib" / "containerd", work / "containerd"
    store.mkdir(parents=True, exist_ok=True)
    state.mkdir()
    socket = state / "socket"
    (state / "config.toml").write_text(
        f'version = 2\nroot = "{store}"\nstate = "{state / "state"}"\n'
        'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
        f'[grpc]\naddress = "{socket}"\n'
    )
    ctr: list[str | Path] = ["ctr", "--address", socket, "--namespace", "k8s.io"]
    with (state / "log").open("wb") as output:
        daemon = subprocess.Popen(
            ["containerd", "--config", str(state / "config.toml")],
            stdout=output,
            stderr=output,
            preexec_fn=end_with_parent,
        )
    try:
        wait_until(lambda: succeeds([*ctr, "version"]), seconds=30, what="containerd answers")
        run(niced([*ctr, "images", "import", "--snapshotter", "overlayfs", work / "images.tar"]), log=log)
    finally:
        daemon.terminate()
        daemon.wait()


def _import(engine: Engine, tag: str, root: Path, log: Path) -> None:
    files = f"{tag}-files"
    engine.import_folder(root, files)
    context = root.parent / "context"
    context.mkdir()
    engine.run(
        *("build", "-q", "-t", tag, "--build-arg", f"FILES={files}", "-f", FILES / "Containerfile", context),
        log=log,
    )
    engine.run("image", "rm", files, log=log)


def prepare(cache: Path, log: Path) -> Engine:
    """The Debian parts of the local route: packages of the host, a running daemon, the node's file system."""
    require_host_packages(log)
    engine = PrivateEngine(cache=cache).up()
    if not engine.has_image(node_tag(cache)):
        root_filesystem("node", PACKAGES, cache, log)
    return engine
