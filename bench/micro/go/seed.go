// SPDX-License-Identifier: Apache-2.0

// Command seed times the four seed cases on Go's allocator. It allocates and keeps a million
// objects with the collector off, then drops and collects them untimed, so that the next round
// begins with a swept heap. It prints the median round as google-benchmark's counter `op`, in
// seconds per object.
//
// Usage: seed CASE ROUNDS, CASE one of Alloc16, Alloc32, Alloc64, AllocWithPtr
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"syscall"
	"unsafe"
)

const objects = 1000000

type withPtr struct {
	next  *withPtr
	value int64
}

var (
	kept16  [objects]*[16]byte
	kept32  [objects]*[32]byte
	kept64  [objects]*[64]byte
	keptPtr [objects]*withPtr
)

type seedCase struct {
	fill, drop func()
}

var cases = map[string]seedCase{
	"Alloc16": {func() {
		for i := range kept16 {
			kept16[i] = new([16]byte)
		}
	}, func() { clear(kept16[:]) }},
	"Alloc32": {func() {
		for i := range kept32 {
			kept32[i] = new([32]byte)
		}
	}, func() { clear(kept32[:]) }},
	"Alloc64": {func() {
		for i := range kept64 {
			kept64[i] = new([64]byte)
		}
	}, func() { clear(kept64[:]) }},
	"AllocWithPtr": {func() {
		for i := range keptPtr {
			keptPtr[i] = new(withPtr)
		}
	}, func() { clear(keptPtr[:]) }},
}

// cpuSeconds returns the CPU time of this thread, the clock of all single-threaded rows.
func cpuSeconds() float64 {
	const threadCPUTime = 3
	var now syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadCPUTime, uintptr(unsafe.Pointer(&now)), 0)
	return float64(now.Sec) + float64(now.Nsec)*1e-9
}

func usage() {
	fmt.Fprintln(os.Stderr, "seed: usage: seed CASE ROUNDS, CASE one of Alloc16, Alloc32, Alloc64,"+
		" AllocWithPtr")
	os.Exit(2)
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(runtime.Version())
		return
	}
	if len(os.Args) != 3 {
		usage()
	}
	run, ok := cases[os.Args[1]]
	rounds, _ := strconv.Atoi(os.Args[2])
	if !ok || rounds < 1 {
		usage()
	}
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	times := make([]float64, rounds)
	for i := -1; i < rounds; i++ {
		start := cpuSeconds()
		run.fill()
		took := cpuSeconds() - start
		if i >= 0 {
			times[i] = took / float64(objects)
		}
		run.drop()
		runtime.GC()
	}
	sort.Float64s(times)
	fmt.Printf("{\"benchmarks\": [{\"op\": %g, \"iterations\": %d}]}\n", times[rounds/2], rounds)
}
