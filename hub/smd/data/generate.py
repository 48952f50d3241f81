#!/usr/bin/env python3
"""Writes types.txt: the built-in Kubernetes types as structured merge and strategic merge need them.

    python3 generate.py FACTS_DIR > types.txt

FACTS_DIR holds three files of facts about Kubernetes 1.36:

    kinds.json            the served kinds: the roots of the graph
    protobuf-fields.json  type -> fields -> types, with omitempty
    merge-keys.json       list types, map types, atomic structs, patch strategies, defaults

The format of types.txt is described in src/schema/table.rs, which reads it.
"""

import json
import re
import sys

facts = sys.argv[1]
kinds = json.load(open(f"{facts}/kinds.json"))
proto = json.load(open(f"{facts}/protobuf-fields.json"))
merge = json.load(open(f"{facts}/merge-keys.json"))
types, aliases = proto["types"], proto["aliases"]

META = "k8s.io/apimachinery/pkg/apis/meta/v1."
APIEXT = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1."
# Types whose JSON is not that of their fields: (type expression, what Go writes for the zero value).
SPECIAL = {
    META + "Time": ("s", "n"),
    META + "MicroTime": ("s", "n"),
    META + "Duration": ("s", "s"),
    META + "FieldsV1": ("{*", "n"),
    "k8s.io/apimachinery/pkg/api/resource.Quantity": ("u", "q"),
    "k8s.io/apimachinery/pkg/util/intstr.IntOrString": ("u", "i"),
    "k8s.io/apimachinery/pkg/runtime.RawExtension": ("!{*", "n"),
    APIEXT + "JSON": ("*", "n"),
    APIEXT + "JSONSchemaPropsOrArray": ("*", "n"),
    APIEXT + "JSONSchemaPropsOrBool": ("*", "n"),
    APIEXT + "JSONSchemaPropsOrStringArray": ("*", "n"),
}
SCALARS = {
    "string": ("s", "s"),
    "bool": ("b", "b"),
    "int": ("n", "i"),
    "int32": ("n", "i"),
    "int64": ("n", "i"),
    "float64": ("n", "i"),
    "[]byte": ("s", "n"),
}


def full(name):
    """The Go name of an OpenAPI type name."""
    name = re.sub(r"^io\.k8s\.", "k8s.io/", name)
    name = name.replace("k8s.io/apimachinery.", "k8s.io/apimachinery/")
    name = name.replace("k8s.io/apiextensions-apiserver.", "k8s.io/apiextensions-apiserver/")
    name = name.replace("k8s.io/kube-aggregator.", "k8s.io/kube-aggregator/")
    name = name.replace("k8s.io/api.", "k8s.io/api/")
    head, _, kind = name.rpartition(".")
    return head.replace("pkg.", "pkg/").replace("apis.", "apis/").replace(".", "/").replace("k8s/io", "k8s.io") + "." + kind


lists = {(full(x["type"]), x["field"]): x for x in merge["lists"]}
atomic = {full(x) for x in merge["atomicStructs"]}
defaults = {(full(x["type"]), x["field"]): x["default"] for x in merge["defaults"]}
for t in list(atomic) + [k[0] for k in list(lists) + list(defaults)]:
    assert t in types, t

order, index = [], {}


def struct(go):
    if go not in index:
        index[go] = len(order)
        order.append(go)
    return index[go]


def expr(go, fact=None):
    """(type expression, zero value) of a Go type."""
    fact = fact or {}
    if go.startswith("*"):
        return expr(go[1:], fact)[0], "n"
    if go.startswith("metav1."):
        go = META + go[len("metav1."):]
    if go in SPECIAL:
        return SPECIAL[go]
    if go in SCALARS:
        return SCALARS[go]
    if go.startswith("[]"):
        elem = expr(go[2:])[0]
        kind = fact.get("listType", "atomic")
        if kind == "map":
            return "[(" + ",".join(fact["listMapKeys"]) + ")" + elem, "n"
        return ("[=" if kind == "set" else "[!") + elem, "n"
    m = re.match(r"map\[[^\]]*\](.*)", go)
    if m:
        return ("!" if fact.get("mapType") == "atomic" else "") + "{" + expr(m[1])[0], "n"
    if go in aliases:
        return expr(aliases[go], fact)
    if go.startswith("k8s.io/apimachinery/pkg/types."):
        return SCALARS["string"]
    if go not in types:
        print("no fields for", go, file=sys.stderr)
        return "{*", "o"
    mark = {"atomic": "!", "granular": "~"}.get(fact.get("mapType"), "")
    return f"{mark}#{struct(go)}", "o"


def fields(go, owner=None):
    for f in types[go]:
        if f.get("inline"):
            yield from fields(aliases.get(f["type"], f["type"]).lstrip("*"), owner or go)
            continue
        # OpenAPI knows no inlined types: its facts stand at the type that has the field in JSON.
        fact = lists.get((owner or go, f["json"]), {})
        e, zero = expr(f["type"], fact)
        # Go leaves a field out if it is empty and says omitempty; a struct is never empty, unless it says omitzero.
        is_struct = zero == "o" or f["type"] in SPECIAL or f["type"] in ("metav1.Time", "metav1.MicroTime")
        if f.get("omitzero") or (f.get("omitempty") and not is_struct):
            zero = "-"
        default = defaults.get((owner or go, f["json"]))
        smp = ""
        if "patchStrategy" in fact:
            smp = fact["patchStrategy"] + ":" + fact.get("patchMergeKey", "")
        yield f["json"], e, zero, default, smp


roots = []
for k in kinds:
    group = k["group"]
    short = {"": "core"}.get(group, group.split(".")[0])
    for candidate in (
        f"k8s.io/api/{short}/{k['version']}.{k['kind']}",
        f"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/{k['version']}.{k['kind']}",
        f"k8s.io/kube-aggregator/pkg/apis/apiregistration/{k['version']}.{k['kind']}",
    ):
        if candidate in types:
            roots.append((group, k["version"], k["kind"], struct(candidate)))
            break
    else:
        print("no type for", k["group"], k["version"], k["kind"], file=sys.stderr)
roots.append(("autoscaling", "v1", "Scale", struct("k8s.io/api/autoscaling/v1.Scale")))
roots.append(("", "", "ObjectMeta", struct(META + "ObjectMeta")))
root_types = {r[3] for r in roots if r[2] != "ObjectMeta"}

out, i = [], 0
while i < len(order):
    go = order[i]
    out.append(("!" if go in atomic else "") + go.removeprefix("k8s.io/").removeprefix("api/"))
    # protobuf has no type information of its own; JSON has, in whatever embeds TypeMeta.
    rows = list(fields(go))
    names = {r[0] for r in rows}
    if i in root_types:
        rows += [(n, "s", "-", None, "") for n in ("apiVersion", "kind") if n not in names]
    for name, e, zero, default, smp in sorted(rows):
        row = [name, e, zero]
        if default is not None or smp:
            row.append("" if default is None else json.dumps(default))
        if smp:
            row.append(smp)
        out.append("\t" + "\t".join(row))
    i += 1
print("# Built-in types of Kubernetes 1.36; written by generate.py, read by src/schema/table.rs.")
for g, v, k, t in sorted(set(roots)):
    print(f"@{g}\t{v}\t{k}\t{t}")
print("\n".join(out))
