package browser

// refs are the elements that a snapshot has named, until the page is another.
type refs struct {
	byNode map[int]int // backend node id → N of eN
	nodes  []int       // backend node ids, that of e1 first
}
