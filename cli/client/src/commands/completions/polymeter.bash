# Completion of polymeter in bash.
_polymeter() {
    local line=${COMP_LINE:0:COMP_POINT} words=() i word
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        # Bash splits words at = and : also where no blank separates them.
        if ((i > 0)) && [[ $line != [[:blank:]]* ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        line=${line#"${line%%[![:blank:]]*}"}
        line=${line#"$word"}
    done
    # Bash replaces the part behind the last split only.
    local last=$((${#words[@]} - 1))
    local prefix=${words[last]%"$2"} candidates
    words[last]=${words[last]#[\"\']}
    prefix=${prefix#[\"\']}
    mapfile -t candidates < <(_POLYMETER_COMPLETE=bash _CLAP_COMPLETE_INDEX=$last _CLAP_IFS=$'\n' \
        polymeter -- "${words[@]}" 2>/dev/null)
    COMPREPLY=()
    for word in "${candidates[@]}"; do
        [[ -n $word ]] || continue
        word=${word#"$prefix"}
        [[ $word == *[[:space:]]* ]] && printf -v word %q "$word"
        COMPREPLY+=("$word")
    done
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=:/] ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -o bashdefault -o default -o nosort -F _polymeter polymeter
