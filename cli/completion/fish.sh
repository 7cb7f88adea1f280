# fish completion for liqo-agent. Load it with:
#   liqo-agent completion fish | source
# or write it to ~/.config/fish/completions/liqo-agent.fish.

function __liqo_agent_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
    if test "$lines[1]" = ":files"
        __fish_complete_path "$current"
        return
    end
    if test (count $lines) -gt 0
        printf '%s\n' $lines
    end
end

complete -c liqo-agent -f -a '(__liqo_agent_complete)'
