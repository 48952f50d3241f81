# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154,SC2015 # variables go between this file and the two; A && B || fail is meant
# What deploy-agent.sh and remove-agent.sh share: kubeconfigs, reaching hub and member, saying what is wrong in one line.
# Exit codes as the programs': 1 it failed, 2 the arguments cannot be used.

readonly namespace=karmada-system
readonly ours=deploy-agent.sh # the value of app.kubernetes.io/managed-by on what we made
readonly request_timeout=15s
me=$(basename "$0")

fail() { printf '%s: %s\n' "$me" "$*" >&2; exit 1; }
bad() { printf '%s: %s (try --help)\n' "$me" "$*" >&2; exit 2; }
warn() { printf '%s: warning: %s\n' "$me" "$*" >&2; }
say() { printf '%s\n' "$*"; }

# kubectl repeats itself when it cannot reach a server; the last line says it best.
error_line() { grep -v '^[[:space:]]*$' "$work/error" | tail -n 1 | sed 's/^error: //; s/^Error from server ([A-Za-z]*): //; s/^Error from server //'; }

need_tools() { # TOOL...
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null 2>&1 || fail "$tool is not installed; this script needs: $*"
    done
}

# A folder for credentials on their way, which does not outlive us.
make_work() {
    umask 077
    work=$(mktemp -d)
    # shellcheck disable=SC2064 # now is when the name is known
    trap "rm -rf '$work'" EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# The hub and the member, each with the one context that was asked for.
hub() { kubectl --kubeconfig "$work/hub.kubeconfig" --request-timeout "$request_timeout" "$@" 2>"$work/error"; }
member() { kubectl --kubeconfig "$work/member.kubeconfig" --request-timeout "$request_timeout" "$@" 2>"$work/error"; }

# The name that Kubernetes would accept for a Cluster.
check_cluster_name() { # NAME WHERE-FROM
    [[ ${#1} -le 48 && $1 =~ ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$ ]] && return
    bad "$2 \"$1\" is no cluster name: at most 48 of a-z, 0-9 and '-', with a letter or digit at both ends; choose one with --cluster-name"
}

# One context of a kubeconfig, with the files it names put in.
flatten() { # hub|member FILE CONTEXT
    local what=$1 file=$2 context=$3 contexts
    [ -e "$file" ] || bad "the $what's kubeconfig $file does not exist"
    [ -r "$file" ] && [ ! -d "$file" ] || bad "the $what's kubeconfig $file cannot be read"
    contexts=$(kubectl config get-contexts -o name --kubeconfig "$file" 2>"$work/error") ||
        bad "the $what's kubeconfig $file is none: $(error_line)"
    grep -Fxq -- "$context" <<<"$contexts" ||
        bad "$file has no context \"$context\"; it has: $(paste -sd' ' <<<"${contexts:-none}")"
    kubectl config view --kubeconfig "$file" --context "$context" --minify --flatten >"$work/$what.kubeconfig" \
        2>"$work/error" || bad "the context \"$context\" of $file cannot be used: $(error_line)"
}

# The member as kubectl would take it, but for what --member-kubeconfig and --member-context say.
flatten_member() {
    local -a which=()
    if [ -n "$member_file" ]; then
        [ -r "$member_file" ] && [ ! -d "$member_file" ] || bad "the member's kubeconfig $member_file cannot be read"
        which=(--kubeconfig "$member_file")
    fi
    if [ -z "$member_context" ]; then
        member_context=$(kubectl config current-context ${which[@]+"${which[@]}"} 2>"$work/error") ||
            bad "which cluster is the member? $(error_line); name it with --member-kubeconfig and --member-context"
    fi
    kubectl config view ${which[@]+"${which[@]}"} --context "$member_context" --minify --flatten >"$work/member.kubeconfig" \
        2>"$work/error" || bad "the context \"$member_context\" of the member's kubeconfig cannot be used: $(error_line)"
}

# Fields of a flattened kubeconfig (hub, member, old), a line each, empty where there is nothing.
fields() { # NAME JSONPATH...
    local name=$1 path template=''
    shift
    for path in "$@"; do template+="{$path}{\"\\n\"}"; done
    kubectl config view --kubeconfig "$work/$name.kubeconfig" --minify --raw -o jsonpath="$template" 2>"$work/error"
}

server_of() { fields "$1" '.clusters[*].cluster.server'; }

host_of() { # URL
    local host=${1#*://}
    host=${host%%/*}
    case $host in
        \[*) host=${host#\[}; host=${host%%\]*} ;;
        *) host=${host%%:*} ;;
    esac
    host=${host%.}
    printf '%s\n' "${host,,}"
}

# Whether an address means "this machine" wherever it is used.
is_loopback() { # HOST
    case $1 in
        localhost | *.localhost | localhost.localdomain | ip6-localhost) return 0 ;;
        127.* | 0.0.0.0 | 0 | ::1 | :: | 0:0:0:0:0:0:0:1 | 0:0:0:0:0:0:0:0 | ::ffff:127.*) return 0 ;;
    esac
    return 1
}

# What the last failed request says of a server.
explain() { # WHAT SERVER
    case $(cat "$work/error") in
        *'(Forbidden)'* | *' is forbidden'*) say "$1 at $2 does not permit it: $(error_line)" ;;
        *Unauthorized* | *'must be logged in'* | *'provide credentials'*)
            say "$1 at $2 does not accept these credentials: $(error_line)" ;;
        *x509* | *certificate* | *tls:*) say "$1 at $2 is not the server that the kubeconfig is for: $(error_line)" ;;
        *) say "$1 at $2 cannot be reached: $(error_line)" ;;
    esac
}

# Whether a request failed because nobody answered, which a server that says no is not.
unanswered() {
    grep -Eq 'refused|Unable to connect|no such host|timed? ?out|[Tt]imeout|deadline exceeded|unreachable|no route|EOF|reset by peer' \
        "$work/error" && ! grep -Eq 'Error from server|x509|certificate' "$work/error"
}

# The member's identity is the uid of its kube-system namespace.
member_id() { member get namespace kube-system -o jsonpath='{.metadata.uid}'; }

# The Cluster on the hub: sets cluster_found, cluster_id, cluster_mode, cluster_ready, cluster_deleted.
read_cluster() { # NAME
    local template='{.metadata.name}|{.spec.id}|{.spec.syncMode}|{.status.conditions[?(@.type=="Ready")].status}|{.metadata.deletionTimestamp}'
    local text
    text=$(hub get clusters.cluster.karmada.io "$1" --ignore-not-found -o jsonpath="$template") || return 1
    IFS='|' read -r cluster_found cluster_id cluster_mode cluster_ready cluster_deleted <<<"$text"
}

# Why the hub did not tell about a Cluster.
explain_cluster() { # NAME
    case $(cat "$work/error") in
        *"doesn't have a resource type"* | *'could not find the requested resource'* | *'no matches for kind'*)
            say "$hub_server is no Karmada hub: it does not know clusters.cluster.karmada.io. Are the arguments in order (HUB_KUBECONFIG HUB_CONTEXT MEMBER_KUBECONFIG MEMBER_CONTEXT)?" ;;
        *'(Forbidden)'* | *' is forbidden'*)
            say "the credentials for the hub ($hub_user) are not for cluster $1: $(error_line). Make some: karmada-hub credentials --data-dir DIR --cluster $1" ;;
        *) explain "the hub" "$hub_server" ;;
    esac
}

# The agent on the member: sets agent_found, agent_by, agent_image, agent_cluster.
read_agent() {
    local template='{.metadata.name}|{.metadata.labels.app\.kubernetes\.io/managed-by}|{.spec.template.spec.containers[0].image}|{.spec.template.spec.containers[0].command}{.spec.template.spec.containers[0].args}'
    local text rest
    text=$(member -n "$namespace" get deployment karmada-agent --ignore-not-found -o jsonpath="$template") || return 1
    IFS='|' read -r agent_found agent_by agent_image rest <<<"$text"
    agent_cluster=$(sed -n 's/.*--cluster-name[= ",]*\([a-z0-9-]*\).*/\1/p' <<<"$rest")
}
