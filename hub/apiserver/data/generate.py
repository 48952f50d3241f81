#!/usr/bin/env python3
"""Writes kinds.json and types.txt beside itself from facts about Kubernetes 1.36.

    python3 generate.py FACTS_DIR

FACTS_DIR holds two files:

    kinds.json            the served kinds as discovery lists them
    protobuf-fields.json  Go types -> fields with their json and protobuf tags

The format of types.txt is described in src/builtin/types.rs, which reads it. Only types that a served kind leads to are
kept, with package names cut short: k8s.io/api/core/v1 is core/v1, apimachinery's meta/v1 is meta, a type of the same
package is written with a leading dot.
"""

import json
import os
import re
import sys

facts, here = sys.argv[1], os.path.dirname(os.path.abspath(__file__))
kinds = json.load(open(f"{facts}/kinds.json"))
proto = json.load(open(f"{facts}/protobuf-fields.json"))
types, aliases = proto["types"], proto["aliases"]

# Packages whose path does not follow from the group.
PACKAGES = {
    "": "k8s.io/api/core/",
    "apiextensions.k8s.io": "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/",
    "apiregistration.k8s.io": "k8s.io/kube-aggregator/pkg/apis/apiregistration/",
}
SHORT = [
    ("k8s.io/apimachinery/pkg/apis/meta/v1", "meta"),
    ("k8s.io/api/", ""),
    ("k8s.io/apimachinery/pkg/", "m/"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/", ""),
    ("k8s.io/kube-aggregator/pkg/apis/", ""),
]
META = "k8s.io/apimachinery/pkg/apis/meta/v1."


def package(group, version):
    return PACKAGES.get(group, f"k8s.io/api/{group.split('.')[0]}/") + version


def write_kinds():
    rows = []
    for kind in kinds:
        row = {key: kind[key] for key in ("group", "version", "resource", "kind")}
        row["namespaced"] = kind["scope"] == "Namespaced"
        row["singular"] = kind["singular"]
        for key in ("shortNames", "categories"):
            if kind[key]:
                row[key] = kind[key]
        row["verbs"] = kind["verbs"]
        if kind["subresources"]:
            row["subresources"] = [{k: v for k, v in sub.items() if v} for sub in kind["subresources"]]
        rows.append(json.dumps(row, separators=(",", ":")))
    with open(f"{here}/kinds.json", "w") as out:
        out.write("[\n" + ",\n".join(rows) + "\n]\n")


def element(expression):
    """The named type in a Go type expression."""
    return re.sub(r"^(\*|\[\]|map\[[^\]]*\])*", "", expression)


def short_package(name):
    for prefix, short in SHORT:
        if name == prefix:
            return short
        if prefix.endswith("/") and name.startswith(prefix):
            return short + name[len(prefix):]
    return name


def short_name(name):
    head, _, tail = name.rpartition(".")
    return f"{short_package(head)}.{tail}" if head else tail


def short_expression(expression, within):
    named = element(expression)
    prefix = expression[: len(expression) - len(named)]
    prefix = re.sub(r"map\[[^\]]*\.[^\]]*\]", "map[string]", prefix)
    head, _, tail = named.rpartition(".")
    return prefix + (f".{tail}" if head and head == within else short_name(named))


def write_types():
    # What requests may hold beside served kinds: options, and what typed clients know how to write.
    roots = {
        ("meta.k8s.io", "v1", name, META + name)
        for name in ("APIGroup", "APIVersions", "CreateOptions", "DeleteOptions", "GetOptions", "ListOptions",
                     "PatchOptions", "Status", "UpdateOptions", "WatchEvent")
    }
    roots |= {
        ("", "v1", name, f"k8s.io/api/core/v1.{name}")
        for name in ("PodLogOptions", "PodStatusResult", "RangeAllocation", "SerializedReference")
    }
    for kind in kinds:
        group, version = kind["group"], kind["version"]
        roots.add((group, version, kind["kind"], f"{package(group, version)}.{kind['kind']}"))
        for sub in kind["subresources"]:
            of = (sub["group"], sub["version"]) if sub["version"] else (group, version)
            name = f"{package(*of)}.{sub['kind']}"
            if name in types:
                roots.add((*of, sub["kind"], name))
    reached, named, todo = {}, {}, [root[3] for root in roots]
    while todo:
        name = element(todo.pop())
        if name in reached or name in named:
            continue
        if name in types:
            reached[name] = types[name]
            todo.extend(field["type"] for field in types[name])
        elif name in aliases:
            named[name] = aliases[name]
            todo.append(aliases[name])
    lines = [f"kind {group or '-'} {version} {kind} {short_name(name)}" for group, version, kind, name in sorted(roots)]
    lines += [f"alias {short_name(name)} {short_expression(named[name], None)}" for name in sorted(named)]
    for name in sorted(reached, key=lambda n: n.rsplit(".", 1)):
        lines.append(f"type {short_name(name)}")
        for field in reached[name]:
            flags = "".join(flag for flag, key in (("o", "omitempty"), ("z", "omitzero"), ("i", "inline")) if field.get(key))
            ty = short_expression(field["type"], name.rpartition(".")[0])
            lines.append(f" {field['n']} {field['json'] or '-'} {ty} {field['wire']} {flags}".rstrip())
    with open(f"{here}/types.txt", "w") as out:
        out.write("\n".join(lines) + "\n")


write_kinds()
write_types()
