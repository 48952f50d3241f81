# Which fuzz targets there are, in the order in which somebody from outside comes upon what they are about, and what libFuzzer is
# told of each. For run.sh and campaign.sh.

# Everybody, agents, users, members and their scripts.
targets=(
    request token body protobuf apply strategic_merge json_patch merge_patch continue_token selectors field_paths quantity
    certificate_request cel definition works members webhook_answer service_answer lua_script lua_values tables kubeconfig
)

# The longest input of a target: as long as one needs to be that holds something of everything. Longer ones make it slower, and a
# seed that is longer is cut.
length() {
    case $1 in
        quantity) echo 64 ;;
        continue_token | merge_patch | field_paths | selectors) echo 512 ;;
        request | json_patch | apply | strategic_merge | definition | cel) echo 1024 ;;
        *) echo 4096 ;;
    esac
}

# Words that bytes alone would hardly come upon.
dictionary() {
    case $1 in
        request | token | cel | selectors | quantity) echo "fuzz/dictionaries/$1.dict" ;;
        body | kubeconfig) echo "fuzz/dictionaries/yaml.dict" ;;
        lua_script) echo "fuzz/dictionaries/lua.dict" ;;
        works | members | webhook_answer | service_answer | lua_values | tables | continue_token) echo "fuzz/dictionaries/json.dict" ;;
    esac
}

# What libFuzzer is told of a target, as arguments.
arguments() {
    local words
    words=$(dictionary "$1")
    echo "-max_len=$(length "$1") -timeout=${FUZZ_TIMEOUT:-10} -rss_limit_mb=1500 ${words:+-dict=$words}"
}

# Puts into a directory what was kept of a target: the seeds that somebody wrote, and those that the campaign found.
unpack() {
    local kept="fuzz/seeds/$1.tar.gz"
    mkdir -p "$2" "fuzz/seeds/$1"
    [ ! -e "$kept" ] || tar -xzf "$kept" -C "$2"
    find "fuzz/seeds/$1" -type f -exec cp -t "$2" {} +
}
