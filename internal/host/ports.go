package host

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net/netip"
	"strconv"
)

// Listener is a TCP socket that waits for connections.
type Listener struct {
	Port uint16
	IPv6 bool
	Addr netip.Addr // an IPv4 address in IPv6 form where the socket is IPv6
	UID  uint32     // of the user who made it

	// PID is the process that holds the socket, the one with the lowest number
	// when several do; 0 when none can be seen. Process is its command name.
	PID     int
	Process string

	inode uint64
}

const (
	mostListeners = 1 << 16
	// mostSockets bounds how many lines of other sockets are passed over.
	mostSockets = 1 << 22
	longestLine = 4096
)

// Listeners lists the listening TCP sockets of the server's network, IPv4
// before IPv6, else in the kernel's order, with the processes that hold them.
// The error is that of ctx.
func (h *Host) Listeners(ctx context.Context) ([]Listener, error) {
	var found []Listener
	for _, table := range []struct {
		file string
		ipv6 bool
	}{{"/proc/net/tcp", false}, {"/proc/net/tcp6", true}} {
		f, err := openRegular(h.root + table.file)
		if err != nil {
			continue
		}
		found, err = readListeners(ctx, f, table.ipv6, found)
		_ = f.Close()
		if err != nil {
			return nil, err
		}
	}
	if len(found) == 0 && h.root == "" {
		// We listen ourselves, so the tables are not what they should be.
		found = askListeners()
	}
	return found, h.findOwners(ctx, found)
}

// readListeners appends the listening sockets of a table. What cannot be read
// ends it; only the end of ctx is an error.
func readListeners(ctx context.Context, r io.Reader, ipv6 bool, to []Listener) ([]Listener, error) {
	lines := bufio.NewReaderSize(r, longestLine)
	for n := 0; n < mostSockets && len(to) < mostListeners; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		line, _, err := nextLine(lines)
		if l, ok := parseListener(line, ipv6); ok {
			to = append(to, l)
		}
		if err != nil {
			return to, nil
		}
	}
	return to, nil
}

// nextLine is the next line without its end, valid until the next call. One
// that does not fit the reader is passed over: it is nothing, and over is true.
func nextLine(r *bufio.Reader) (line []byte, over bool, err error) {
	line, err = r.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) {
		over = true
		_, err = r.ReadSlice('\n')
	}
	if over {
		return nil, true, err
	}
	return bytes.TrimSuffix(line, []byte("\n")), false, err
}

// listening is TCP_LISTEN as the tables write it.
const listening = "0A"

// parseListener reads a line of /proc/net/tcp or tcp6; ok is false for
// sockets in another state and for what is no such line.
func parseListener(line []byte, ipv6 bool) (l Listener, ok bool) {
	// sl local remote st tx:rx tr:when retrnsmt uid timeout inode …
	f := bytes.Fields(line)
	if len(f) < 10 || string(f[3]) != listening {
		return Listener{}, false
	}
	addr, port, found := bytes.Cut(f[1], []byte(":"))
	if !found || len(port) != 4 {
		return Listener{}, false
	}
	p, err := strconv.ParseUint(string(port), 16, 16)
	if err != nil {
		return Listener{}, false
	}
	l = Listener{Port: uint16(p), IPv6: ipv6}
	if l.Addr, ok = parseAddr(addr, ipv6); !ok {
		return Listener{}, false
	}
	uid, err := strconv.ParseUint(string(f[7]), 10, 32)
	if err != nil {
		return Listener{}, false
	}
	l.UID = uint32(uid)
	l.inode, err = strconv.ParseUint(string(f[9]), 10, 64)
	return l, err == nil
}

// parseAddr reads an address. The kernel prints it as numbers of 32 bits in
// the machine's order whose bytes lie in the network's.
func parseAddr(text []byte, ipv6 bool) (netip.Addr, bool) {
	var b [16]byte
	size := 4
	if ipv6 {
		size = 16
	}
	if len(text) != 2*size {
		return netip.Addr{}, false
	}
	if _, err := hex.Decode(b[:size], text); err != nil {
		return netip.Addr{}, false
	}
	for i := 0; i < size; i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	if ipv6 {
		return netip.AddrFrom16(b), true
	}
	return netip.AddrFrom4([4]byte(b[:4])), true
}
