package main

import "testing"

func TestOnlyUnwrittenPagesOfTheProgramAreGivenBack(t *testing.T) {
	tests := []struct {
		line string
		want bool
	}{
		{"00400000-00a00000 r-xp 00000000 fe:00 123                       /bin/server", true},
		{"00a00000-01400000 r--p 00600000 fe:00 123                       /bin/server", true},
		{"01400000-01500000 rw-p 01000000 fe:00 123                       /bin/server", false},
		{"01500000-01600000 rw-p 00000000 00:00 0 ", false},
		{"00400000-00a00000 r-xp 00000000 fe:00 123                       /lib/other", false},
		{"00400000-00a00000 r-xs 00000000 fe:00 123                       /bin/server", false},
		{"00a00000-00400000 r-xp 00000000 fe:00 123                       /bin/server", false},
		{"zz-00400000 r-xp 00000000 fe:00 123                       /bin/server", false},
		{"", false},
	}
	for _, tt := range tests {
		if _, _, ok := readOnlyPart(tt.line, "/bin/server"); ok != tt.want {
			t.Errorf("%q: %v", tt.line, ok)
		}
	}
	trim() // and the test goes on
}
