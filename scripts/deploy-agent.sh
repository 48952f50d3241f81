#!/usr/bin/env bash
# Puts an agent onto a member cluster: namespace, account, role, what it joins the hub by as a Secret, a Deployment.
# It looks at everything first and changes nothing if something is wrong; the agent itself makes the Cluster on the hub.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/agent-common.sh
. "$here/agent-common.sh"
manifests=$here/../manifests/agent

usage() {
    cat <<EOF
usage: scripts/deploy-agent.sh --hub HOST:PORT --token TOKEN --ca-cert-hash sha256:HEX --cluster-name N [options] [-- AGENT_ARGUMENT...]
       scripts/deploy-agent.sh HUB_KUBECONFIG HUB_CONTEXT MEMBER_KUBECONFIG MEMBER_CONTEXT [options] [-- AGENT_ARGUMENT...]

The first form is what karmada-hub token create --cluster N prints: the agent makes its key on the member, joins by the token
and keeps its certificate there, in the Secret $namespace/karmada-kubeconfig. The hub is not asked from here.

  --member-kubeconfig F, --member-context C   the member (default: as kubectl's)
  --proxy-url URL    the proxy by which the member reaches the hub: http://…, socks5://…

The second form gives it a credential that was made elsewhere:

  HUB_KUBECONFIG HUB_CONTEXT        how the agent reaches the hub; make a file for this cluster alone with
                                    karmada-hub credentials --data-dir DIR --cluster NAME (context karmada-apiserver)
  MEMBER_KUBECONFIG MEMBER_CONTEXT  the member, as somebody who may create ClusterRoles there
  AGENT_ARGUMENT...                 given to karmada-agent (--cluster-region=..., --v=4)

  --cluster-name N   the member's name on the hub (default: MEMBER_CONTEXT)
  --image I          the agent's image (default: karmada-agent:$(version)); also changes the version of one that runs
  --hub-server URL   the hub's address as the member sees it, if it is not the one in HUB_KUBECONFIG (second form)
  --state WHERE      where the agent keeps what the hub has said, to go on with it after a restart while the hub is away:
                     secrets of the member (default), or off
  --namespaces A,B   the agent works in these namespaces of the member only. They have to exist. It has no rights elsewhere; the
                     status of a Work says what could not be applied
  --tunnel HOW       lets users of the hub reach the member by a connection that the agent dials when they ask: read-only, full
                     or off (default). Further flags of the tunnel go after --, such as --tunnel-deny=secrets
  --tunnel-server U  where the hub's API is a stock kube-apiserver: the hub's own port, https://HOST:PORT, of each hub, with commas
                     between them
  --tunnel-ca F      the CA certificates (PEM) to believe there; they go to the member as a ConfigMap (default: those of the image)
  --upgrade WHEN     lets the agent replace itself by a version that the hub offers (karmada-hub upgrade agents): windows, which means
                     in maintenance windows only, on, or off (default)
  --upgrade-image-from P  what images begin with that it may run then, such as registry.example/karmada/; several with commas between
                     them (default: the repository of its image)
  --cluster-role F   a ClusterRole named karmada-agent to use instead of manifests/agent/clusterrole.yaml. What it does not allow
                     is named in the status of the Work
  --allow-loopback   accept a hub address that means this machine only (for trials on one machine)
  --replace          take over from an agent of another hub, or one that something else put there
  --wait SECONDS     how long to wait for the cluster to be Ready on the hub, or its agent to be at work (default 120; 0: do not)
  --dry-run          look at everything, say what would be done, change nothing

Running it again changes only what is different by then. Other credentials restart the agent.
EOF
}

# Of a release's archive, else of a checkout; nothing where the script was copied alone.
version() {
    if [ -r "$here/../VERSION" ]; then
        head -n 1 "$here/../VERSION"
    elif [ -r "$here/../Cargo.toml" ]; then
        sed -n 's/^version = "\(.*\)"$/\1/p' "$here/../Cargo.toml" | head -n 1
    fi
}

# 'text' as YAML
quoted() { printf "'%s'" "${1//\'/\'\'}"; }

# --- arguments ---------------------------------------------------------------------------------------------------

cluster='' image='' hub_server_override='' allow_loopback='' replace='' wait=120 dry_run='' state=secrets namespaces='' role_file='' tunnel=off upgrade=off upgrade_from=''
tunnel_server='' tunnel_ca=''
join_hub='' token='' hash='' proxy='' member_file='' member_context=''
declare -a positional=() further=()
value_of() { [ $# -ge 2 ] && [ -n "$2" ] || bad "$1 wants a value"; }
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --cluster-name | --image | --hub-server | --wait | --hub | --token | --ca-cert-hash | --proxy-url | \
            --member-kubeconfig | --member-context | --state | --namespaces | --cluster-role | --tunnel | \
            --tunnel-server | --tunnel-ca | --upgrade | --upgrade-image-from)
            value_of "$@"; set -- "$1=$2" "${@:3}"; continue ;;
        --hub=*) join_hub=${1#*=} ;;
        --token=*) token=${1#*=} ;;
        --ca-cert-hash=*) hash=${1#*=} ;;
        --proxy-url=*) proxy=${1#*=} ;;
        --member-kubeconfig=*) member_file=${1#*=} ;;
        --member-context=*) member_context=${1#*=} ;;
        --cluster-name=*) cluster=${1#*=} ;;
        --image=*) image=${1#*=} ;;
        --state=*) state=${1#*=} ;;
        --tunnel=*) tunnel=${1#*=} ;;
        --tunnel-server=*) tunnel_server=${1#*=} ;;
        --tunnel-ca=*) tunnel_ca=${1#*=} ;;
        --upgrade=*) upgrade=${1#*=} ;;
        --upgrade-image-from=*) upgrade_from=${1#*=} ;;
        --namespaces=*) namespaces=${1#*=} ;;
        --cluster-role=*) role_file=${1#*=} ;;
        --hub-server=*) hub_server_override=${1#*=} ;;
        --wait=*) wait=${1#*=} ;;
        --allow-loopback) allow_loopback=yes ;;
        --replace) replace=yes ;;
        --dry-run) dry_run=yes ;;
        --) shift; further=("$@"); break ;;
        -*) bad "unknown option $1" ;;
        *) positional+=("$1") ;;
    esac
    shift
done
if [ -n "$join_hub$token$hash" ]; then
    [ ${#positional[@]} -eq 0 ] || bad "with --hub the hub needs no kubeconfig, and the member's is --member-kubeconfig"
    [ -n "$join_hub" ] && [ -n "$token" ] && [ -n "$hash" ] && [ -n "$cluster" ] ||
        bad "--hub, --token, --ca-cert-hash and --cluster-name go together; karmada-hub token create --cluster NAME prints them"
    join_hub=${join_hub#https://}
    [[ $join_hub =~ ^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$ ]] || bad "--hub \"$join_hub\" is not HOST:PORT"
    [[ $token =~ ^[a-z0-9]{6}\.[a-z0-9]{16}$ ]] || bad "what --token gives is no bootstrap token: 6 characters of a-z and 0-9, a dot and 16 more"
    [[ $hash =~ ^sha256:[0-9a-fA-F]{64}$ ]] || bad "--ca-cert-hash \"$hash\" is not sha256: with 64 hexadecimal digits behind it"
    [[ -z $proxy || $proxy =~ ^(http|socks5h?)://[^/[:space:]]+/?$ ]] || bad "--proxy-url wants a URL like http://proxy.example.com:3128 or socks5://proxy.example.com"
    [ -z "$hub_server_override" ] || bad "--hub-server is for a hub that is given by a kubeconfig"
else
    [ ${#positional[@]} -eq 4 ] ||
        bad "wants HUB_KUBECONFIG HUB_CONTEXT MEMBER_KUBECONFIG MEMBER_CONTEXT, got ${#positional[@]} of 4; or --hub, --token, --ca-cert-hash and --cluster-name"
    [ -z "$proxy$member_file$member_context" ] || bad "--proxy-url, --member-kubeconfig and --member-context go with --hub"
    hub_context=${positional[1]} member_file=${positional[2]} member_context=${positional[3]}
fi
[[ $state =~ ^(secrets|off)$ ]] || bad "--state is secrets or off, not \"$state\""
[[ $tunnel =~ ^(off|read-only|full)$ ]] || bad "--tunnel is off, read-only or full, not \"$tunnel\""
if [ -n "$tunnel_server" ]; then
    url='https://[^/,[:space:]]+/?'
    [[ $tunnel_server =~ ^$url(,$url)*$ ]] || bad "--tunnel-server wants https://HOST:PORT, several with commas between them, not \"$tunnel_server\""
    [ "$tunnel" != off ] || bad "--tunnel-server wants --tunnel=read-only or --tunnel=full"
fi
if [ -n "$tunnel_ca" ]; then
    [ -n "$tunnel_server" ] || bad "--tunnel-ca is for --tunnel-server"
    [ -r "$tunnel_ca" ] || bad "--tunnel-ca: $tunnel_ca cannot be read"
    grep -q -- '-----BEGIN CERTIFICATE-----' "$tunnel_ca" || bad "--tunnel-ca: $tunnel_ca holds no certificates (PEM)"
    ! grep -q -- 'PRIVATE KEY-----' "$tunnel_ca" || bad "--tunnel-ca: $tunnel_ca holds a private key, which the member must not see; give pki/ca.crt of the hub's data directory"
fi
[[ $upgrade =~ ^(off|windows|on)$ ]] || bad "--upgrade is off, windows or on, not \"$upgrade\""
if [ -n "$upgrade_from" ]; then
    prefix='[A-Za-z0-9._-][A-Za-z0-9._/:-]*'
    [[ $upgrade_from =~ ^$prefix(,$prefix)*$ ]] || bad "--upgrade-image-from wants what images begin with, such as registry.example/karmada/, not \"$upgrade_from\""
    [ "$upgrade" != off ] || bad "--upgrade-image-from wants --upgrade=windows or --upgrade=on"
fi
[[ $wait =~ ^[0-9]{1,5}$ ]] || bad "--wait wants a number of seconds, not \"$wait\""
# To the shell, what begins with 0 is octal.
wait=$((10#$wait))
if [ -n "$cluster" ]; then check_cluster_name "$cluster" --cluster-name; else
    cluster=$member_context
    check_cluster_name "$cluster" "the context"
fi
image_given=$image
if [ -z "$image" ]; then
    known=$(version)
    [ -n "$known" ] || bad "neither VERSION nor Cargo.toml is beside the folder of this script, so it does not know its version; name the agent's image with --image"
    image=karmada-agent:$known
fi
[[ $image =~ ^[A-Za-z0-9][A-Za-z0-9._/:@-]*$ && $image != *: ]] || bad "--image \"$image\" is no image name"
for argument in ${further[@]+"${further[@]}"}; do
    case $argument in
        --cluster-name* | --karmada-kubeconfig* | --karmada-context* | --state* | --kubeconfig* | --context* | \
            --hub | --hub=* | --token* | --ca-cert-hash* | --proxy-url* | --namespaces* | --tunnel | --tunnel=* | \
            --tunnel-server* | --tunnel-ca* | --upgrade*)
            bad "$argument is this script's to say; the script has options for it" ;;
        *[[:cntrl:]]*) bad "an agent's argument has a line break in it" ;;
        -*) ;;
        *) bad "after -- come arguments of karmada-agent, as --NAME=VALUE; \"$argument\" is none" ;;
    esac
done

label='[a-z0-9]([-a-z0-9]*[a-z0-9])?'
[[ -z $namespaces || $namespaces =~ ^$label(,$label)*$ ]] || bad "--namespaces wants names with commas between them, not \"$namespaces\""
if [ -n "$role_file" ]; then
    [ -r "$role_file" ] || bad "--cluster-role: $role_file cannot be read"
    grep -qx 'kind: ClusterRole' "$role_file" && grep -qx '  name: karmada-agent' "$role_file" && ! grep -qx -- '---' "$role_file" ||
        bad "--cluster-role: $role_file is no manifest of one ClusterRole named karmada-agent"
fi
[ -z "$tunnel_ca" ] || further=(--tunnel-ca=/etc/karmada-tunnel/ca.crt ${further[@]+"${further[@]}"})
[ -z "$tunnel_server" ] || further=("--tunnel-server=$tunnel_server" ${further[@]+"${further[@]}"})
[ "$tunnel" = off ] || further=("--tunnel=$tunnel" ${further[@]+"${further[@]}"})
if [ -n "$upgrade_from" ]; then
    IFS=, read -ra prefixes <<<"$upgrade_from"
    for prefix in "${prefixes[@]}"; do further=("--upgrade-image-from=$prefix" ${further[@]+"${further[@]}"}); done
fi
[ "$upgrade" = off ] || further=("--upgrade=$upgrade" ${further[@]+"${further[@]}"})
[ -z "$namespaces" ] || further=("--namespaces=$namespaces" ${further[@]+"${further[@]}"})

need_tools kubectl base64 sha256sum sed grep awk paste mktemp
for file in namespace serviceaccount clusterrole clusterrolebinding deployment tunnel upgrade narrow/clusterrole narrow/own narrow/role; do
    [ -r "$manifests/$file.yaml" ] || fail "$manifests/$file.yaml is missing: run this script from a checkout or an unpacked karmada-VERSION-manifests.tar.gz, whose folders scripts/ and manifests/ belong together"
done
make_work

# --- kubeconfigs ---------------------------------------------------------------------------------------------------

if [ -n "$join_hub" ]; then
    flatten_member
    hub_server=https://$join_hub agent_server=https://$join_hub
else
flatten hub "${positional[0]}" "$hub_context"
flatten member "$member_file" "$member_context"

mapfile -t of_hub < <(fields hub '.clusters[*].name' '.clusters[*].cluster.proxy-url' '.users[*].name' \
    '.users[*].user.exec.command' '.users[*].user.auth-provider.name' '.users[*].user.tokenFile' '.users[*].user.as')
hub_user=${of_hub[2]:-}
for i in 1 3 4 5 6; do
    [ -z "${of_hub[$i]:-}" ] && continue
    what=([1]="a proxy (proxy-url)" [3]="a program for its credentials (exec)" [4]="an auth-provider" \
        [5]="a token in a file of this machine (tokenFile)" [6]="impersonation (as)")
    bad "the hub's kubeconfig ${positional[0]} uses ${what[$i]}, which an agent on another machine cannot; make one with karmada-hub credentials --data-dir DIR --cluster $cluster"
done
# The address that we use may differ from the one that the agent will.
cp "$work/hub.kubeconfig" "$work/agent.kubeconfig"
if [ -n "$hub_server_override" ]; then
    [[ $hub_server_override =~ ^https?://[^/]+ ]] || bad "--hub-server \"$hub_server_override\" is no URL like https://hub.example.com:6443"
    kubectl config --kubeconfig "$work/agent.kubeconfig" set-cluster "${of_hub[0]}" --server="$hub_server_override" \
        >/dev/null 2>"$work/error" || fail "--hub-server: $(error_line)"
fi
hub_server=$(server_of hub) agent_server=$(server_of agent)
[ -n "$hub_server" ] || bad "the context \"$hub_context\" of ${positional[0]} names no server"
fi
member_server=$(server_of member)
[ -n "$member_server" ] || bad "the context \"$member_context\" of ${member_file:-kubectl} names no server"
[ "$hub_server" != "$member_server" ] || bad "hub and member are the same server, $hub_server"
option=--hub-server
[ -z "$join_hub" ] || option=--hub
if is_loopback "$(host_of "$agent_server")" && [ -z "$allow_loopback" ]; then
    bad "the hub's address $agent_server means this machine only, an agent in the member could not reach it; give the hub an address with karmada-hub serve --advertise HOST, or name it with $option"
fi

# --- is everything as it must be? Nothing is changed up to "apply" ---------------------------------------------------

answer=$(member get --raw /version) || fail "$(explain "the member" "$member_server")"
member_version=$(sed -n 's/.*"gitVersion": *"v\{0,1\}\([^"]*\)".*/\1/p' <<<"$(paste -sd' ' <<<"$answer")")
if [[ $member_version =~ ^1\.([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -lt 22 ]; then
    fail "the member is Kubernetes $member_version; the agent needs 1.22 or newer (server-side apply)"
fi
[ -n "$join_hub" ] || hub get --raw /version >/dev/null || fail "$(explain "the hub" "$hub_server")"

id=$(member_id) || fail "$(explain "the member" "$member_server")"
[ -n "$id" ] || fail "the member at $member_server has no uid on its namespace kube-system: it is no Kubernetes cluster"
# By a token nothing of this can be seen: the agent says so itself, in its log and at /readyz.
cluster_found=''
[ -n "$join_hub" ] || read_cluster "$cluster" || fail "$(explain_cluster "$cluster")"
if [ -n "$cluster_found" ]; then
    [ -z "$cluster_deleted" ] || fail "the Cluster $cluster is being deleted on the hub; wait until it is gone"
    [ -z "$cluster_id" ] || [ "$cluster_id" = "$id" ] ||
        fail "the name $cluster is taken on the hub by another member (id $cluster_id, this one's is $id); choose another --cluster-name, or, if that member is gone, kubectl delete cluster $cluster"
    [ "$cluster_mode" != Push ] ||
        fail "the Cluster $cluster is in Push mode: the hub itself works on it; choose another --cluster-name or unjoin it first"
fi
# An agent's own credentials do not open this; on any engine it shows who could read everything.
if [ -z "$join_hub" ] && hub get --raw '/api/v1/secrets?limit=1' >/dev/null; then
    warn "these credentials for the hub ($hub_user) are an administrator's: whoever gets into the member gets the whole hub. Make some for this cluster alone: karmada-hub credentials --data-dir DIR --cluster $cluster"
    other=$(hub get clusters.cluster.karmada.io -o jsonpath="{range .items[?(@.spec.id==\"$id\")]}{.metadata.name}{\"\\n\"}{end}") || other=''
    other=$(grep -Fxv -- "$cluster" <<<"$other" | head -n 1) || true
    [ -z "$other" ] ||
        fail "this member is on the hub already, as $other; use --cluster-name $other, or scripts/remove-agent.sh first"
fi

read_agent || fail "$(explain "the member" "$member_server")"
if [ -n "$agent_found" ]; then
    [ -z "$agent_cluster" ] || [ "$agent_cluster" = "$cluster" ] ||
        fail "the member has the agent of cluster $agent_cluster; use --cluster-name $agent_cluster, or scripts/remove-agent.sh --cluster-name $agent_cluster first"
    if [ "$agent_by" != "$ours" ]; then
        [ -n "$replace" ] ||
            fail "the member has a karmada-agent ($agent_image) that this script did not put there; --replace puts this one in its place"
    elif [ "$agent_image" != "$image" ] && [ -z "$image_given" ] && [ -z "$replace" ]; then
        fail "the member has an agent of another version, $agent_image, and this script would put $image there; say which: --image $agent_image or --image $image"
    fi
fi

# Which hub a kubeconfig is for: its certificate authority, or where there is none, the address.
hub_of() { fields "$1" '.clusters[*].cluster.certificate-authority-data' | grep . || server_of "$1"; }
secret=$(member -n "$namespace" get secret karmada-kubeconfig --ignore-not-found -o jsonpath='{.metadata.name} {.data.karmada-kubeconfig}') ||
    fail "$(explain "the member" "$member_server")"
taken=''
if [ -n "$secret" ] && [ -n "$join_hub" ]; then
    base64 -d <<<"${secret#* }" >"$work/old.kubeconfig" 2>"$work/error" || true
    old_server=$(server_of old) || old_server=''
    if [ -n "$replace" ]; then
        taken=yes
    elif [ -n "$old_server" ] && [ "$old_server" != "$hub_server" ]; then
        fail "the member's Secret $namespace/karmada-kubeconfig is for the hub at $old_server; --replace makes the member leave that hub for $hub_server"
    fi
elif [ -n "$secret" ] && [ -z "$replace" ]; then
    base64 -d <<<"${secret#* }" >"$work/old.kubeconfig" 2>"$work/error" || true
    old_hub=$(hub_of old) || old_hub=''
    [ -n "$old_hub" ] ||
        fail "the member's Secret $namespace/karmada-kubeconfig holds no kubeconfig; --replace puts this hub's there"
    [ "$old_hub" = "$(hub_of agent)" ] ||
        fail "the member's Secret $namespace/karmada-kubeconfig is for another hub, $(server_of old); --replace makes the member leave that hub for $agent_server"
fi

found=$(member get namespace "$namespace" --ignore-not-found -o jsonpath='{.metadata.labels.app\.kubernetes\.io/managed-by}|{.status.phase}') ||
    fail "$(explain "the member" "$member_server")"
[ "${found#*|}" != Terminating ] || fail "the member's namespace $namespace is being deleted; wait until it is gone"

# --- what is wanted ---------------------------------------------------------------------------------------------------

# What the agent is given: a kubeconfig, or the token by which it gets one.
if [ -n "$join_hub" ]; then
    secret_name=karmada-agent-token secret_key=token secret_file=$work/token
    printf '%s\n' "$token" >"$secret_file"
    hub_arguments=("--hub=$join_hub" "--ca-cert-hash=$hash" --token-file=/etc/kubeconfig/token
        --karmada-kubeconfig-secret=karmada-kubeconfig ${proxy:+"--proxy-url=$proxy"})
else
    secret_name=karmada-kubeconfig secret_key=karmada-kubeconfig secret_file=$work/agent.kubeconfig
    hub_arguments=(--karmada-kubeconfig=/etc/kubeconfig/karmada-kubeconfig "--karmada-context=$hub_context")
fi
render_secret() {
    cat <<EOF
apiVersion: v1
kind: Secret
metadata:
  name: $secret_name
  namespace: $namespace
  labels:
    app: karmada-agent
    app.kubernetes.io/managed-by: $ours
type: Opaque
data:
  $secret_key: $(base64 <"$secret_file" | tr -d '\n')
EOF
}
render_cluster_role() {
    if [ -n "$role_file" ]; then
        cat "$role_file"
    elif [ -n "$namespaces" ]; then
        sed "s/@NAMESPACES@/${namespaces//,/, }/" "$manifests/narrow/clusterrole.yaml"
    else
        cat "$manifests/clusterrole.yaml"
    fi
}
render_roles() {
    local each
    [ -n "$namespaces" ] && [ -z "$role_file" ] || return 0
    cat "$manifests/narrow/own.yaml"; echo ---
    for each in ${namespaces//,/ }; do
        sed "s/@NAMESPACE@/$each/" "$manifests/narrow/role.yaml"; echo ---
    done
}
render_tunnel() {
    [ "$tunnel" != off ] || return 0
    cat "$manifests/tunnel.yaml"; echo ---
    [ -n "$tunnel_ca" ] || return 0
    cat <<EOF
apiVersion: v1
kind: ConfigMap
metadata:
  name: karmada-agent-tunnel-ca
  namespace: $namespace
  labels:
    app: karmada-agent
    app.kubernetes.io/managed-by: $ours
data:
  ca.crt: |
$(tr -d '\r' <"$tunnel_ca" | sed 's/^/    /')
---
EOF
}
render_upgrade() {
    [ "$upgrade" != off ] || return 0
    cat "$manifests/upgrade.yaml"; echo ---
}
render_deployment() {
    local line argument
    while IFS= read -r line; do
        case $line in
            *'# @HUB_ARGUMENTS@')
                for argument in "${hub_arguments[@]}"; do
                    printf '%s- %s\n' "${line%%#*}" "$(quoted "$argument")"
                done
                continue ;;
            *'# @FURTHER_ARGUMENTS@')
                for argument in ${further[@]+"${further[@]}"}; do
                    printf '%s- %s\n' "${line%%#*}" "$(quoted "$argument")"
                done
                continue ;;
        esac
        line=${line//@SECRET@/"$secret_name"}
        line=${line//@CLUSTER_NAME@/"$cluster"}
        line=${line//@IMAGE@/"$image"}
        line=${line//@STATE@/"$state"}
        line=${line//@CHECKSUM@/"$checksum"}
        printf '%s\n' "$line"
    done <"$manifests/deployment.yaml"
}
checksum=$({ cat "$secret_file"; [ -z "$join_hub" ] || printf '%s\n' "${hub_arguments[@]}"; } | sha256sum)
checksum=${checksum%% *}
# A line that is in force takes nothing away: its token may be spent, and what it has brought is all there is.
if [ -n "$taken" ]; then
    applied=$(member -n "$namespace" get deployment karmada-agent --ignore-not-found \
        -o jsonpath='{.spec.template.metadata.annotations.karmada\.io/kubeconfig-checksum}') ||
        fail "$(explain "the member" "$member_server")"
    [ "$applied" != "$checksum" ] || taken=''
fi
# The role first: it is what somebody with too few rights is refused. A namespace that was there before is not ours.
{
    render_cluster_role; echo ---; cat "$manifests/clusterrolebinding.yaml"; echo ---
    case $found in "" | "|" | "$ours|"*) cat "$manifests/namespace.yaml"; echo --- ;; esac
    render_roles; cat "$manifests/serviceaccount.yaml"; echo ---; render_tunnel; render_upgrade; render_secret; echo ---; render_deployment
} >"$work/wanted.yaml"

# While the agent has a new version on trial, its Deployment has the strategy RollingUpdate with fields of the agent's own. The member
# refuses Recreate beside them, and nobody would put back how long an old Pod stays: the trial is ended first.
trial=''
if [ -n "$agent_found" ] && [ "$agent_by" = "$ours" ]; then
    trial=$(member -n "$namespace" get deployment karmada-agent --ignore-not-found -o jsonpath='{.spec.strategy.rollingUpdate}') ||
        fail "$(explain "the member" "$member_server")"
fi

# --validate=false: that would fetch the member's whole OpenAPI document, for manifests that do not vary.
apply=(apply --server-side --force-conflicts --field-manager="$ours" -f "$work/wanted.yaml")
if ! member "${apply[@]}" --validate=false --dry-run=server >/dev/null; then
    # A namespace that is not there yet, a kubectl or a webhook without dry runs: no reasons to stop.
    refused=$(grep -E 'is forbidden|is invalid|attempting to grant' "$work/error" |
        grep -v ${trial:+-e 'spec.strategy.rollingUpdate: Forbidden'} -e '^$' | head -n 1) || true
    [ -z "$refused" ] || fail "the member at $member_server would refuse it: ${refused#Error from server (*): }"
fi

if [ -n "$dry_run" ]; then
    if [ -n "$trial" ]; then
        say "dry run: nothing is changed. Cluster $cluster (member $member_server, id $id), hub $agent_server, image $image"
        say "a new version of the agent is on trial: would end the trial (strategy, minReadySeconds and progressDeadlineSeconds of deployment/karmada-agent), and then apply everything"
        exit 0
    fi
    status=0
    KUBECTL_EXTERNAL_DIFF='' member diff --server-side --force-conflicts --field-manager="$ours" -f "$work/wanted.yaml" \
        >"$work/diff" || status=$?
    [ -z "$taken" ] || say "would delete: Secret/karmada-kubeconfig"
    say "dry run: nothing is changed. Cluster $cluster (member $member_server, id $id), hub $agent_server, image $image"
    if [ -z "$agent_found" ]; then
        say "would create, or make as it should be:"
        awk '/^kind:/ { kind = $2 } /^[a-z]/ { part = $1 } part == "metadata:" && /^  name:/ { print "  " kind "/" $2 }' \
            "$work/wanted.yaml"
    elif [ "$status" -eq 0 ]; then
        say "everything is as it should be"
    elif [ "$status" -eq 1 ]; then
        cat "$work/diff"
    else
        warn "cannot compare with what is there: $(error_line)"
    fi
    exit 0
fi

# --- apply ---------------------------------------------------------------------------------------------------------------

# A Deployment's generation counts changes of what is wanted; its resourceVersion also counts its Pods coming and going.
states() {
    member get -f "$work/wanted.yaml" --ignore-not-found -o \
        jsonpath='{range .items[*]}{.kind}/{.metadata.name} {.metadata.generation} {.metadata.resourceVersion}{"\n"}{end}' |
        awk '{ print $1, $2 }' || true
}
if [ -n "$agent_found" ] && [ "$agent_by" != "$ours" ]; then
    member -n "$namespace" delete deployment karmada-agent --cascade=foreground --timeout=60s >/dev/null ||
        fail "the Deployment karmada-agent that is there cannot be deleted: $(error_line)"
fi
# Nobody acts in others' names where there is no tunnel.
if [ "$tunnel" = off ] && [ -n "$agent_found" ]; then
    for object in clusterrolebinding/karmada-agent-tunnel clusterrole/karmada-agent-tunnel \
        rolebinding/karmada-agent-tunnel role/karmada-agent-tunnel serviceaccount/karmada-agent-tunnel; do
        by=$(member -n "$namespace" get "$object" --ignore-not-found -o jsonpath='{.metadata.labels.app\.kubernetes\.io/managed-by}') ||
            fail "$(explain "the member" "$member_server")"
        [ "$by" != "$ours" ] || member -n "$namespace" delete "$object" --ignore-not-found >/dev/null ||
            fail "$object, which the tunnel needed, cannot be deleted: $(error_line)"
    done
fi
# Nor does the agent change its Deployment where its owner does not let it.
if [ "$upgrade" = off ] && [ -n "$agent_found" ]; then
    for object in rolebinding/karmada-agent-upgrade role/karmada-agent-upgrade; do
        by=$(member -n "$namespace" get "$object" --ignore-not-found -o jsonpath='{.metadata.labels.app\.kubernetes\.io/managed-by}') ||
            fail "$(explain "the member" "$member_server")"
        [ "$by" != "$ours" ] || member -n "$namespace" delete "$object" --ignore-not-found >/dev/null ||
            fail "$object, which upgrades needed, cannot be deleted: $(error_line)"
    done
fi
# Nor does it believe anybody whom nobody names.
if [ -z "$tunnel_ca" ] && [ -n "$agent_found" ]; then
    by=$(member -n "$namespace" get configmap/karmada-agent-tunnel-ca --ignore-not-found -o jsonpath='{.metadata.labels.app\.kubernetes\.io/managed-by}') ||
        fail "$(explain "the member" "$member_server")"
    [ "$by" != "$ours" ] || member -n "$namespace" delete configmap/karmada-agent-tunnel-ca --ignore-not-found >/dev/null ||
        fail "configmap/karmada-agent-tunnel-ca, which --tunnel-ca made, cannot be deleted: $(error_line)"
fi
before=$(states)
if [ -n "$trial" ]; then
    say "a new version of the agent is on trial: the trial is ended"
    member -n "$namespace" patch deployment karmada-agent --type merge --field-manager="$ours" -p \
        '{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null},"minReadySeconds":0,"progressDeadlineSeconds":600}}' >/dev/null ||
        fail "the trial of a new version cannot be ended: $(error_line)"
fi
# A credential of another hub, or one that is to be made anew.
[ -z "$taken" ] || member -n "$namespace" delete secret karmada-kubeconfig --ignore-not-found >/dev/null ||
    fail "the Secret $namespace/karmada-kubeconfig that is there cannot be deleted: $(error_line)"
member "${apply[@]}" --validate=false >/dev/null ||
    fail "the member at $member_server did not accept everything; run this again to continue: $(error_line)"
changed=''
while read -r object state; do
    old=$(sed -n "s|^$object ||p" <<<"$before")
    if [ -z "$old" ]; then verb=created; elif [ "$old" = "$state" ]; then verb=unchanged; else verb=changed; fi
    [ "$verb" = unchanged ] || changed=yes
    say "$object $verb"
done < <(states)

if [ "$wait" -gt 0 ]; then
    end=$((SECONDS + wait))
    goal="to be Ready on the hub"
    [ -z "$join_hub" ] || goal="to have joined $hub_server"
    [ -z "$changed" ] || say "waiting for cluster $cluster $goal"
    kubectl --kubeconfig "$work/member.kubeconfig" -n "$namespace" rollout status deployment/karmada-agent \
        --timeout="${wait}s" >/dev/null 2>"$work/error" ||
        fail "the agent is deployed but not ready within $wait s: $(error_line). Look at: kubectl --context $member_context -n $namespace describe pods -l app=karmada-agent; kubectl --context $member_context -n $namespace logs deployment/karmada-agent"
    [ -z "$join_hub" ] || { say "cluster $cluster has joined $hub_server, and its agent is at work"; exit 0; }
    until read_cluster "$cluster" && [ "$cluster_ready" = True ]; do
        [ "$SECONDS" -lt "$end" ] ||
            fail "the agent runs, but the hub does not say that $cluster is Ready within $wait s; look at: kubectl --context $member_context -n $namespace logs deployment/karmada-agent"
        sleep 1
    done
    say "cluster $cluster is Ready"
fi
