# Runs cells for a context: reads them from descriptor 4, tells results on 5.
# Standard output and error belong to the cells; a mark ends each cell's part.
_abx_status=0
_abx_running=

_abx_cell() {
	eval "$1"
}

_abx_last() {
	return "$_abx_status"
}

# After an interrupt every command that is left of the cell is skipped: with
# extdebug the shell returns from each function and sourced file when what runs
# before a command says 2.
_abx_interrupt() {
	if [[ -n $_abx_running ]]; then
		shopt -s extdebug
		trap _abx_skip DEBUG
	fi
}

_abx_skip() {
	local at
	for at in "${FUNCNAME[@]}"; do
		[[ $at == _abx_cell ]] && return 2
	done
	trap - DEBUG
	shopt -u extdebug
}

trap _abx_interrupt INT

while true; do
	IFS= read -r -d '' _abx_mark <&4 && IFS= read -r -d '' _abx_code <&4
	_abx_got=$?
	if ((_abx_got > 128)); then # an interrupt that came too late
		continue
	elif ((_abx_got)); then
		break
	fi
	_abx_running=1
	_abx_last
	_abx_cell "$_abx_code" 4<&- 5>&-
	_abx_status=$?
	_abx_running=
	printf %s "$_abx_mark"
	printf %s "$_abx_mark" >&2
	printf '{"type":"done","status":%d}\n' "$_abx_status" >&5
done
