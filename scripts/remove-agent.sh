#!/usr/bin/env bash
# Takes a member out of the fleet: its Cluster on the hub, then everything that deploy-agent.sh put onto the member.
# A side that does not answer is left for later, and said so; running this again goes on where it stopped.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/agent-common.sh
. "$here/agent-common.sh"

usage() {
    cat <<EOF
usage: scripts/remove-agent.sh HUB_KUBECONFIG HUB_CONTEXT MEMBER_KUBECONFIG MEMBER_CONTEXT [options]

  --cluster-name N           the member's name on the hub (default: MEMBER_CONTEXT)
  --workloads keep|delete    what happens to the objects that the hub has applied (default: keep)
                             keep: the agent is removed first; objects stay, without the hub's labels
                             delete: the agent deletes them before it is removed
  --wait SECONDS             how long to wait for each step (default 120)

Where the hub cannot be reached, the member is cleaned up all the same; where the member cannot be reached, the
Cluster is taken off the hub. Either way the last line says what is left to do.
EOF
}

cluster='' workloads=keep wait=120
declare -a positional=()
value_of() { [ $# -ge 2 ] && [ -n "$2" ] || bad "$1 wants a value"; }
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --cluster-name | --workloads | --wait) value_of "$@"; set -- "$1=$2" "${@:3}"; continue ;;
        --cluster-name=*) cluster=${1#*=} ;;
        --workloads=*) workloads=${1#*=} ;;
        --wait=*) wait=${1#*=} ;;
        --image=* | --hub-server=* | --allow-loopback | --replace) ;; # deploy-agent.sh's, for the same command line
        --image | --hub-server) value_of "$@"; shift ;;
        --) break ;;
        -*) bad "unknown option $1" ;;
        *) positional+=("$1") ;;
    esac
    shift
done
[ ${#positional[@]} -eq 4 ] ||
    bad "wants HUB_KUBECONFIG HUB_CONTEXT MEMBER_KUBECONFIG MEMBER_CONTEXT, got ${#positional[@]} of 4"
[[ $wait =~ ^[1-9][0-9]{0,4}$ ]] || bad "--wait wants a number of seconds, not \"$wait\""
case $workloads in keep | delete) ;; *) bad "--workloads is keep or delete, not \"$workloads\"" ;; esac
member_context=${positional[3]}
if [ -n "$cluster" ]; then check_cluster_name "$cluster" --cluster-name; else
    cluster=$member_context
    check_cluster_name "$cluster" "the context"
fi
readonly execution=karmada-es-$cluster

need_tools kubectl sed grep paste mktemp sort
make_work
flatten hub "${positional[0]}" "${positional[1]}"
flatten member "${positional[2]}" "$member_context"
hub_server=$(server_of hub) member_server=$(server_of member)
hub_user=$(fields hub '.users[*].name')
[ "$hub_server" != "$member_server" ] || bad "hub and member are the same server, $hub_server"

# --- what is there? Nothing is changed up to "remove" -----------------------------------------------------------------

hub_there=yes member_there=yes
cluster_found='' cluster_ready='' agent_found='' agent_by='' agent_cluster='' id=''
if ! hub get --raw /version >/dev/null; then
    unanswered || fail "$(explain "the hub" "$hub_server")"
    hub_there='' hub_silence=$(explain "the hub" "$hub_server")
fi
if ! member get --raw /version >/dev/null; then
    unanswered || fail "$(explain "the member" "$member_server")"
    member_there='' member_silence=$(explain "the member" "$member_server")
fi
[ -n "$hub_there$member_there" ] || fail "neither answers: $hub_silence; $member_silence"

# A deletion that is only tried: whether it would be permitted.
may_delete() { # hub|member PATH
    "$1" delete --raw "$2?dryRun=All" >/dev/null || ! grep -Eq '\(Forbidden\)|is forbidden' "$work/error"
}
if [ -n "$member_there" ]; then
    id=$(member_id) || fail "$(explain "the member" "$member_server")"
    read_agent || fail "$(explain "the member" "$member_server")"
    if [ -n "$agent_found" ]; then
        [ "$agent_by" = "$ours" ] ||
            fail "the member's karmada-agent is not one that deploy-agent.sh put there; it stays"
        [ -z "$agent_cluster" ] || [ "$agent_cluster" = "$cluster" ] ||
            fail "the member has the agent of cluster $agent_cluster, not of $cluster; use --cluster-name $agent_cluster"
    fi
    for path in "apis/apps/v1/namespaces/$namespace/deployments/karmada-agent" \
        apis/rbac.authorization.k8s.io/v1/clusterrolebindings/karmada-agent \
        apis/rbac.authorization.k8s.io/v1/clusterroles/karmada-agent \
        "api/v1/namespaces/$namespace/secrets/karmada-kubeconfig" \
        "api/v1/namespaces/$namespace/secrets/karmada-agent-token" \
        "api/v1/namespaces/$namespace/serviceaccounts/karmada-agent-sa" "api/v1/namespaces/$namespace"; do
        may_delete member "/$path" || fail "$(explain "the member" "$member_server")"
    done
fi
if [ -n "$hub_there" ]; then
    read_cluster "$cluster" || fail "$(explain_cluster "$cluster")"
    if [ -n "$cluster_found" ]; then
        if [ -n "$id" ] && [ -n "$cluster_id" ] && [ "$cluster_id" != "$id" ]; then
            fail "the Cluster $cluster on the hub is another member (id $cluster_id, this one's is $id)"
        fi
        may_delete hub "/apis/cluster.karmada.io/v1alpha1/clusters/$cluster" ||
            fail "$(explain "the hub" "$hub_server"); use an administrator's kubeconfig"
        if [ -z "$member_there" ] && [ "$workloads" = keep ] && [ "$cluster_ready" = True ]; then
            fail "the member cannot be reached from here, but its agent reports to the hub and would take everything down; run this where the member can be reached, or say --workloads delete ($member_silence)"
        fi
    fi
fi

# --- remove -----------------------------------------------------------------------------------------------------------------

stop_agent() {
    [ -n "$agent_found" ] || return 0
    kubectl --kubeconfig "$work/member.kubeconfig" -n "$namespace" delete deployment karmada-agent --ignore-not-found \
        --cascade=foreground --timeout="${wait}s" >/dev/null 2>"$work/error" ||
        fail "the agent does not end within $wait s: $(error_line)"
    say "agent stopped"
}

# Deletes the Cluster and waits: the hub takes its Works and their namespace away first.
delete_cluster() {
    [ -n "$cluster_found" ] || return 0
    local end=$((SECONDS + wait)) left
    while :; do
        # Again and again: an agent that starts in between may have made a new one.
        hub delete clusters.cluster.karmada.io "$cluster" --ignore-not-found --wait=false >/dev/null ||
            fail "$(explain "the hub" "$hub_server")"
        read_cluster "$cluster" || fail "$(explain_cluster "$cluster")"
        [ -n "$cluster_found" ] || break
        if [ "$SECONDS" -ge "$end" ]; then
            left=$(hub -n "$execution" get works.work.karmada.io -o name | grep -c .) || true
            fail "the Cluster $cluster is not gone from the hub within $wait s ($left Works left in $execution); run this again to go on"
        fi
        sleep 1
    done
    say "Cluster $cluster removed from the hub"
}

# What this cluster's Works put onto the member and is still there: objects with the hub's label that name its namespace.
managed_objects() {
    local kinds all='{range .items[*]}{.kind}|{.apiVersion}|{.metadata.namespace}|{.metadata.name}|{.metadata.annotations.work\.karmada\.io/namespace}|{.metadata.annotations.work\.karmada\.io/adopted}|{.metadata.deletionTimestamp}{"\n"}{end}'
    # Some groups may not answer; the others do.
    kinds=$(member api-resources --verbs=list,patch,delete -o name | sort -u | paste -sd, -) || true
    [ -n "$kinds" ] || fail "the member does not tell its kinds: $(error_line)"
    member get "$kinds" --all-namespaces -l karmada.io/managed=true --ignore-not-found -o jsonpath="$all" |
        grep -F "|$execution|" || true
}
marks() { # labels|annotations: what the agent puts onto an object, as a merge patch that takes it off
    local -a keys
    case $1 in
        labels) keys=(karmada.io/managed {work,resourcebinding,clusterresourcebinding,propagationpolicy,clusterpropagationpolicy}.karmada.io/permanent-id) ;;
        annotations) keys=(work.karmada.io/{namespace,name,conflict-resolution,adopted}
            resourcetemplate.karmada.io/{uid,generation,managed-labels,managed-annotations}
            {resourcebinding,propagationpolicy}.karmada.io/{namespace,name}
            {clusterresourcebinding,clusterpropagationpolicy}.karmada.io/name) ;;
    esac
    printf '"%s":null\n' "${keys[@]}" | paste -sd, -
}
sweep() {
    local kind api_version in_namespace name adopted going count=0 patch resource
    patch="{\"metadata\":{\"labels\":{$(marks labels)},\"annotations\":{$(marks annotations)}}}"
    managed_objects >"$work/managed"
    while IFS='|' read -r kind api_version in_namespace name _ adopted going; do
        resource=$kind.${api_version##*/}.
        [[ $api_version != */* ]] || resource+=${api_version%%/*}
        local -a object=("$resource" "$name" ${in_namespace:+--namespace "$in_namespace"})
        # A namespace that was there before the hub, or that no cluster can do without, is let go and not deleted.
        if [ "$workloads" = delete ] && [ "$adopted" != true ] &&
            [[ $kind:$name != Namespace:default && $kind:$name != Namespace:kube-* ]]; then
            [ -n "$going" ] || member delete "${object[@]}" --ignore-not-found --wait=false >/dev/null ||
                fail "$kind $in_namespace/$name cannot be deleted: $(error_line)"
        else
            member patch "${object[@]}" --type=merge -p "$patch" >/dev/null ||
                grep -q NotFound "$work/error" || fail "$kind $in_namespace/$name cannot be let go: $(error_line)"
        fi
        count=$((count + 1))
    done <"$work/managed"
    [ "$count" -eq 0 ] || case $workloads in
        keep) say "$count objects stay on the member" ;;
        delete) say "$count objects deleted on the member" ;;
    esac
}

# What deploy-agent.sh made, in the opposite order.
clean_member() {
    local object
    for object in clusterrolebinding/karmada-agent clusterrole/karmada-agent \
        clusterrolebinding/karmada-agent-tunnel clusterrole/karmada-agent-tunnel; do
        member delete "$object" --ignore-not-found >/dev/null || fail "$object: $(error_line)"
    done
    # Those of --namespaces.
    member delete roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io --all-namespaces \
        -l "app=karmada-agent,app.kubernetes.io/managed-by=$ours" --ignore-not-found >/dev/null ||
        fail "the agent's roles: $(error_line)"
    for object in serviceaccount/karmada-agent-sa serviceaccount/karmada-agent-tunnel secret/karmada-kubeconfig secret/karmada-agent-token configmap/karmada-agent-tunnel-ca "configmap/karmada-agent-fence-$cluster" \
        "secret/karmada-agent-state-key-$cluster"; do
        member -n "$namespace" delete "$object" --ignore-not-found >/dev/null || fail "$object: $(error_line)"
    done
    member -n "$namespace" delete secrets -l "agent.karmada.io/state=$cluster" --ignore-not-found >/dev/null ||
        fail "what the agent kept of the hub's words: $(error_line)"
    local by others
    by=$(member get namespace "$namespace" --ignore-not-found -o jsonpath='{.metadata.labels.app\.kubernetes\.io/managed-by}') ||
        fail "$(explain "the member" "$member_server")"
    if [ "$by" = "$ours" ]; then
        others=$(member -n "$namespace" get deployments,statefulsets,daemonsets,jobs,services,persistentvolumeclaims,configmaps,secrets -o name) ||
            fail "the namespace $namespace: $(error_line)"
        others=$(grep -Ev '^configmap/(kube-root-ca\.crt|openshift-service-ca\.crt)$|^secret/(default|karmada-agent-sa|karmada-agent-tunnel)-(token|dockercfg)-' <<<"$others" | paste -sd' ' -) || true
        if [ -n "$others" ]; then
            warn "the namespace $namespace stays: there is $others"
        else
            kubectl --kubeconfig "$work/member.kubeconfig" delete namespace "$namespace" --ignore-not-found \
                --timeout="${wait}s" >/dev/null 2>"$work/error" || fail "the namespace $namespace is not gone: $(error_line)"
        fi
    fi
    say "agent's account, role, Secret removed from the member"
}

if [ -n "$hub_there" ] && [ -n "$member_there" ]; then
    # While the agent runs it takes everything down that is taken from the hub: so it ends after that, or before.
    if [ "$workloads" = keep ]; then stop_agent; delete_cluster; else delete_cluster; stop_agent; fi
    sweep
    clean_member
elif [ -n "$member_there" ]; then
    stop_agent
    sweep
    clean_member
    warn "$hub_silence. The Cluster $cluster is still there; when the hub is back: kubectl delete clusters.cluster.karmada.io $cluster"
else
    [ -n "$cluster_found" ] || say "there is no Cluster $cluster on the hub"
    delete_cluster
    warn "$member_silence. What is on it stays there; when it is back run this again, before its agent joins anew"
fi
say "done"
