// SPDX-License-Identifier: Apache-2.0

// The open loop of examples/service in Go: messages arrive with exponential gaps, and a latency counts from the time at
// which its message should have arrived. Latencies are counted in the same bins.
package main

import (
	"encoding/json"
	"math"
	"math/bits"
	"os"
	"strconv"
	"time"
)

const (
	binBits = 7
	binEach = 1 << binBits
)

var bins [(64 - binBits + 1) << binBits]uint64

func binOf(ns uint64) int {
	if ns < binEach {
		return int(ns)
	}
	shift := 63 - bits.LeadingZeros64(ns) - binBits
	return shift*binEach + int(ns>>shift)
}

func binFloor(bin int) uint64 {
	if bin < binEach {
		return uint64(bin)
	}
	shift := bin/binEach - 1
	return uint64(bin-shift*binEach) << shift
}

// The latency that this share of the messages does not exceed.
func percentile(percent float64, messages uint64) uint64 {
	rank, sum := max(uint64(math.Ceil(percent/100*float64(messages))), 1), uint64(0)
	for i, count := range bins {
		if sum += count; sum >= rank {
			return binFloor(i)
		}
	}
	return 0
}

// What waits for the messages of an open loop: it draws as the loop in C does, apart from what messages are drawn by.
type arrivals struct {
	seed  uint64
	gapNs float64
	dueNs float64
	start time.Time
}

func (a *arrivals) next() uint64 {
	a.seed += 0x9E3779B97F4A7C15
	z := a.seed
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB
	z ^= z >> 31
	a.dueNs += -math.Log(float64(z>>11+1)/float64(uint64(1)<<53)) * a.gapNs
	due := uint64(a.dueNs)
	for uint64(time.Since(a.start)) < due {
	}
	return due
}

// open RATE MESSAGES heap|arena: rate 0 is the closed loop. One JSON object: latencies by percentile, messages a
// second, and the checksum of the replies.
func openLoop(words []string) bool {
	rate, err := strconv.ParseFloat(words[0], 64)
	messages, wrong := strconv.ParseUint(words[1], 10, 63)
	if err != nil || wrong != nil || messages == 0 {
		return false
	}
	from := ofHeap
	if words[2] == "arena" {
		from = ofArena
	}
	s := newServer(from, batchOf)
	a := &arrivals{seed: s.seed ^ 0xA5A5A5A5A5A5A5A5, gapNs: 1e9 / rate, start: time.Now()}
	for i := uint64(0); i < messages; i++ {
		due := uint64(0)
		if rate > 0 {
			due = a.next()
		}
		s.serveNext(i)
		if rate > 0 {
			bins[binOf(uint64(time.Since(a.start))-due)]++
		}
	}
	told := map[string]any{
		"per_second": float64(messages) / time.Since(a.start).Seconds(), "checksum": strconv.FormatUint(s.checksum, 10),
	}
	for _, percent := range []float64{50, 99, 99.9, 99.99} {
		told[strconv.FormatFloat(percent, 'g', -1, 64)] = percentile(percent, messages)
	}
	return json.NewEncoder(os.Stdout).Encode(told) == nil
}
