# bash completion for liqo-agent. Load it with:
#   source <(liqo-agent completion bash)
# or write it to /etc/bash_completion.d/liqo-agent.

_liqo_agent() {
    local words=() word line value strip="" i
    # bash splits words at "=" (COMP_WORDBREAKS); put "--name=value" together again.
    for ((i = 1; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ ${#words[@]} -gt 0 && ${words[-1]} == --* && ($word == "=" || ${words[-1]} == *=) ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
    done
    word=${words[-1]}
    [[ $word == --*=* && ${COMP_WORDBREAKS} == *=* ]] && strip=${word%%=*}=
    # What is being typed may carry quotes and backslashes.
    for i in "${!words[@]}"; do
        word=${words[i]//\\/}
        word=${word#[\"\']}
        words[i]=${word%[\"\']}
    done

    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $line == ":files" ]]; then
            compopt -o default 2>/dev/null
            return
        fi
        value=${line%%$'\t'*}
        value=${value#"$strip"}
        printf -v value '%q' "$value"
        COMPREPLY+=("$value")
    done < <("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null)
}

complete -F _liqo_agent liqo-agent
