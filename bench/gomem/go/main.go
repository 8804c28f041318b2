// SPDX-License-Identifier: Apache-2.0

// The rows of bench_ranges and bench_buffers on the Go library GoMem, from a directory of the user.
// It prints nanoseconds of CPU time per round by SUBJECT/ROW, as JSON. The build tag twotree
// selects GoMem's other tree.
//
//	main [-benchtime 50ms]
package main

import (
	"encoding/json"
	"flag"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"github.com/langhuihui/gomem"
)

const (
	mib      = 1 << 20
	kib      = 1 << 10
	holes    = 10000
	sizes    = 4096
	pieceMax = 4096
	list     = 100
	buffer   = 64
)

var sink int

// rounds is the number of rounds of a row, timed from ResetTimer on.
type rounds struct {
	N     int
	start time.Duration
}

// threadClock is Linux's CLOCK_THREAD_CPUTIME_ID, the clock of bench_ranges and bench_buffers.
// getrusage may have a resolution of 4 ms, a tenth of a row's time.
const threadClock = 3

// threadTime returns the CPU time of this thread, which excludes a concurrent collector.
func threadTime() time.Duration {
	var at syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&at)), 0)
	if errno != 0 {
		panic("clock_gettime failed")
	}
	return time.Duration(at.Nano())
}

func (b *rounds) ResetTimer() { b.start = threadTime() }

// measure returns nanoseconds per round, doubling the rounds until they take long enough.
func measure(row func(*rounds), enough time.Duration) float64 {
	for n := 1; ; n *= 2 {
		b := &rounds{N: n}
		b.ResetTimer()
		row(b)
		if took := threadTime() - b.start; took >= enough {
			return float64(took.Nanoseconds()) / float64(n)
		}
	}
}

// next is the xorshift64 of bench_ranges.cc.
func next(seed *uint64) uint64 {
	*seed ^= *seed << 13
	*seed ^= *seed >> 7
	*seed ^= *seed << 17
	return *seed
}

// --- ranges ---

func pair(b *rounds) {
	a := gomem.NewAllocator(mib)
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		at := a.Allocate(1024)
		a.Free(at, 1024)
	}
}

// pool returns an allocator with 10,000 holes of random size and a large one, and sizes to request.
func pool() (*gomem.Allocator, []int) {
	a, seed := gomem.NewAllocator(128*mib), uint64(20261122)
	var at, size []int
	for i := 0; i < 2*holes; i++ {
		size = append(size, 1+int(next(&seed)%pieceMax))
		at = append(at, a.Allocate(size[i]))
	}
	for i := 0; i < holes; i++ {
		a.Free(at[2*i], size[2*i])
	}
	for i := 0; i < sizes; i++ {
		size[i] = 1 + int(next(&seed)%pieceMax)
	}
	return a, size
}

func fragmented(b *rounds) {
	a, size := pool()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		asked := size[i%sizes]
		if at := a.Allocate(asked); at != -1 {
			a.Free(at, asked)
		}
	}
}

func sequence(b *rounds) {
	a := gomem.NewAllocator(mib)
	var at [100]int
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		for j := range at {
			at[j] = a.Allocate(1024)
		}
		for _, each := range at {
			a.Free(each, 1024)
		}
	}
}

func find(b *rounds) {
	a := gomem.NewAllocator(mib)
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		sink += a.Find(1024)
	}
}

func buddyPair(b *rounds) {
	buddy := gomem.NewBuddy()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		at, _ := buddy.Alloc(1)
		_ = buddy.Free(at)
	}
}

// --- readers ---

func plain(bytes int) []byte {
	data := make([]byte, bytes)
	for i := range data {
		data[i] = byte(i * 7)
	}
	return data
}

// numbers returns 1,024 LEB128 numbers of 1, 2, 1, 3 bytes, repeated.
func numbers() []byte {
	var data []byte
	for i := 0; i < 1024; i++ {
		longer := 0
		if i%4 == 1 {
			longer = 1
		} else if i%4 == 3 {
			longer = 2
		}
		for j := 0; j < longer; j++ {
			data = append(data, 0x80|byte(i+j))
		}
		data = append(data, byte(1+i%127))
	}
	return data
}

func memory(data []byte, bytes int) *gomem.Memory {
	m := &gomem.Memory{}
	for at := 0; at < len(data); at += bytes {
		m.PushOne(data[at:min(at+bytes, len(data))])
	}
	return m
}

func readByte(b *rounds) {
	m := memory(plain(1024), buffer)
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		r := m.NewReader()
		for {
			byte, err := r.ReadByte()
			if err != nil {
				break
			}
			sink += int(byte)
		}
	}
}

func readBE(b *rounds) {
	m := memory(plain(1024), buffer)
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		r := m.NewReader()
		for j := 0; j < 256; j++ {
			number, _ := r.ReadBE(4)
			sink += int(number)
		}
	}
}

func leb128(b *rounds) {
	m := memory(numbers(), buffer)
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		r := m.NewReader()
		for j := 0; j < 1024; j++ {
			number, _, _ := r.LEB128Unmarshal()
			sink += int(number)
		}
	}
}

// --- memories ---

func push(b *rounds) {
	data := make([]byte, 16)
	for i := 0; i < b.N; i++ {
		var m gomem.Memory
		for j := 0; j < list; j++ {
			m.PushOne(data)
		}
		sink += m.Size
	}
}

func appendTen(b *rounds) {
	other := memory(plain(list*4), 4)
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		var m gomem.Memory
		for j := 0; j < 10; j++ {
			m.Append(*other)
		}
		sink += m.Size
	}
}

func toBytes(b *rounds) {
	m := memory(plain(list*kib), kib)
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		sink += len(m.ToBytes())
	}
}

func copyTo(b *rounds) {
	m := memory(plain(list*kib), kib)
	out := make([]byte, list*kib)
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		m.CopyTo(out)
	}
}

// --- blocks ---

func scalablePair(b *rounds) {
	a := gomem.NewScalableMemoryAllocator(16 * kib)
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		a.Free(a.Malloc(64))
	}
}

func batch(b *rounds) {
	m := gomem.NewRecyclableMemory(gomem.NewScalableMemoryAllocator(16 * kib))
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		for j := 0; j < 10; j++ {
			m.NextN(kib)
		}
		m.Recycle()
	}
}

func main() {
	runtime.LockOSThread()
	enough := flag.Duration("benchtime", 50*time.Millisecond, "time of each row")
	flag.Parse()
	rows := map[string]func(*rounds){
		"range/pair": pair, "range/fragmented": fragmented, "range/sequence": sequence,
		"range/find": find,
		"range/buddy_pair": buddyPair,
		"buffer/read_byte": readByte, "buffer/read_be": readBE, "buffer/leb128": leb128,
		"buffer/push": push, "buffer/append": appendTen, "buffer/to_bytes": toBytes,
		"buffer/copy_to": copyTo,
		"buffer/scalable_pair": scalablePair, "buffer/batch": batch,
	}
	times := map[string]float64{}
	for name, row := range rows {
		times[name] = measure(row, *enough)
	}
	_ = json.NewEncoder(os.Stdout).Encode(times)
}
