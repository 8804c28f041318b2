// SPDX-License-Identifier: Apache-2.0

// What an article claims of Go's arenas, tried: verdicts of notebook 08. From bench/arenas/go:
//
//	GOEXPERIMENT=arenas go run ./claims
package main

import (
	"arena"
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

const (
	chunkBytes = 8 << 20
	hands      = 1000
)

type box struct {
	number int
	words  [6]int
}

func heapAlloc() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// inOtherThread runs fn in a goroutine that has a thread of its own, and waits.
func inOtherThread(fn func()) {
	var end sync.WaitGroup
	end.Add(1)
	go func() {
		defer end.Done()
		runtime.LockOSThread()
		fn()
	}()
	end.Wait()
}

// slice is a piece of an arena that nothing else knows, with a heap object in it, and whether that was finalized.
//
//go:noinline
func slice() ([]*int, *bool) {
	pointers := arena.MakeSlice[*int](arena.NewArena(), 64, 64)
	number, isFinalized := new(int), new(bool)
	*number = 4711
	runtime.SetFinalizer(number, func(*int) { *isFinalized = true })
	pointers[10] = number
	return unsafe.Slice((**int)(unsafe.Pointer(&pointers[0])), 64), isFinalized
}

func collect() {
	for i := 0; i < 5; i++ {
		runtime.GC()
	}
}

func main() {
	before := heapAlloc()
	a := arena.NewArena()
	first := arena.New[box](a)
	fmt.Println("HeapAlloc, bytes more after one object:", heapAlloc()-before)

	inside := 0
	var kept [][]byte
	for i := 0; i < 100; i++ {
		kept = append(kept, make([]byte, 16<<10))
		distance := uintptr(unsafe.Pointer(&kept[i][0])) - uintptr(unsafe.Pointer(first))&^(chunkBytes-1)
		if distance < chunkBytes {
			inside++
		}
	}
	fmt.Println("of 100 slices of 16 KiB from make, in the arena's chunk:", inside)

	wrong := 0
	for i := 0; i < hands; i++ {
		var made *box
		inOtherThread(func() {
			made = arena.New[box](a)
			made.number = i
		})
		if made.number != i {
			wrong++
		}
	}
	fmt.Printf("%d threads allocated from one arena in turn, wrong: %d\n", hands, wrong)

	pool, arrived, wrong := sync.Pool{}, 0, 0
	for i := 0; i < hands; i++ {
		made := arena.New[box](a)
		made.number = i
		pool.Put(made)
		inOtherThread(func() {
			got, isThere := pool.Get().(*box)
			if isThere {
				arrived++
			}
			if isThere && got.number > i {
				wrong++
			}
		})
	}
	fmt.Printf("of %d objects of the arena %d came through a sync.Pool to another thread, wrong: %d\n", hands, arrived, wrong)
	runtime.KeepAlive(kept)
	a.Free()

	pointers, isFinalized := slice()
	collect()
	fmt.Println("through unsafe.Slice after 5 collections:", *pointers[10], "finalized:", *isFinalized)
	runtime.KeepAlive(pointers)
}
