// SPDX-License-Identifier: Apache-2.0

// The rows of bench/collectors/rows.h on Go's collector: ROW SIZE prints one JSON object.
package main

import (
	"encoding/json"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	collections = 3
	treesLeast  = 4
	numbers     = 500_000
	usedNumber  = 1000
	liveNodes   = 12 << 20 / 64
	batch       = 32
	session     = 32
	textLength  = 16
	replyLength = 18
)

type node struct {
	to   [4]*node
	rest [4]uint64
}
type longBranch struct {
	left, right *longBranch
	rest        [2]uint64
}
type branch struct{ left, right *branch }
type pair struct {
	to   *pair
	rest uint64
}
type message struct {
	to          *node
	header      *longBranch
	text, reply *float64
	rest        [4]uint64
}
type treeNode struct {
	left, right *treeNode
	i, j        int32
}

var (
	heldNode *node
	heldLong *longBranch
	seen     *pair
	seenNode *treeNode

	heldMessage *message
	heldNumbers []float64
)

func below(state *uint64, n uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	z ^= z >> 31
	return (z >> 32) * n >> 32
}

func cpu() int64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		os.Exit(1)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// peakKiB returns VmHWM of this program; getrusage would include what the process held before exec.
func peakKiB() float64 {
	status, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(status), "\n") {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "VmHWM:" {
			kib, _ := strconv.ParseFloat(words[1], 64)
			return kib
		}
	}
	return 0
}

func report(cpuNs, wallNs int64, each float64) {
	figures := map[string]float64{"cpu_ns": float64(cpuNs) / each, "wall_ns": float64(wallNs) / each,
		"peak_kib": peakKiB()}
	if json.NewEncoder(os.Stdout).Encode(figures) != nil {
		os.Exit(1)
	}
}

func timeCollections() {
	debug.SetGCPercent(100)
	runtime.GC()
	var leastCPU, leastWall int64 = 1 << 62, 1 << 62
	for i := 0; i < collections; i++ {
		before, start := cpu(), time.Now()
		runtime.GC()
		leastWall = min(leastWall, time.Since(start).Nanoseconds())
		leastCPU = min(leastCPU, cpu()-before)
	}
	report(leastCPU, leastWall, 1)
}

func makeNodes(count int) []*node {
	debug.SetGCPercent(-1)
	nodes := make([]*node, count)
	for i := range nodes {
		nodes[i] = new(node)
	}
	heldNode = nodes[0]
	return nodes
}

func randomGraph(count int) {
	nodes, state := makeNodes(count), uint64(1)
	for _, each := range nodes {
		for e := range each.to {
			each.to[e] = nodes[below(&state, uint64(count))]
		}
	}
}

func linkedList(count int, shuffled bool) {
	nodes, state := makeNodes(count), uint64(1)
	for i := count - 1; shuffled && i > 0; i-- {
		j := below(&state, uint64(i)+1)
		nodes[i], nodes[j] = nodes[j], nodes[i]
	}
	heldNode = nodes[0]
	for i := 0; i+1 < count; i++ {
		nodes[i].to[0] = nodes[i+1]
	}
}

func growLong(depth int) *longBranch {
	made := new(longBranch)
	if depth > 0 {
		made.left, made.right = growLong(depth-1), growLong(depth-1)
	}
	return made
}

func grow(depth int) *branch {
	if depth == 0 {
		return new(branch)
	}
	made := new(branch)
	made.left, made.right = grow(depth-1), grow(depth-1)
	return made
}

func (tree *branch) count() int {
	if tree.left == nil {
		return 1
	}
	return 1 + tree.left.count() + tree.right.count()
}

func binaryTrees(depth int) {
	before, start := cpu(), time.Now()
	sum := grow(depth + 1).count()
	lives := grow(depth)
	for d := treesLeast; d <= depth; d += 2 {
		for i := 0; i < 1<<(depth-d+treesLeast); i++ {
			sum += grow(d).count()
		}
	}
	if sum += lives.count(); sum == 0 {
		os.Exit(1)
	}
	wall := time.Since(start).Nanoseconds()
	report(cpu()-before, wall, 1)
}

func growUpwards(depth int) *treeNode {
	if depth == 0 {
		return new(treeNode)
	}
	left, right := growUpwards(depth-1), growUpwards(depth-1)
	return &treeNode{left: left, right: right}
}

func (top *treeNode) growDownwards(depth int) {
	if depth > 0 {
		top.left, top.right = new(treeNode), new(treeNode)
		top.left.growDownwards(depth - 1)
		top.right.growDownwards(depth - 1)
	}
}

func plant(depth int) *treeNode {
	top := new(treeNode)
	top.growDownwards(depth)
	return top
}

func (top *treeNode) count() int {
	if top.left == nil {
		return 1
	}
	return 1 + top.left.count() + top.right.count()
}

func treeSize(depth int) int { return 2<<depth - 1 }

func gcBench(stretch int) {
	before, start := cpu(), time.Now()
	seenNode = plant(stretch)
	lives := plant(stretch - 2)
	array := make([]float64, numbers)
	for i := 1; i <= numbers/2; i++ {
		array[i] = 1 / float64(i)
	}
	for depth := treesLeast; depth <= stretch-2; depth += 2 {
		count := 2 * treeSize(stretch) / treeSize(depth)
		for i := 0; i < count; i++ {
			seenNode = plant(depth)
		}
		for i := 0; i < count; i++ {
			seenNode = growUpwards(depth)
		}
	}
	if lives.count() != treeSize(stretch-2) || array[usedNumber] != 1.0/usedNumber {
		os.Exit(1)
	}
	wall := time.Since(start).Nanoseconds()
	report(cpu()-before, wall, 1)
}

func new16(count int) {
	debug.SetGCPercent(-1)
	for i := 0; i < count; i++ {
		seen = new(pair)
	}
	seen = nil
	runtime.GC()
	before, start := cpu(), time.Now()
	for i := 0; i < count; i++ {
		seen = new(pair)
	}
	wall := time.Since(start).Nanoseconds()
	report(cpu()-before, wall, float64(count))
}

// messages runs the messages of bench_collectors.c with all objects on the heap, and prints the
// number of collections and how long they stopped the world.
func messages(count int) {
	var live *node
	for i := 0; i < liveNodes; i++ {
		made := new(node)
		made.to[0] = live
		live = made
	}
	heldNode = live
	runtime.GC()
	var first, last runtime.MemStats
	runtime.ReadMemStats(&first)
	before := cpu()
	for i := 0; i < count; i++ {
		if i%batch == 0 {
			heldNumbers = make([]float64, session)
		}
		header, text, reply := new(longBranch), make([]float64, textLength), make([]float64, replyLength)
		for k := range text {
			text[k] = float64(k)
			reply[k] = float64(k)
		}
		heldMessage = &message{to: live, header: header, text: &text[0], reply: &reply[0]}
		if (i+1)%batch == 0 {
			heldMessage = nil
		}
	}
	each := float64(cpu()-before) / float64(count)
	runtime.ReadMemStats(&last)
	figures := map[string]float64{"collections": float64(last.NumGC - first.NumGC),
		"pause_ns": float64(last.PauseTotalNs - first.PauseTotalNs), "cpu_ns": each}
	if heldNode != live || json.NewEncoder(os.Stdout).Encode(figures) != nil {
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) != 3 {
		os.Exit(2)
	}
	size, err := strconv.Atoi(os.Args[2])
	if err != nil {
		os.Exit(2)
	}
	switch os.Args[1] {
	case "random":
		randomGraph(size)
		timeCollections()
	case "list", "shuffled":
		linkedList(size, os.Args[1] == "shuffled")
		timeCollections()
	case "tree":
		debug.SetGCPercent(-1)
		heldLong = growLong(size)
		timeCollections()
	case "trees":
		binaryTrees(size)
	case "gcbench":
		gcBench(size)
	case "new16":
		new16(size)
	case "messages":
		messages(size)
	default:
		os.Exit(2)
	}
}
