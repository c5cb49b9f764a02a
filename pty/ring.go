package pty

// ringMin is the first allocation of a ring: a prompt and a few answers.
const ringMin = 4 << 10

// ring keeps the newest bytes of a stream, at most max of them, and knows
// their offsets in it. Memory grows with what is kept. It is not safe for
// concurrent use.
type ring struct {
	buf        []byte // byte n of the stream is at buf[n % len(buf)]
	max        int
	start, end int64 // the stream's bytes [start, end) are kept
}

// write appends p; the oldest bytes fall out.
func (r *ring) write(p []byte) {
	if over := len(p) - r.max; over > 0 {
		r.end += int64(over)
		r.start = r.end
		p = p[over:]
	}
	r.grow(len(p))
	for len(p) > 0 {
		n := copy(r.buf[r.end%int64(len(r.buf)):], p)
		r.end += int64(n)
		p = p[n:]
	}
	r.start = max(r.start, r.end-int64(r.max))
}

// grow makes room for n more bytes as far as max allows.
func (r *ring) grow(n int) {
	need := min(r.max, int(r.end-r.start)+n)
	if need <= len(r.buf) {
		return
	}
	r.resize(min(r.max, max(need, 2*len(r.buf), ringMin)))
}

// trim gives back the memory that holds no bytes.
func (r *ring) trim() {
	if n := int(r.end - r.start); n < len(r.buf) {
		r.resize(n)
	}
}

// resize moves what is kept to a buffer of n bytes, which must hold it.
func (r *ring) resize(n int) {
	buf := make([]byte, n)
	for off := r.start; off < r.end; {
		from := r.buf[off%int64(len(r.buf)):]
		from = from[:min(int64(len(from)), r.end-off)]
		off += int64(copy(buf[off%int64(n):], from))
	}
	r.buf = buf
}

// clamp is the offset nearest to off at which reading can begin.
func (r *ring) clamp(off int64) int64 { return min(max(off, r.start), r.end) }

// read copies the bytes from the clamped off on into p.
func (r *ring) read(off int64, p []byte) (from int64, n int) {
	from = r.clamp(off)
	p = p[:min(int64(len(p)), r.end-from)]
	for n < len(p) {
		at := from + int64(n)
		n += copy(p[n:], r.buf[at%int64(len(r.buf)):])
	}
	return from, n
}
