#compdef liqo-agent
# zsh completion for liqo-agent. Load it with:
#   source <(liqo-agent completion zsh)
# or write it to a file called _liqo-agent in a directory of $fpath.

_liqo_agent() {
    local -a lines candidates
    local line value text
    lines=("${(@f)$("${(Q)words[1]}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ ${lines[1]} == ":files" ]]; then
        _files
        return
    fi
    for line in "${lines[@]}"; do
        [[ -n $line ]] || continue
        value=${line%%$'\t'*}
        text=${line#*$'\t'}
        candidates+=("${value//:/\\:}:$text")
    done
    _describe 'liqo-agent' candidates
}

if [[ ${funcstack[1]} == _liqo-agent ]]; then
    _liqo_agent "$@"
else
    compdef _liqo_agent liqo-agent
fi
