// SPDX-License-Identifier: Apache-2.0

// The message server with several workers, which take messages from one queue: closed loop, or open
// loop with a rate. As in examples/service, gaps are exponential, a latency counts from the scheduled
// arrival, and each connection has a lock, under which nothing is allocated.
package main

import (
	"arena"
	"encoding/binary"
	"math"
	"sort"
	"sync"
	"time"
)

type load struct {
	workers     int
	messages    uint64
	connections uint32
	rate        float64 // messages per second; 0: closed loop
}

// arrival is a message of the queue.
type arrival struct {
	number         uint64
	from, to, size uint32
	reconnect      uint32
	isReconnect    bool
	due            time.Duration // open loop: since the start
}

// crowd is what the workers share.
type crowd struct {
	load
	locks []sync.Mutex // of the connections
	open  []*connection
	text  [2 * payloadMax]byte
	start time.Time

	lock  sync.Mutex // protects the rest
	draws server     // its random numbers
	gaps  server
	next  uint64
	due   float64 // ns
}

// worker has the memory and the results of a goroutine.
type worker struct {
	server    // the source of its objects
	latest    *message
	latencies []int64
}

func (c *crowd) take(next *arrival) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.next >= c.messages {
		return false
	}
	*next = arrival{number: c.next}
	c.next++
	if next.isReconnect = c.next%churn == 0; next.isReconnect {
		next.reconnect = c.draws.draw(c.connections)
	}
	next.from, next.to = c.draws.draw(c.connections), c.draws.draw(c.connections)
	next.size = c.draws.draw(payloadMean + 1)
	if c.draws.draw(4) == 0 {
		next.size = c.draws.draw(4*payloadMean+1) + payloadMean/2
	}
	next.size = min(next.size, payloadMax)
	if c.rate > 0 {
		share := (float64(c.gaps.draw(math.MaxUint32)) + 1) / (1 << 32)
		c.due -= math.Log(share) * 1e9 / c.rate
		next.due = time.Duration(c.due)
	}
	return true
}

func (c *crowd) send(number uint32, bytes []byte) uint64 {
	c.locks[number].Lock()
	defer c.locks[number].Unlock()
	return c.open[number].send(bytes)
}

func (w *worker) serve(c *crowd, next *arrival) {
	if next.isReconnect {
		c.locks[next.reconnect].Lock()
		c.open[next.reconnect] = newConnection(next.reconnect)
		c.locks[next.reconnect].Unlock()
	}
	header, made := w.newHeader(), w.newMessage()
	bytes := w.newBytes(max(next.size, 1), &w.blocks.bytes)
	c.locks[next.from].Lock()
	from := c.open[next.from]
	wire := from.receiveBytes
	binary.LittleEndian.PutUint32(wire, next.size)
	binary.LittleEndian.PutUint32(wire[4:], next.from)
	binary.LittleEndian.PutUint32(wire[8:], next.to)
	binary.LittleEndian.PutUint32(wire[12:], uint32(next.number))
	start := next.number % payloadMax
	copy(wire[16:], c.text[start:start+uint64(next.size)])
	*header = packetHeader{length: binary.LittleEndian.Uint32(wire), from: next.from, to: next.to,
		sequence: binary.LittleEndian.Uint32(wire[12:]), arrived: next.number}
	copy(bytes, wire[16:16+header.length])
	from.received++
	c.locks[next.from].Unlock()
	if header.length > payloadMax/2 {
		header.flags = 1
	}
	*made = message{header: header, bytes: &bytes[0], from: from, number: next.number,
		length: uint64(header.length), priority: header.flags, routed: uint64(header.to)}
	w.latest = made
	reply := w.newBytes(16+header.length, &w.blocks.reply)
	binary.LittleEndian.PutUint32(reply, header.length)
	binary.LittleEndian.PutUint32(reply[4:], header.from)
	binary.LittleEndian.PutUint32(reply[8:], header.to)
	binary.LittleEndian.PutUint32(reply[12:], header.sequence)
	copy(reply[16:], bytes[:header.length])
	w.checksum += c.send(header.to, reply)
	w.checksum -= c.send(header.from, reply[:16])
}

func (w *worker) run(c *crowd) {
	var next arrival
	for served := uint64(0); c.take(&next); {
		for c.rate > 0 && time.Since(c.start) < next.due {
		}
		if w.from == ofArena && served%w.batch == 0 {
			w.arena = arena.NewArena()
		}
		w.serve(c, &next)
		if served++; w.from == ofArena && served%w.batch == 0 {
			w.latest = nil
			w.arena.Free()
		}
		if c.rate > 0 {
			w.latencies = append(w.latencies, int64(time.Since(c.start)-next.due))
		}
	}
}

// serveWith returns the CPU time per message in nanoseconds, including the collector; the checksum
// of all replies; and the latencies in ascending order, none of a closed loop.
func serveWith(each load, from strategy, batch uint64) (float64, uint64, []int64) {
	c := &crowd{load: each, locks: make([]sync.Mutex, each.connections),
		open: make([]*connection, each.connections)}
	c.draws.seed, c.gaps.seed = 1, 2
	for i := range c.text {
		c.text[i] = byte(i*7 + i/251)
	}
	for i := range c.open {
		c.open[i] = newConnection(uint32(i))
	}
	all, group := make([]worker, each.workers), sync.WaitGroup{}
	for i := range all {
		all[i].from, all[i].batch, all[i].blocks = from, batch, new(blocks)
		if each.rate > 0 {
			all[i].latencies = make([]int64, 0, each.messages)
		}
	}
	before := cpuNs()
	c.start = time.Now()
	for i := range all {
		group.Add(1)
		go func(w *worker) {
			defer group.Done()
			w.run(c)
		}(&all[i])
	}
	group.Wait()
	cpu := float64(cpuNs()-before) / float64(each.messages)
	checksum, latencies := uint64(0), []int64{}
	for i := range all {
		checksum += all[i].checksum
		latencies = append(latencies, all[i].latencies...)
	}
	sort.Slice(latencies, func(i, j int) bool { return latencies[i] < latencies[j] })
	return cpu, checksum, latencies
}
