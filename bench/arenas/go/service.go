// SPDX-License-Identifier: Apache-2.0

// The message server of examples/service in Go, closed loop, with the same random numbers, work and
// replies. The four objects of a message come from the heap or from an arena per batch of messages,
// or are the same four each time, which shows the cost without allocation.
package main

import (
	"arena"
	"encoding/binary"
	"syscall"
)

const (
	payloadMax  = 960
	payloadMean = 128
	connections = 1000
	churn       = 100
	batchOf     = 32
)

// strategy is the source of the four objects of a message.
type strategy int

const (
	ofHeap strategy = iota
	ofArena
	ofBlocks
)

// blocks are the objects that every message of ofBlocks uses.
type blocks struct {
	header       packetHeader
	message      message
	bytes, reply [16 + payloadMax]byte
}

type connection struct {
	number, sent            uint32
	received, sentMessages  uint64
	receiveBytes, sendBytes []byte
	state                   [176]byte
}

type packetHeader struct {
	length, from, to, sequence uint32
	arrived, flags             uint64
}

type message struct {
	header                          *packetHeader
	bytes                           *byte
	from, to                        *connection
	number                          uint64
	routed, length, flags, priority uint64
}

type server struct {
	open     [connections]*connection
	seed     uint64
	text     [2 * payloadMax]byte
	arena    *arena.Arena // with ofArena
	from     strategy
	batch    uint64 // messages per arena
	blocks   *blocks
	checksum uint64
}

func (s *server) draw(bound uint32) uint32 {
	s.seed += 0x9E3779B97F4A7C15
	z := s.seed
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB
	z ^= z >> 31
	return uint32((z >> 32) * uint64(bound) >> 32)
}

func newConnection(number uint32) *connection {
	return &connection{number: number, receiveBytes: make([]byte, 1024), sendBytes: make([]byte, 4096)}
}

func checksumOf(bytes []byte) uint64 {
	sum := uint64(0xCBF29CE484222325)
	for len(bytes) >= 8 {
		sum = (sum ^ binary.LittleEndian.Uint64(bytes)) * 0x100000001B3
		bytes = bytes[8:]
	}
	if len(bytes) > 0 {
		var last [8]byte
		copy(last[:], bytes)
		sum = (sum ^ binary.LittleEndian.Uint64(last[:])) * 0x100000001B3
	}
	return sum
}

func (c *connection) send(bytes []byte) uint64 {
	size := uint32(len(bytes))
	if c.sent+size > 4096 {
		c.sent = 0
	}
	copy(c.sendBytes[c.sent:], bytes)
	sum := checksumOf(c.sendBytes[c.sent : c.sent+size])
	c.sent = (c.sent + size) % 4096
	c.sentMessages++
	return sum
}

func (s *server) arrive(number uint64) *connection {
	from, to := s.draw(connections), s.draw(connections)
	size := s.draw(payloadMean + 1)
	if s.draw(4) == 0 {
		size = s.draw(4*payloadMean+1) + payloadMean/2
	}
	size = min(size, payloadMax)
	c := s.open[from]
	wire := c.receiveBytes
	binary.LittleEndian.PutUint32(wire, size)
	binary.LittleEndian.PutUint32(wire[4:], from)
	binary.LittleEndian.PutUint32(wire[8:], to)
	binary.LittleEndian.PutUint32(wire[12:], uint32(number))
	start := number % payloadMax
	copy(wire[16:], s.text[start:start+uint64(size)])
	return c
}

func (s *server) newHeader() *packetHeader {
	switch s.from {
	case ofArena:
		return arena.New[packetHeader](s.arena)
	case ofBlocks:
		return &s.blocks.header
	}
	return new(packetHeader)
}

func (s *server) newMessage() *message {
	switch s.from {
	case ofArena:
		return arena.New[message](s.arena)
	case ofBlocks:
		return &s.blocks.message
	}
	return new(message)
}

// newBytes returns bytes of a message; block is used with ofBlocks.
func (s *server) newBytes(size uint32, block *[16 + payloadMax]byte) []byte {
	switch s.from {
	case ofArena:
		return arena.MakeSlice[byte](s.arena, int(size), int(size))
	case ofBlocks:
		return block[:size]
	}
	return make([]byte, size)
}

func (s *server) serve(number uint64) {
	if (number+1)%churn == 0 {
		which := s.draw(connections)
		s.open[which] = newConnection(which)
	}
	from := s.arrive(number)
	wire := from.receiveBytes
	header := s.newHeader()
	header.length = binary.LittleEndian.Uint32(wire)
	header.from = binary.LittleEndian.Uint32(wire[4:])
	header.to = binary.LittleEndian.Uint32(wire[8:])
	header.sequence = binary.LittleEndian.Uint32(wire[12:])
	header.arrived = number
	header.flags = 0
	if header.length > payloadMax/2 {
		header.flags = 1
	}
	made := s.newMessage()
	bytes := s.newBytes(max(header.length, 1), &s.blocks.bytes)
	copy(bytes, wire[16:16+header.length])
	*made = message{header: header, bytes: &bytes[0], from: from, number: number, length: uint64(header.length)}
	from.received++
	made.to = s.open[header.to]
	made.routed = uint64(made.to.number)
	made.priority = header.flags
	latest = made
	reply := s.newBytes(16+header.length, &s.blocks.reply)
	binary.LittleEndian.PutUint32(reply, header.length)
	binary.LittleEndian.PutUint32(reply[4:], header.from)
	binary.LittleEndian.PutUint32(reply[8:], header.to)
	binary.LittleEndian.PutUint32(reply[12:], header.sequence)
	copy(reply[16:], bytes[:header.length])
	s.checksum += made.to.send(reply)
	s.checksum -= made.from.send(reply[:16])
}

// latest keeps the current message reachable, as a table of the server would.
var latest *message

func cpuNs() int64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// newServer creates a server; batch is the number of messages per arena.
func newServer(from strategy, batch uint64) *server {
	s := &server{seed: 1, from: from, batch: batch, blocks: new(blocks)}
	for i := range s.text {
		s.text[i] = byte(i*7 + i/251)
	}
	for i := range s.open {
		s.open[i] = newConnection(uint32(i))
	}
	return s
}

// serveNext serves a message; the first and last of a batch create and free its arena.
func (s *server) serveNext(number uint64) {
	if s.from == ofArena && number%s.batch == 0 {
		s.arena = arena.NewArena()
	}
	s.serve(number)
	if s.from == ofArena && (number+1)%s.batch == 0 {
		latest = nil
		s.arena.Free()
	}
}

// serveAll returns the CPU time per message in nanoseconds, including the collector, and the
// checksum of all replies.
func serveAll(messages uint64, from strategy, batch uint64) (float64, uint64) {
	s := newServer(from, batch)
	start := cpuNs()
	for i := uint64(0); i < messages; i++ {
		s.serveNext(i)
	}
	return float64(cpuNs()-start) / float64(messages), s.checksum
}
