package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rogpeppe/go-internal/txtar"
)

const (
	headV4 = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	headV6 = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	restV4 = " 00000000:00000000 00:00000000 00000000 "
)

var sameListener = []cmp.Option{cmp.AllowUnexported(Listener{}), cmpopts.EquateComparable(netip.Addr{})}

// table is a table of the kernel as a machine with its lowest byte first
// prints it.
func table(t testing.TB, head string, lines ...string) string {
	t.Helper()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("recorded on a machine of the other order")
	}
	return head + strings.Join(lines, "\n") + "\n"
}

func TestListenersOfARecordedMachine(t *testing.T) {
	tree := &txtar.Archive{Files: []txtar.File{
		{Name: "proc/net/tcp", Data: []byte(table(t, headV4,
			"   0: 00000000:07E8 00000000:0000 0A"+restV4+"    0        0 1076 1 0000000011677d43 100 0 0 10 0",
			"   1: 0100007F:1F90 00000000:0000 0A"+restV4+" 1000        0 2001 1 0000000011677d43 100 0 0 10 0",
			"   2: 0100007F:1F90 0100007F:C000 01"+restV4+" 1000        0 2002 1 0000000011677d43 20 4 30 10 -1",
			"   3: 0100007F:1F90 0100007F:C001 06"+restV4+"    0        0 0 3 0000000011677d43",
			"   4: 0200000A:FFFF 00000000:0000 0A"+restV4+"4294967294        0 2003 1 0000000011677d43 100 0 0 10 0",
		))},
		{Name: "proc/net/tcp6", Data: []byte(table(t, headV6,
			"   0: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A"+restV4+"    0        0 3001 1 0 100 0 0 10 0",
			"   1: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A"+restV4+"    0        0 3002 1 0 100 0 0 10 0",
			"   2: 000080FE00000000FF005450AB9A78FE:0016 00000000000000000000000000000000:0000 0A"+restV4+"    0        0 3003 1 0 100 0 0 10 0",
			"   3: 0000000000000000FFFF00000100007F:0017 00000000000000000000000000000000:0000 0A"+restV4+"    0        0 3004 1 0 100 0 0 10 0",
		))},
		{Name: "proc/70/comm", Data: []byte("a (b) c\n")},
		{Name: "proc/8/comm", Data: []byte("first\xff\n")},
	}}
	h := planted(t, tree)
	hold := func(pid, fd, target string) {
		t.Helper()
		dir := filepath.Join(h.root, "proc", pid, "fd")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink(target, filepath.Join(dir, fd))); err != nil {
			t.Fatal(err)
		}
	}
	hold("70", "3", "socket:[2001]")
	hold("70", "0", "/dev/null")
	hold("70", "4", "socket:[3002]")
	hold("8", "5", "socket:[3002]") // both hold it: the lower number is the parent
	hold("8", "6", "pipe:[2003]")
	hold("8", "7", "socket:[2003")
	hold("8", "8", strings.Repeat("x", 200))

	got, err := h.Listeners(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a := netip.MustParseAddr
	want := []Listener{
		{Port: 2024, Addr: a("0.0.0.0"), inode: 1076},
		{Port: 8080, Addr: a("127.0.0.1"), UID: 1000, PID: 70, Process: "a (b) c", inode: 2001},
		{Port: 65535, Addr: a("10.0.0.2"), UID: 4294967294, inode: 2003},
		{Port: 80, IPv6: true, Addr: a("::"), inode: 3001},
		{Port: 8080, IPv6: true, Addr: a("::1"), PID: 8, Process: "first\uFFFD", inode: 3002},
		{Port: 22, IPv6: true, Addr: a("fe80::5054:ff:fe78:9aab"), inode: 3003},
		{Port: 23, IPv6: true, Addr: a("::ffff:127.0.0.1"), inode: 3004},
	}
	if diff := cmp.Diff(want, got, sameListener...); diff != "" {
		t.Error(diff)
	}
}

func TestATableOfOddThingsGivesWhatItHolds(t *testing.T) {
	good := "   1: 0100007F:1F90 00000000:0000 0A" + restV4 + " 1000        0 2001 1 0 100 0 0 10 0"
	text := table(t, headV4, strings.Repeat("9", 3*longestLine), good, "", "1: 0100007F:1F90", good+strings.Repeat(" 0", longestLine), good)
	got, err := readListeners(t.Context(), strings.NewReader(strings.TrimSuffix(text, "\n")), false, nil)
	if err != nil || len(got) != 2 {
		t.Errorf("%v %v", got, err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := readListeners(stopped, strings.NewReader(text), false, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := planted(t, &txtar.Archive{}).Listeners(stopped); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// listenOn opens a listener, or skips where there is no such network.
func listenOn(t *testing.T, network, addr string) uint16 {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func find(all []Listener, port uint16) []Listener {
	return slices.DeleteFunc(slices.Clone(all), func(l Listener) bool { return l.Port != port })
}

func TestOurOwnListenersAreFoundWithAddressAndProcess(t *testing.T) {
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ network, addr, want string }{
		{"tcp4", "127.0.0.1:0", "127.0.0.1"},
		{"tcp6", "[::1]:0", "::1"},
	} {
		t.Run(c.want, func(t *testing.T) {
			port := listenOn(t, c.network, c.addr)
			want := []Listener{{
				Port: port, IPv6: c.network == "tcp6", Addr: netip.MustParseAddr(c.want), UID: uint32(os.Getuid()),
				PID: os.Getpid(), Process: strings.TrimSuffix(string(comm), "\n"),
			}}
			got, err := New().Listeners(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ignore := append(slices.Clone(sameListener), cmpopts.IgnoreFields(Listener{}, "inode"))
			if diff := cmp.Diff(want, find(got, port), ignore...); diff != "" {
				t.Error(diff)
			}
			// The other way to ask says the same.
			asked := find(askListeners(), port)
			want[0].PID, want[0].Process = 0, ""
			if diff := cmp.Diff(want, asked, ignore...); diff != "" {
				t.Errorf("by netlink: %s", diff)
			}
			if len(asked) == 1 && asked[0].inode != find(got, port)[0].inode {
				t.Errorf("inode %d by netlink, %d in the table", asked[0].inode, find(got, port)[0].inode)
			}
		})
	}
}

func TestAListenerInAChildIsTheChilds(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	cmd.ExtraFiles = []*os.File{f}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if err := errors.Join(f.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	got, err := New().Listeners(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mine := find(got, port)
	if len(mine) != 1 || mine[0].PID != cmd.Process.Pid || mine[0].Process != "sleep" {
		t.Errorf("got %+v, want the sleep of pid %d", mine, cmd.Process.Pid)
	}
}

func FuzzProcNetTCP(f *testing.F) {
	f.Add("   1: 0100007F:1F90 00000000:0000 0A"+restV4+" 1000        0 2001 1 0", false)
	f.Add("   2: 000080FE00000000FF005450AB9A78FE:0016 00000000000000000000000000000000:0000 0A"+restV4+"    0        0 3003", true)
	f.Fuzz(func(t *testing.T, text string, ipv6 bool) {
		got, err := readListeners(t.Context(), strings.NewReader(text), ipv6, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range got {
			if l.IPv6 != ipv6 || !l.Addr.IsValid() || l.Addr.Is4() == ipv6 {
				t.Fatalf("%+v from %q", l, text)
			}
			// What was read and is written as the kernel does reads the same.
			again, ok := parseListener([]byte(kernelLine(l)), ipv6)
			if !ok || again != l {
				t.Fatalf("%+v became %+v", l, again)
			}
		}
	})
}

// kernelLine writes a listener as the kernel does.
func kernelLine(l Listener) string {
	raw := l.Addr.AsSlice()
	addr := ""
	for i := 0; i < len(raw); i += 4 {
		addr += fmt.Sprintf("%08X", binary.NativeEndian.Uint32(raw[i:]))
	}
	return fmt.Sprintf("%4d: %s:%04X %s:%04X 0A%s%5d %8d %d 1 0", 0, addr, l.Port, strings.Repeat("0", len(addr)), 0, restV4, l.UID, 0, l.inode)
}

func FuzzSockDiag(f *testing.F) {
	message := make([]byte, diagHead+diagAnswer)
	binary.NativeEndian.PutUint32(message, uint32(len(message)))
	binary.NativeEndian.PutUint16(message[4:], diagByFamily)
	message[diagHead], message[diagHead+1] = 10, stateListen
	f.Add(message)
	f.Add(append(slices.Clone(message), message...))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, _ := parseDiag(b, nil)
		if len(got)*diagAnswer > len(b) {
			t.Fatalf("%d sockets in %d bytes", len(got), len(b))
		}
	})
}
