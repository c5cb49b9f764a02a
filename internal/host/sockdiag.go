package host

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// askListeners asks the kernel for its listening sockets by NETLINK_SOCK_DIAG,
// which is what the program ss does. It serves where /proc shows none, and
// gives what it got when the kernel stops answering.
func askListeners() []Listener {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	patience := unix.Timeval{Sec: 1}
	if unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience) != nil {
		return nil
	}
	var out []Listener
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		out = askFamily(fd, family, out)
	}
	return out
}

const (
	diagByFamily  = 20 // SOCK_DIAG_BY_FAMILY
	stateListen   = 10 // TCP_LISTEN
	diagHead      = 16 // struct nlmsghdr
	diagRequest   = 56 // struct inet_diag_req_v2
	diagAnswer    = 72 // struct inet_diag_msg
	mostDatagrams = 1 << 14
)

func askFamily(fd int, family byte, to []Listener) []Listener {
	ask := make([]byte, diagHead+diagRequest)
	order := binary.NativeEndian
	order.PutUint32(ask, uint32(len(ask)))
	order.PutUint16(ask[4:], diagByFamily)
	order.PutUint16(ask[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	body := ask[diagHead:]
	body[0], body[1] = family, unix.IPPROTO_TCP
	order.PutUint32(body[4:], 1<<stateListen)
	if unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
		return to
	}
	buf := make([]byte, 64<<10)
	for range mostDatagrams {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return to
		}
		var last bool
		if to, last = parseDiag(buf[:n], to); last {
			return to
		}
	}
	return to
}

// parseDiag appends the sockets of one datagram; last is true for the end of
// the answer, and for what makes no sense.
func parseDiag(b []byte, to []Listener) (out []Listener, last bool) {
	order := binary.NativeEndian
	for len(b) >= diagHead {
		size, kind := order.Uint32(b), order.Uint16(b[4:])
		if size < diagHead || uint64(size) > uint64(len(b)) || kind != diagByFamily || len(to) >= mostListeners {
			return to, true // done, an error, or broken
		}
		if m := b[diagHead:size]; len(m) >= diagAnswer && m[1] == stateListen {
			l := Listener{
				Port: binary.BigEndian.Uint16(m[4:]), IPv6: m[0] == unix.AF_INET6,
				Addr: netip.AddrFrom4([4]byte(m[8:12])),
				UID:  order.Uint32(m[64:]), inode: uint64(order.Uint32(m[68:])),
			}
			if l.IPv6 {
				l.Addr = netip.AddrFrom16([16]byte(m[8:24]))
			}
			to = append(to, l)
		}
		b = b[min(uint64(len(b)), (uint64(size)+3)&^3):]
	}
	return to, false
}
