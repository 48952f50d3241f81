#!/usr/bin/env python3
"""Writes openapi.txt and descriptions.gz beside itself: what the published schemas of built-in types say beyond names and
types of fields.

    python3 openapi.py FACTS_DIR K8S_OPENAPI_SRC

FACTS_DIR holds merge-keys.json (how lists and maps merge) and protobuf-fields.json; K8S_OPENAPI_SRC is the folder of one
version in the source of the crate k8s-openapi (…/src/v1_36), whose structs say which fields are required and what all of
it is for, in Kubernetes' own words (Apache 2.0). The formats are described in src/openapi/facts.rs and descriptions.rs,
which read them; only types of types.txt and what they are made of are kept.
"""

import gzip
import json
import os
import re
import sys

facts, crate, here = sys.argv[1], sys.argv[2], os.path.dirname(os.path.abspath(__file__))
merge = json.load(open(f"{facts}/merge-keys.json"))

# JSON names of every type's fields, those of inlined types included.
fields, inline, current = {}, {}, None
for line in open(f"{here}/types.txt"):
    words = line.rstrip("\n").split(" ")
    if words[0] == "type":
        current = words[1]
        fields[current], inline[current] = [], []
    elif words[0] == "":
        _, _, name, ty, _, *flags = words
        if flags and "i" in flags[0]:
            inline[current].append(current.rpartition(".")[0] + ty if ty.startswith(".") else ty)
        else:
            fields[current].append(name)


def all_fields(name):
    return fields[name] + [field for inner in inline[name] for field in all_fields(inner.lstrip("*"))]


def short(name):
    for prefix, to in (("io.k8s.api.", ""), ("io.k8s.apimachinery.pkg.apis.meta.v1.", "meta."),
                       ("io.k8s.apiextensions-apiserver.pkg.apis.", ""), ("io.k8s.kube-aggregator.pkg.apis.", "")):
        if name.startswith(prefix):
            rest = name[len(prefix):]
            return to + rest if to else rest.replace(".", "/", 1)
    return name


lines = set()
for row in merge["lists"]:
    name, field = short(row["type"]), row["field"]
    if name not in fields:
        continue
    assert field in all_fields(name), (name, field)
    if "mapType" in row:
        lines.add(f"map {name} {field} {row['mapType']}")
        continue
    keys = ",".join(row.get("listMapKeys", [])) or "-"
    lines.add(" ".join(["list", name, field, row.get("listType", "-"), keys, row.get("patchStrategy", "-"),
                        row.get("patchMergeKey", "-")]))
lines |= {f"atomic {short(name)}" for name in merge["atomicStructs"] if short(name) in fields}
for row in merge["defaults"]:
    lines.add(f"default {short(row['type'])} {row['field']} {row['default']}")


# Types that JSON shows as a value of their own.
LEAVES = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity", "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
    *(f"io.k8s.apimachinery.pkg.apis.meta.v1.{name}" for name in ("Time", "MicroTime", "FieldsV1", "Patch")),
    *(f"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{name}"
      for name in ("JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray")),
}
described = []


def comment(lines, indent):
    """The text of a doc comment."""
    text = "\n".join(line[len(indent) + 3:].removeprefix(" ") for line in lines.splitlines())
    return re.sub(r"\\([^\w\s])", r"\1", text)


def describe(name, field, text):
    if text:
        escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
        described.append(f"{name} {field} {escaped}")


def plain(name):
    return re.sub(r"[-_$]", "", name).lower()


for folder, _, files in os.walk(crate):
    for file in files:
        text = open(os.path.join(folder, file)).read()
        found = re.match(r"// Generated from definition (\S+)\n+((?:///.*\n)*)", text)
        if found and (short(found[1]) in fields or found[1] in LEAVES):
            describe(found[1], "-", comment(found[2], ""))
        body = re.search(r"pub struct \w+ \{\n(.*?)\n\}", text, re.S)
        if not found or not body or short(found[1]) not in fields:
            continue
        name = short(found[1])
        known = {plain(field): field for field in all_fields(name) + ["apiVersion", "kind"]}
        for doc, field in re.findall(r"((?:^    ///.*\n)+)    pub (?:r#)?(\w+): ", body[1], re.M):
            describe(found[1], known[plain(field)], comment(doc, "    "))
        required = re.findall(r"^    pub (?:r#)?(\w+): (?!Option<)(.*),$", body[1], re.M)
        # The crate makes the metadata of every object required, which no schema does.
        required = {known[plain(field)] for field, ty in required if not ty.endswith(("ObjectMeta", "ListMeta"))}
        if required:
            lines.add(f"required {name} {','.join(f for f in all_fields(name) if f in required)}")

with open(f"{here}/openapi.txt", "w") as out:
    out.write("\n".join(sorted(lines)) + "\n")

with open(f"{here}/descriptions.gz", "wb") as out:
    out.write(gzip.compress(("\n".join(sorted(described)) + "\n").encode(), 9, mtime=0))
