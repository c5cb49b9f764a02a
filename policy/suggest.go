package policy

import "strings"

// didYouMean is " (did you mean 'x'?)" for the known name closest to name, or
// nothing when none is close.
func didYouMean(name string, known []string) string {
	best, closest := "", 1<<30
	for _, k := range known {
		if d := distance(strings.ToLower(name), k); d < closest {
			best, closest = k, d
		}
	}
	// A third of the letters may differ; names that short need one equal.
	if best == "" || closest > max(1, len(name)/3) || closest >= len(best) {
		return ""
	}
	return " (did you mean '" + best + "'?)"
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbours between a and b, by bytes.
func distance(a, b string) int {
	const most = 64 // longer than any name worth a guess
	if len(a) > most || len(b) > most {
		return 1 << 20
	}
	var rows [3][most + 1]int
	older, prev, cur := &rows[0], &rows[1], &rows[2]
	for j := 0; j <= len(b); j++ {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, older[j-2]+1)
			}
			cur[j] = d
		}
		older, prev, cur = prev, cur, older
	}
	return prev[len(b)]
}
