package command

import "strings"

// Nearest returns the candidate that a person most likely meant, or "" when
// none is near.
func Nearest(word string, candidates []string) string {
	best, at := "", max(2, len(word)/2)+1
	for _, c := range candidates {
		d := distance(word, c)
		if len(word) > 1 && (strings.HasPrefix(c, word) || strings.HasPrefix(word, c)) {
			d = min(d, 1)
		}
		if d < at {
			best, at = c, d
		}
	}
	return best
}

// distance is the number of insertions, deletions, replacements and swaps of
// neighbours between two words.
func distance(a, b string) int {
	// Words longer than any name are no typing mistakes, and must not cost
	// their length squared.
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
