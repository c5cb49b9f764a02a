# Runs cells for a context: reads them from descriptor 4, tells results on 5.
# Standard output and error belong to the cells; a mark ends each cell's part.
_abx_status=0

_abx_cell() {
	eval "$1"
}

_abx_last() {
	return "$_abx_status"
}

# An interrupt skips every command that is left of the cell: with extdebug the
# shell returns from each function and sourced file when this says 2.
_abx_interrupt() {
	if [[ -n $_abx_running ]]; then
		shopt -s extdebug
		trap 'return 2' DEBUG
	fi
}

trap _abx_interrupt INT

while IFS= read -r -d '' _abx_mark <&4 && IFS= read -r -d '' _abx_code <&4; do
	_abx_running=1
	_abx_last
	_abx_cell "$_abx_code" 4<&- 5>&-
	_abx_status=$?
	trap - DEBUG
	_abx_running=
	shopt -u extdebug
	printf %s "$_abx_mark"
	printf %s "$_abx_mark" >&2
	printf '{"type":"done","status":%d}\n' "$_abx_status" >&5
done
