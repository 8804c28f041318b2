// SPDX-License-Identifier: Apache-2.0

package main

import "unsafe"

// bytesKept is what the objects of a class take together, as in the rows kept/N of ours (rows.h).
const (
	bytesKept  = 4 << 20
	objectsMax = 100000
)

var kept [objectsMax]unsafe.Pointer

// classes has, for each class up to 1 KiB that our table c16 has too, a loop that allocates its size.
// The compiler picks a specialised function only where a function that is not generic names the type,
// so each is written out. 8 B is left out: Go packs pointer-free objects below 16 B into shared blocks.
var classes = map[int]func(kept []unsafe.Pointer){
	16: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([16]byte))
		}
	},
	32: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([32]byte))
		}
	},
	48: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([48]byte))
		}
	},
	64: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([64]byte))
		}
	},
	80: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([80]byte))
		}
	},
	96: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([96]byte))
		}
	},
	112: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([112]byte))
		}
	},
	128: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([128]byte))
		}
	},
	144: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([144]byte))
		}
	},
	160: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([160]byte))
		}
	},
	176: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([176]byte))
		}
	},
	192: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([192]byte))
		}
	},
	208: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([208]byte))
		}
	},
	224: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([224]byte))
		}
	},
	240: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([240]byte))
		}
	},
	256: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([256]byte))
		}
	},
	288: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([288]byte))
		}
	},
	320: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([320]byte))
		}
	},
	352: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([352]byte))
		}
	},
	384: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([384]byte))
		}
	},
	416: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([416]byte))
		}
	},
	448: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([448]byte))
		}
	},
	480: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([480]byte))
		}
	},
	512: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([512]byte))
		}
	},
	576: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([576]byte))
		}
	},
	640: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([640]byte))
		}
	},
	704: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([704]byte))
		}
	},
	768: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([768]byte))
		}
	},
	896: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([896]byte))
		}
	},
	1024: func(kept []unsafe.Pointer) {
		for i := range kept {
			kept[i] = unsafe.Pointer(new([1024]byte))
		}
	},
}
