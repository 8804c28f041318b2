// SPDX-License-Identifier: Apache-2.0

// The rows of bench_arenas on Go's heap, arenas and sync.Pool. It prints one JSON object with
// nanoseconds per object by SIDE/ROW. Build it with GOEXPERIMENT=arenas. A batch of objects is kept
// in an array until its end, then dropped or freed. Sides of the service row: static reuses the
// same blocks for every message; one has an arena per message.
//
//	workers THREADS MESSAGES CONNECTIONS RATE
//
// prints the service with that many workers instead: checksum, cpu_ns per message and, with a rate
// of messages per second above 0, p50_ns, p99_ns and p999_ns, each by SIDE.
package main

import (
	"arena"
	"encoding/json"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

const (
	objects = 1024
	slices  = 32
	rounds  = 7
)

type small struct{ words [2]int64 }
type large struct{ words [4]int64 }

var (
	smalls [objects]*small
	larges [objects]*large
	parts  [slices][]byte
	pool   sync.Pool
)

var sides = []struct {
	name  string
	from  strategy
	batch uint64
}{{"heap", ofHeap, 0}, {"arena", ofArena, batchOf}, {"one", ofArena, 1}, {"static", ofBlocks, 0}}

// least returns the lowest nanoseconds per object of several rounds of at least the given seconds.
func least(each int, seconds float64, batch func()) float64 {
	best := 0.0
	for round := 0; round < rounds; round++ {
		start, done := time.Now(), 0
		for time.Since(start).Seconds() < seconds {
			for i := 0; i < 8; i++ {
				batch()
			}
			done += 8
		}
		ns := float64(time.Since(start).Nanoseconds()) / float64(done*each)
		if round == 0 || ns < best {
			best = ns
		}
	}
	return best
}

// number returns an argument; a wrong one ends the program.
func number(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || value < 0 {
		os.Exit(2)
	}
	return value
}

// printWorkers serves with each side, and prints what it took.
func printWorkers(each load) {
	figures := map[string]map[string]float64{}
	for _, side := range sides {
		runtime.GC() // collect the garbage of the previous side
		cpu, checksum, latencies := serveWith(each, side.from, side.batch)
		made := map[string]float64{"cpu_ns": cpu, "checksum": float64(uint32(checksum))}
		for name, share := range map[string]float64{"p50_ns": 0.5, "p99_ns": 0.99, "p999_ns": 0.999} {
			if len(latencies) > 0 {
				made[name] = float64(latencies[int(share*float64(len(latencies)-1))])
			}
		}
		figures[side.name] = made
	}
	if err := json.NewEncoder(os.Stdout).Encode(figures); err != nil {
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) == 6 && os.Args[1] == "workers" {
		printWorkers(load{int(number(os.Args[2])), uint64(number(os.Args[3])),
			uint32(number(os.Args[4])), number(os.Args[5])})
		return
	}
	seconds, messages := 0.05, uint64(320_000)
	if len(os.Args) > 1 && os.Args[1] == "quick" {
		seconds, messages = 0.001, 3200
	}
	figures := map[string]float64{
		"heap/new_16": least(objects, seconds, func() {
			for i := range smalls {
				smalls[i] = new(small)
			}
		}),
		"arena/new_16": least(objects, seconds, func() {
			a := arena.NewArena()
			for i := range smalls {
				smalls[i] = arena.New[small](a)
			}
			a.Free()
		}),
		"heap/new_32": least(objects, seconds, func() {
			for i := range larges {
				larges[i] = new(large)
			}
		}),
		"arena/new_32": least(objects, seconds, func() {
			a := arena.NewArena()
			for i := range larges {
				larges[i] = arena.New[large](a)
			}
			a.Free()
		}),
		"heap/slice_1k": least(slices, seconds, func() {
			for i := range parts {
				parts[i] = make([]byte, 1024)
			}
		}),
		"arena/slice_1k": least(slices, seconds, func() {
			a := arena.NewArena()
			for i := range parts {
				parts[i] = arena.MakeSlice[byte](a, 1024, 1024)
			}
			a.Free()
		}),
	}
	figures["pool/pool_pair"] = least(objects, seconds, func() {
		for i := 0; i < objects; i++ {
			item, _ := pool.Get().(*large)
			if item == nil {
				item = new(large)
			}
			pool.Put(item)
		}
	})
	checksums := map[uint64]bool{} // must have one entry: all sides send the same replies
	for _, each := range sides {
		runtime.GC() // collect the garbage of the previous side
		cpu, checksum := serveAll(messages, each.from, each.batch)
		figures[each.name+"/service"], figures["checksum"] = cpu, float64(uint32(checksum))
		checksums[checksum] = true
	}
	if len(checksums) != 1 {
		os.Exit(3)
	}
	if err := json.NewEncoder(os.Stdout).Encode(figures); err != nil {
		os.Exit(1)
	}
}
