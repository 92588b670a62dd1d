# Completion of headgate's command line for bash.
_headgate() {
    local cur prev words cword
    _init_completion || return

    case $prev in
    -c)
        _filedir ini
        return
        ;;
    --reference)
        mapfile -t COMPREPLY < <(compgen -W "ini markdown cluster headgate.8 headgate.ini.5 headgate-admin.8" -- "$cur")
        return
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "-c -t -T -v -h --take-over --upgrade --ping --help --version --reference" -- "$cur")
} && complete -F _headgate headgate
