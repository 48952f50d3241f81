#!/usr/bin/env bash
# Everything that a release consists of: static programs, archives, .deb, .rpm, OCI images, charts, SBOM, checksums.
# The same sources and toolchain give the same bytes: no time, path or owner of this machine is in them. A test packs the same programs
# twice; hub/docs/packages.md says how to compare programs that were built twice.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/.." && pwd)
me=$(basename "$0")

fail() { printf '%s: %s\n' "$me" "$*" >&2; exit 1; }
bad() { printf '%s: %s (try --help)\n' "$me" "$*" >&2; exit 2; }
warn() { printf '%s: warning: %s\n' "$me" "$*" >&2; }
# What is done and what is left, for whoever watches; quiet elsewhere.
done_steps=0 steps=0
say() {
    done_steps=$((done_steps + 1))
    [ -t 2 ] || return 0
    printf '[%d/%d] %s\n' "$done_steps" "$steps" "$*" >&2
}

usage() {
    cat <<USAGE
usage: scripts/release.sh [--out DIR] [--arch ARCH]... [--profile NAME] [--only FORMAT,...]
       scripts/release.sh --programs ARCH=DIR [--programs ARCH=DIR]... [--out DIR] [--only FORMAT,...]

  Without --programs karmada-hub is built in release and karmada-agent with the profile "edge", for size, both static
  against musl. For each architecture this needs
    rustup target add x86_64-unknown-linux-musl (or aarch64-unknown-linux-musl), and
    a C compiler for it: cargo-zigbuild has one for both (pip install ziglang cargo-zigbuild);
    musl-gcc has one for the architecture of this machine (Debian: musl-tools).
  An architecture that cannot be built is left out with a warning, unless --arch asks for it.

  --programs ARCH=DIR  programs that are there already, for amd64 or arm64; given more than once for images of both
  --arch ARCH          build for amd64 or arm64 only (default: all that can be built here)
  --profile NAME       cargo's profile (default: release, and for the agent edge)
  --out DIR            where to put it (default: target/dist)
  --only FORMAT,...    of tar, deb, rpm, image, charts, sbom (default: all)
  --host-hub FILE      a karmada-hub that runs on this machine, for completions and manual pages (default: the one built for it)
  --ca-bundle FILE     the authorities that images bring along (default: /etc/ssl/certs/ca-certificates.crt)
  --allow-dynamic      take programs that want a dynamic linker: packages of them run where their libc is, images do not

  .deb wants dpkg-deb, .rpm wants rpmbuild; both are in Debian (dpkg, rpm). Nothing needs a Docker daemon.
  Exit codes: 0 done, 1 something failed, 2 the arguments cannot be used.
USAGE
}

out=$root/target/dist profile=release only=tar,deb,rpm,image,charts,sbom host_hub='' ca_bundle=/etc/ssl/certs/ca-certificates.crt dynamic=''
declare -a arches=()
declare -A programs=()
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --programs | --arch | --profile | --out | --only | --host-hub | --ca-bundle)
            [ $# -ge 2 ] || bad "$1 wants a value"
            set -- "$1=$2" "${@:3}"; continue ;;
        --programs=*)
            pair=${1#*=}
            [[ $pair =~ ^(amd64|arm64)=.+$ ]] || bad "--programs wants amd64=DIR or arm64=DIR, not \"$pair\""
            for program in karmada-hub karmada-agent; do
                [ -x "${pair#*=}/$program" ] || bad "--programs: ${pair#*=} has no $program"
            done
            programs[${pair%%=*}]=$(cd "${pair#*=}" && pwd) ;;
        --arch=*)
            [[ ${1#*=} =~ ^(amd64|arm64)$ ]] || bad "--arch is amd64 or arm64, not \"${1#*=}\""
            arches+=("${1#*=}") ;;
        --profile=*) profile=${1#*=} ;;
        --out=*) out=${1#*=} ;;
        --only=*) only=${1#*=} ;;
        --host-hub=*) host_hub=${1#*=} ;;
        --ca-bundle=*) ca_bundle=${1#*=} ;;
        --allow-dynamic) dynamic=yes ;;
        *) bad "unknown argument $1" ;;
    esac
    shift
done
wants() { [[ ,$only, == *,$1,* ]]; }
for format in ${only//,/ }; do
    [[ $format =~ ^(tar|deb|rpm|image|charts|sbom)$ ]] || bad "--only knows tar, deb, rpm, image, charts and sbom, not \"$format\""
    steps=$((steps + 1))
done
[ ${#programs[@]} -eq 0 ] || [ ${#arches[@]} -eq 0 ] || bad "--arch is for building; with --programs their architectures count"
asked=yes
[ ${#arches[@]} -gt 0 ] || { arches=(amd64 arm64) asked=''; }
case $(uname -m) in x86_64) host=amd64 ;; aarch64) host=arm64 ;; *) host=none ;; esac

# --- what is needed ------------------------------------------------------------------------------------------------

command -v python3 >/dev/null || fail "python3 is not installed"
! wants deb || command -v dpkg-deb >/dev/null || fail "dpkg-deb is not installed (Debian: dpkg); or leave deb out of --only"
! wants rpm || command -v rpmbuild >/dev/null || fail "rpmbuild is not installed (Debian: rpm); or leave rpm out of --only"
! wants image || [ -r "$ca_bundle" ] || fail "$ca_bundle cannot be read (Debian: ca-certificates); name another with --ca-bundle"

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
# The time of the sources, not of the build.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null) || fail "set SOURCE_DATE_EPOCH: this is no checkout of git"
fi
export SOURCE_DATE_EPOCH
revision=$(git -C "$root" rev-parse HEAD 2>/dev/null || true)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
export LC_ALL=C TZ=UTC
package() { python3 "$here/package.py" "$@"; }

# --- programs ------------------------------------------------------------------------------------------------------

target_of() { case $1 in amd64) echo x86_64-unknown-linux-musl ;; arm64) echo aarch64-unknown-linux-musl ;; esac; }
has_zig() { command -v cargo-zigbuild >/dev/null; }
missing() { # ARCH: what it takes to build for it that is not there; nothing if all is
    local target
    target=$(target_of "$1")
    if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
        echo "Rust's standard library for $target is not installed: rustup target add $target"
    elif ! has_zig && [ "$1" != "$host" ]; then
        echo "no C compiler for $target is installed: pip install ziglang cargo-zigbuild"
    elif ! has_zig && ! command -v musl-gcc >/dev/null; then
        echo "no C compiler for $target is installed: apt-get install musl-tools, or pip install ziglang cargo-zigbuild"
    fi
}
build() { # ARCH: static programs under target/TARGET/shipped
    local arch=$1 target built pair small made word=build
    target=$(target_of "$arch")
    ! has_zig || word=zigbuild
    # Paths of this machine would be in panics and line tables. Pages of arm64 have 4, 16 or 64 KiB: jemalloc, if it is ever built
    # in there, is to work with all of them.
    built=${CARGO_TARGET_DIR:-$root/target}/$target
    mkdir -p "$built/shipped"
    small=$profile
    [ "$profile" != release ] || small=edge
    for pair in "karmada-hub:$profile" "karmada-agent:$small"; do
        (cd "$root" && env CARGO_INCREMENTAL=0 JEMALLOC_SYS_WITH_LG_PAGE="$([ "$arch" = arm64 ] && echo 16 || echo 12)" \
            RUSTFLAGS="-C target-feature=+crt-static -C strip=symbols --remap-path-prefix=$root=/karmada --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo" \
            "${CARGO:-cargo}" "$word" --profile "${pair#*:}" --locked --target "$target" -p "${pair%:*}" --bin "${pair%:*}") ||
            fail "${pair%:*} for $arch cannot be built"
        made=${pair#*:}
        cp -f --remove-destination "$built/${made/#dev/debug}/${pair%:*}" "$built/shipped/"
    done
    programs[$arch]=$built/shipped
}

no_host="none of the programs runs on this machine: name a karmada-hub of this version that does with --host-hub"
if [ ${#programs[@]} -eq 0 ]; then
    # Before minutes are spent.
    [ -n "$host_hub" ] || [[ " ${arches[*]} " == *" $host "* ]] || fail "$no_host"
    for arch in "${arches[@]}"; do
        why=$(missing "$arch")
        [ -z "$why" ] || [ -z "$asked" ] || fail "$arch: $why. Or build elsewhere and use --programs"
        if [ -z "$why" ]; then build "$arch"; else warn "$arch is left out: $why"; fi
    done
    [ ${#programs[@]} -gt 0 ] || fail "no architecture can be built here; build elsewhere and use --programs"
fi
arches=()
for arch in amd64 arm64; do
    [ -n "${programs[$arch]:-}" ] || continue
    arches+=("$arch")
    for program in karmada-hub karmada-agent; do
        code=0
        found=$(package static "${programs[$arch]}/$program") || code=$?
        [ "$code" -lt 2 ] || exit 1
        [ "$found" = "$arch" ] || fail "${programs[$arch]}/$program is for $found, not $arch"
        if [ "$code" -eq 1 ]; then
            [ -n "$dynamic" ] || fail "${programs[$arch]}/$program wants a dynamic linker: build it static (see --help), or --allow-dynamic"
            warn "${programs[$arch]}/$program wants a dynamic linker: its image does not run, packages of it run where its libc is"
        fi
    done
done

mkdir -p "$out"
out=$(cd "$out" && pwd)
# What lies there of another release is none of this one's: it is in no checksums, and what fails half-way leaves it as it is.
fresh=$(mktemp -d "$out/.release.XXXXXX")
trap 'rm -rf "$work" "$fresh"' EXIT

# Completions and manual pages, of a program that runs here.
if [ -z "$host_hub" ]; then
    [ -n "${programs[$host]:-}" ] || fail "$no_host"
    host_hub=${programs[$host]}/karmada-hub
fi
texts=$work/texts
mkdir -p "$texts"/{man,bash,zsh,fish}
"$host_hub" man-pages "$texts/man" || fail "$host_hub cannot write manual pages"
for program in karmada-hub karmada-agent; do
    "$host_hub" completion bash --program "$program" >"$texts/bash/$program"
    "$host_hub" completion zsh --program "$program" >"$texts/zsh/_$program"
    "$host_hub" completion fish --program "$program" >"$texts/fish/$program.fish"
done
for page in "$texts"/man/*.1; do gzip -9n <"$page" >"$page.gz" && rm "$page"; done

# --- what a package of one program holds ---------------------------------------------------------------------------

unit_of() { [ "$1" = karmada-hub ] && echo karmada-hub.service || echo karmada-agent@.service; }
stop_of() { # PROGRAM: what stops its services before it is removed
    # disable takes no patterns: of a template it forgets all instances.
    printf "systemctl stop '%s' || true; systemctl disable %s || true" "$(unit_of "$1" | sed 's/@\.service/@*.service/')" "$(unit_of "$1")"
}
about() { [ "$1" = karmada-hub ] && echo "Hub of many Kubernetes clusters" || echo "Agent of a Kubernetes cluster for its hub"; }

layout() { # PROGRAM ARCH TO: the file system of a .deb or .rpm
    local program=$1 arch=$2 to=$3
    install -D -m 0755 "${programs[$arch]}/$program" "$to/usr/bin/$program"
    install -d "$to/usr/lib/systemd/system"
    sed 's|/usr/local/bin/|/usr/bin/|g' "$root/manifests/systemd/$(unit_of "$program")" >"$to/usr/lib/systemd/system/$(unit_of "$program")"
    install -D -m 0644 "$texts/bash/$program" "$to/usr/share/bash-completion/completions/$program"
    install -D -m 0644 "$texts/zsh/_$program" "$to/usr/share/zsh/site-functions/_$program"
    install -D -m 0644 "$texts/fish/$program.fish" "$to/usr/share/fish/vendor_completions.d/$program.fish"
    install -d "$to/usr/share/man/man1"
    install -m 0644 "$texts/man/$program".1.gz "$texts/man/$program"-*.1.gz "$to/usr/share/man/man1/"
    install -D -m 0644 "$root/LICENSE" "$to/usr/share/doc/$program/copyright"
    # What doctor and alerts refer to as hub/docs/PAGE.md#SECTION.
    install -d "$to/usr/share/doc/$program/hub"
    cp -R "$root/hub/docs" "$to/usr/share/doc/$program/hub/"
    find "$to/usr/share/doc/$program/hub" -type d -exec chmod 0755 {} + -o -type f -exec chmod 0644 {} +
    # Settings of its own; what is in there outlives the package.
    install -d -m 0755 "$to/etc/karmada"
    find "$to" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

deb() { # PROGRAM ARCH
    local program=$1 arch=$2 to=$work/deb-$1-$2 size
    layout "$program" "$arch" "$to"
    size=$(du -sk --apparent-size "$to" | cut -f1)
    mkdir -p "$to/DEBIAN"
    cat >"$to/DEBIAN/control" <<CONTROL
Package: $program
Version: $version
Architecture: $arch
Maintainer: The maintainers of the project <maintainers@localhost>
Installed-Size: $size
Section: admin
Priority: optional
Recommends: ca-certificates
Description: $(about "$program")
 One static program with its systemd unit, completions and manual pages. It is
 not started on installation: the unit says in its first lines what it needs.
CONTROL
    # A unit that runs goes on with the new program after a restart, which is the administrator's to choose.
    cat >"$to/DEBIAN/postinst" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
SCRIPT
    # Objects and keys under /var/lib are never the package's to delete.
    cat >"$to/DEBIAN/prerm" <<SCRIPT
#!/bin/sh
set -e
if [ "\$1" = remove ] && [ -d /run/systemd/system ]; then
    $(stop_of "$program")
fi
SCRIPT
    cat >"$to/DEBIAN/postrm" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
SCRIPT
    chmod 0755 "$to/DEBIAN/postinst" "$to/DEBIAN/prerm" "$to/DEBIAN/postrm"
    (cd "$to" && find . -type f ! -path './DEBIAN/*' -printf '%P\n' | sort | xargs md5sum >DEBIAN/md5sums)
    find "$to" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zgzip -z9 --build "$to" "$fresh/${program}_${version}_$arch.deb" >/dev/null
}

rpm() { # PROGRAM ARCH
    local program=$1 arch=$2 tree=$work/rpm-$1-$2 machine
    case $arch in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; esac
    layout "$program" "$arch" "$tree/root"
    cat >"$tree/$program.spec" <<SPEC
Name: $program
Version: $version
Release: 1
Summary: $(about "$program")
License: Apache-2.0
Recommends: ca-certificates
AutoReqProv: no
%description
One static program with its systemd unit, completions and manual pages. It is not started on installation: the unit says in
its first lines what it needs.
%install
cp -a "$tree/root/." "%{buildroot}/"
%post
[ ! -d /run/systemd/system ] || systemctl daemon-reload || :
%preun
if [ "\$1" = 0 ] && [ -d /run/systemd/system ]; then
    $(stop_of "$program")
fi
%postun
[ ! -d /run/systemd/system ] || systemctl daemon-reload || :
%files
%dir /etc/karmada
/usr/bin/$program
/usr/lib/systemd/system/$(unit_of "$program")
/usr/share/bash-completion/completions/$program
/usr/share/zsh/site-functions/_$program
/usr/share/fish/vendor_completions.d/$program.fish
/usr/share/man/man1/*
%license /usr/share/doc/$program/copyright
%doc /usr/share/doc/$program/hub
SPEC
    rpmbuild -bb --quiet --target "$machine-linux" --define "_topdir $tree/top" --define "_rpmdir $tree/out" \
        --define "_build_id_links none" --define "__strip /bin/true" --define "debug_package %{nil}" \
        --define "__os_install_post %{nil}" --define "_buildhost reproducible" --define "use_source_date_epoch_as_buildtime 1" \
        --define "clamp_mtime_to_source_date_epoch 1" --define "_binary_payload w9.gzdio" --define "_tmppath $tree" \
        "$tree/$program.spec" >"$work/rpm.log" 2>&1 || { cat "$work/rpm.log" >&2; fail "rpmbuild failed"; }
    mv "$tree/out/$machine/$program-$version-1.$machine.rpm" "$fresh/"
}

# --- formats -------------------------------------------------------------------------------------------------------

if wants tar; then
    say "archives"
    for arch in "${arches[@]}"; do
        name=karmada-$version-linux-$arch
        package tar "$fresh/$name.tar.gz" "$name/bin/karmada-hub=${programs[$arch]}/karmada-hub" \
            "$name/bin/karmada-agent=${programs[$arch]}/karmada-agent" "$name/LICENSE=$root/LICENSE" \
            "$name/hub/docs=$root/hub/docs" "$name/systemd=$root/manifests/systemd" "$name/man=$texts/man" "$name/completions/bash=$texts/bash" \
            "$name/completions/zsh=$texts/zsh" "$name/completions/fish=$texts/fish"
    done
    # The scripts look for ../manifests and ../VERSION.
    name=karmada-$version-manifests
    printf '%s\n' "$version" >"$work/VERSION"
    package tar "$fresh/$name.tar.gz" "$name/VERSION=$work/VERSION" "$name/LICENSE=$root/LICENSE" "$name/hub/docs=$root/hub/docs" \
        "$name/manifests=$root/manifests" "$name/scripts/deploy-agent.sh=$here/deploy-agent.sh" \
        "$name/scripts/remove-agent.sh=$here/remove-agent.sh" "$name/scripts/agent-common.sh=$here/agent-common.sh"
fi
if wants deb; then
    say "Debian packages"
    for arch in "${arches[@]}"; do deb karmada-hub "$arch"; deb karmada-agent "$arch"; done
fi
if wants rpm; then
    say "RPM packages"
    for arch in "${arches[@]}"; do rpm karmada-hub "$arch"; rpm karmada-agent "$arch"; done
fi
if wants image; then
    say "images"
    declare -a hubs=() agents=()
    for arch in "${arches[@]}"; do
        hubs+=("$arch=${programs[$arch]}/karmada-hub") agents+=("$arch=${programs[$arch]}/karmada-agent")
    done
    package image "$fresh/karmada-hub-$version.oci.tar" "${hubs[@]}" --name karmada-hub --version "$version" --revision "$revision" \
        --ca-bundle "$ca_bundle" --port 6443 --volume var/lib/karmada --cmd "serve --data-dir /var/lib/karmada/data"
    package image "$fresh/karmada-agent-$version.oci.tar" "${agents[@]}" --name karmada-agent --version "$version" --revision "$revision" \
        --ca-bundle "$ca_bundle" --port 10357 --port 8080 --volume var/lib/karmada-agent
fi
if wants charts; then
    say "charts"
    for chart in karmada-hub karmada-agent; do
        # As helm package would: what the links point to is in it.
        package tar "$fresh/$chart-$version.tgz" "$chart=$root/manifests/helm/$chart"
    done
fi
if wants sbom; then
    say "SBOM"
    (cd "$root" && cargo metadata --locked --offline --format-version 1 --filter-platform x86_64-unknown-linux-gnu) >"$work/metadata.json" ||
        fail "cargo metadata failed: cargo fetch --locked first"
    package sbom "$fresh/karmada-$version.cdx.json" --metadata "$work/metadata.json" --version "$version"
fi
package sums "$fresh"
# The sums come last, and those of before go first: whoever finds sums finds the files that they are of, even if this is interrupted.
rm -f "$out/SHA256SUMS"
for file in "$fresh"/*; do
    [ "${file##*/}" = SHA256SUMS ] || mv -f "$file" "$out/"
done
mv -f "$fresh/SHA256SUMS" "$out/"
[ ! -t 1 ] || printf 'in %s:\n' "$out"
(cd "$out" && cat SHA256SUMS)
