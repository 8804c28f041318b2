// SPDX-License-Identifier: Apache-2.0
// Clocks, random numbers, resident memory and barriers for the rows. Nothing here allocates.
#ifndef SPANWISE_BENCH_MEASURE_H
#define SPANWISE_BENCH_MEASURE_H

#include <fcntl.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace bench {

// Seconds of a clock. Rows with one thread use its CPU time, which excludes other programs of a
// shared machine; rows with several threads use the wall clock.
inline double seconds(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
inline double cpu_seconds() { return seconds(CLOCK_THREAD_CPUTIME_ID); }
inline double wall_seconds() { return seconds(CLOCK_MONOTONIC); }

// splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t z = (state_ += UINT64_C(0x9e3779b97f4a7c15));
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
    }

  private:
    uint64_t state_;
};

// 32 random bits scaled to 0 .. n-1.
inline uint32_t below(uint32_t bits, uint32_t n) {
    return static_cast<uint32_t>((static_cast<uint64_t>(bits) * n) >> 32);
}

// A field of /proc/self/status in bytes ("VmRSS:", "VmHWM:"); 0 if it cannot be read.
inline double status_bytes(const char *field) {
    char text[8192];
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    text[got < 0 ? 0 : got] = '\0';
    const char *at = strstr(text, field);
    return at == nullptr ? 0 : strtod(at + strlen(field), nullptr) * 1024;
}

// Reset the peak RSS (VmHWM) to the current RSS. If the kernel refuses, the peak is still that of
// the process's start, which is small.
inline void reset_peak() {
    int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (file < 0) return;
    [[maybe_unused]] ssize_t done = write(file, "5", 1);
    close(file);
}

inline void relax(unsigned &spins) {
    if (++spins % 64 == 0) {
        sched_yield();
        return;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

// A reusable barrier for n threads.
class Barrier {
  public:
    explicit Barrier(unsigned threads) : threads_(threads) {}
    void wait() {
        unsigned round = round_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        for (unsigned spins = 0; round_.load(std::memory_order_acquire) == round;) relax(spins);
    }

  private:
    const unsigned threads_;
    alignas(64) std::atomic<unsigned> arrived_{0};
    alignas(64) std::atomic<unsigned> round_{0};
};

} // namespace bench
#endif
