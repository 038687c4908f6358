# Types words and a tab in an interactive zsh, and prints what it shows until that contains EXPECTED, at most 20 s:
# complete.zsh EXPECTED WORDS. The function `_polymeter` is in FPATH, as in an installation.
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PS1=; unsetopt zle_bracketed_paste; autoload -Uz compinit && compinit -D -u; echo ready-$((1 + 1))'
line=
while zpty -r shell line; do [[ $line == *ready-2* ]] && break; done
zpty -w -n shell "$2"$'\t'
shown=
for i in {1..200}; do
    sleep 0.1
    while zpty -r -t shell line; do shown+=$line; done
    [[ $shown == *$1* ]] && break
done
print -r -- "$shown"
zpty -d shell
