#!/usr/bin/env python3
"""Packages that are the same bytes wherever they are made of the same files. Called by scripts/release.sh.

    package.py tar OUT.tar.gz NAME=PATH...            a sorted archive; a folder is taken whole, links as what they point to
    package.py image OUT.tar --name N --version V ARCH=PROGRAM...
                                                      an OCI image layout for one or more architectures, without a daemon
    package.py sbom OUT.json --metadata FILE --version V
                                                      CycloneDX of what `cargo metadata` says is built in
    package.py static PROGRAM                         exit 0 if it runs without a dynamic linker, 1 if not; prints its architecture
    package.py sums FOLDER                            SHA256SUMS of what is there

Times are $SOURCE_DATE_EPOCH, owners root. Only the standard library of Python 3.8 and newer is used.
"""
import argparse
import gzip
import hashlib
import io
import json
import os
import stat
import struct
import sys
import tarfile
import uuid

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
# The user of the images: nobody in particular, as distroless has it.
USER = 65532
MACHINES = {62: "amd64", 183: "arm64"}
# C sources that crates bring along and Cargo knows nothing of: by crate their name, version and licence. Where there is no version
# the crate's own says it, behind a "+", or nobody does.
VENDORED = {
    "lua-src": ("lua", "5.1.5", "MIT"),
    "tikv-jemalloc-sys": ("jemalloc", "", "BSD-2-Clause"),
    "ring": ("boringssl-subset", "", "ISC AND OpenSSL"),
}


class Wrong(Exception):
    pass


def member(name, mode, data=None, owner=0, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.mode, info.mtime, info.type = mode, EPOCH, kind
    info.uid = info.gid = owner
    info.uname = info.gname = ""
    info.size = len(data) if data is not None else 0
    return info, data


def archive(members):
    """A tar of members, in the order of their names, with the folders that they are in."""
    named = {}
    for info, data in members:
        if info.name in named:
            raise Wrong(f"{info.name} twice")
        named[info.name] = (info, data)
    for name in list(named):
        parts = name.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            named.setdefault(folder, member(folder, 0o755, kind=tarfile.DIRTYPE))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(named):
            info, data = named[name]
            tar.addfile(info, io.BytesIO(data) if data is not None else None)
    return out.getvalue()


def compressed(data):
    out = io.BytesIO()
    # No name and no time in it.
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, compresslevel=9, mtime=0) as file:
        file.write(data)
    return out.getvalue()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def taken(name, path):
    """The members that a file or a folder becomes."""
    if os.path.isdir(path):
        for entry in sorted(os.listdir(path)):
            yield from taken(f"{name}/{entry}", os.path.join(path, entry))
        return
    mode = 0o755 if os.stat(path).st_mode & stat.S_IXUSR else 0o644
    yield member(name, mode, read(path))


def write(path, data):
    draft = f"{path}.new"
    with open(draft, "wb") as file:
        file.write(data)
    os.replace(draft, path)


def tar(args):
    members = []
    for pair in args.members:
        name, _, path = pair.partition("=")
        if not path:
            raise Wrong(f"{pair}: wants NAME=PATH")
        members.extend(taken(name, path))
    write(args.out, compressed(archive(members)))


def elf(path):
    """The architecture of a program, and whether it wants a dynamic linker."""
    data = read(path)
    if data[:6] != b"\x7fELF\x02\x01":
        raise Wrong(f"{path} is no 64-bit little-endian ELF program")
    (machine,) = struct.unpack_from("<H", data, 18)
    (offset,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    kinds = [struct.unpack_from("<I", data, offset + i * size)[0] for i in range(count)]
    if machine not in MACHINES:
        raise Wrong(f"{path} is for the machine {machine}; known are {MACHINES}")
    return MACHINES[machine], 3 in kinds  # PT_INTERP


def static(args):
    machine, dynamic = elf(args.program)
    print(machine)
    return 1 if dynamic else 0


def image(args):
    blobs = {}

    def blob(data):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"digest": f"sha256:{digest}", "size": len(data)}

    def document(value):
        return blob(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())

    created = timestamp()
    labels = {
        "org.opencontainers.image.title": args.name,
        "org.opencontainers.image.version": args.version,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.created": created,
    }
    if args.revision:
        labels["org.opencontainers.image.revision"] = args.revision
    manifests = []
    for pair in sorted(args.programs):
        arch, _, program = pair.partition("=")
        machine, _ = elf(program)
        if machine != arch:
            raise Wrong(f"{program} is for {machine}, not {arch}")
        passwd = f"root:x:0:0::/:/sbin/nologin\nnonroot:x:{USER}:{USER}::/:/sbin/nologin\n"
        group = f"root:x:0:\nnonroot:x:{USER}:\n"
        members = [
            member(f"bin/{args.name}", 0o755, read(program)),
            member("etc/ssl/certs/ca-certificates.crt", 0o644, read(args.ca_bundle)),
            member("etc/passwd", 0o644, passwd.encode()),
            member("etc/group", 0o644, group.encode()),
        ]
        # What a volume that is mounted there takes its owner from.
        members += [member(path, 0o700, owner=USER, kind=tarfile.DIRTYPE) for path in args.volume]
        members += [member("tmp", 0o1777, kind=tarfile.DIRTYPE)]
        layer = archive(members)
        packed = blob(compressed(layer))
        config = {
            "User": f"{USER}:{USER}",
            "Entrypoint": [f"/bin/{args.name}"],
            "Env": ["SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
            "Labels": labels,
            "WorkingDir": "/",
        }
        if args.cmd:
            config["Cmd"] = args.cmd.split(" ")
        if args.port:
            config["ExposedPorts"] = {f"{port}/tcp": {} for port in args.port}
        if args.volume:
            config["Volumes"] = {f"/{path}": {} for path in args.volume}
        described = document({
            "architecture": arch,
            "os": "linux",
            "created": created,
            "config": config,
            # Of the layer before it was compressed.
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
            "history": [{"created": created, "created_by": "scripts/release.sh"}],
        })
        manifest = document({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **described},
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", **packed}],
            "annotations": labels,
        })
        platform = {"architecture": arch, "os": "linux"}
        manifests.append({"mediaType": "application/vnd.oci.image.manifest.v1+json", **manifest, "platform": platform})
    # By the second one containerd names what it imports: as a Pod names an image without a registry.
    name = {
        "org.opencontainers.image.ref.name": args.version,
        "io.containerd.image.name": f"docker.io/library/{args.name}:{args.version}",
    }
    if len(manifests) == 1:
        top = {**manifests[0], "annotations": name}
    else:
        index = document({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": manifests,
            "annotations": labels,
        })
        top = {"mediaType": "application/vnd.oci.image.index.v1+json", **index, "annotations": name}
    files = [
        member("oci-layout", 0o644, b'{"imageLayoutVersion":"1.0.0"}'),
        member("index.json", 0o644, json.dumps({"schemaVersion": 2, "manifests": [top]}, sort_keys=True).encode()),
    ]
    files += [member(f"blobs/sha256/{digest}", 0o644, data) for digest, data in blobs.items()]
    write(args.out, archive(files))


def timestamp():
    import datetime

    return datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def sbom(args):
    metadata = json.loads(read(args.metadata))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    roots = [package["id"] for package in metadata["packages"] if package["name"] in ("karmada-hub", "karmada-agent")]

    # What is built in, and what builds it; nothing that only tests need.
    def needs(identity):
        for dependency in nodes[identity]["deps"]:
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
                yield dependency["pkg"]

    seen, waiting = set(), list(roots)
    while waiting:
        identity = waiting.pop()
        if identity not in seen:
            seen.add(identity)
            waiting.extend(needs(identity))

    def purl(package):
        return f"pkg:cargo/{package['name']}@{package['version']}"

    components, dependencies = [], []
    for identity in sorted(seen, key=lambda identity: (packages[identity]["name"], packages[identity]["version"])):
        package = packages[identity]
        component = {
            "type": "application" if identity in roots else "library",
            "bom-ref": purl(package),
            "name": package["name"],
            "version": package["version"],
            "purl": purl(package),
        }
        if package.get("license"):
            component["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        if package.get("repository"):
            component["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        components.append(component)
        inside = [purl(packages[need]) for need in needs(identity)]
        if package["name"] in VENDORED:
            name, version, terms = VENDORED[package["name"]]
            version = version or package["version"].partition("+")[2].partition("-")[0]
            reference = f"pkg:generic/{name}" + (f"@{version}" if version else "")
            inside.append(reference)
            components.append({
                "type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference,
                "licenses": [{"expression": terms}], "description": f"C sources in the crate {package['name']}",
            })
        dependencies.append({"ref": purl(package), "dependsOn": sorted(set(inside))})
    text = json.dumps([components, dependencies], sort_keys=True)
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        # The same for the same content.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, text)}",
        "version": 1,
        "metadata": {
            "timestamp": timestamp(),
            "component": {"type": "application", "bom-ref": "karmada", "name": "karmada", "version": args.version},
        },
        "components": components,
        "dependencies": [{"ref": "karmada", "dependsOn": sorted(purl(packages[root]) for root in roots)}] + dependencies,
    }
    write(args.out, (json.dumps(bom, indent=1, sort_keys=True) + "\n").encode())


def sums(args):
    lines = []
    for name in sorted(os.listdir(args.folder)):
        path = os.path.join(args.folder, name)
        if os.path.isfile(path) and name != "SHA256SUMS":
            lines.append(f"{hashlib.sha256(read(path)).hexdigest()}  {name}\n")
    write(os.path.join(args.folder, "SHA256SUMS"), "".join(lines).encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)

    def command(name, run, *arguments):
        sub = commands.add_parser(name)
        sub.set_defaults(run=run)
        for names, options in arguments:
            sub.add_argument(*names, **options)

    command("tar", tar, (["out"], {}), (["members"], {"nargs": "+"}))
    command(
        "image", image, (["out"], {}), (["programs"], {"nargs": "+"}), (["--name"], {"required": True}),
        (["--version"], {"required": True}), (["--revision"], {"default": ""}), (["--ca-bundle"], {"required": True}),
        (["--cmd"], {"default": ""}), (["--port"], {"action": "append", "default": []}),
        (["--volume"], {"action": "append", "default": []}),
    )
    command("sbom", sbom, (["out"], {}), (["--metadata"], {"required": True}), (["--version"], {"required": True}))
    command("static", static, (["program"], {}))
    command("sums", sums, (["folder"], {}))
    args = parser.parse_args()
    try:
        return args.run(args) or 0
    except (Wrong, OSError) as error:
        print(f"package.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
