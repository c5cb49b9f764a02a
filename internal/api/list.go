package api

// List is a JSON array that is built item by item and held as text, for
// answers of many items. The zero List is empty.
type List struct {
	chunks [][]byte
	n      int
	size   int64
}

// listChunk is how much text is held in one piece, so that growing never
// copies what is there.
const listChunk = 64 << 10

// Add appends an item: encode appends its JSON text to what it is given.
func (l *List) Add(encode func(dst []byte) []byte) {
	last := len(l.chunks) - 1
	if last < 0 || len(l.chunks[last]) > listChunk*3/4 {
		l.chunks = append(l.chunks, make([]byte, 0, listChunk))
		last++
	}
	dst := l.chunks[last]
	before := len(dst)
	if l.n > 0 {
		dst = append(dst, ',')
	}
	dst = encode(dst)
	l.chunks[last] = dst
	l.size += int64(len(dst) - before)
	l.n++
}

// Len is the number of items.
func (l *List) Len() int { return l.n }

// Size is the number of bytes of the text so far.
func (l *List) Size() int64 { return l.size }

// List adds a member of many items. l must not change until the answer was sent.
func (o *Object) List(name string, l *List) {
	o.key(name)
	o.raw([]byte{'['})
	for _, chunk := range l.chunks {
		o.raw(chunk)
	}
	o.raw([]byte{']'})
}

// Append appends the name as [Name.MarshalJSON] writes it.
func (n Name) Append(dst []byte) []byte { return appendText(dst, string(n), true) }

// AppendUTF8 appends text as a JSON string; bytes that are not UTF-8 become
// U+FFFD, each.
func AppendUTF8(dst, text []byte) []byte {
	return append(appendUTF8(append(dst, '"'), text), '"')
}
