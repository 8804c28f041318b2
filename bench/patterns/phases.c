/* SPDX-License-Identifier: Apache-2.0 */
/* An hour of phases with different sizes, run in seconds: the program replaces the process's clock,
 * which advances with the work. Prints `rss_growth`: 1 + the growth of RSS from the second cycle to
 * the last, over its mean. The growth is the lower end of the one-sided 95 % interval of a
 * least-squares line, or 0 if that is negative: by chance, the line alone rises for half of all
 * allocators that do not grow.
 * bench_patterns_phases [PERCENT]: a short form below 100, four hours from 400 on. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "patterns.h"

enum { SHORT = 4, HOUR = 12, LONG = 48, PHASES = 5, PHASE_S = 60, LIVE = 40000 };
enum { REPLACEMENTS = 60000 }; /* in a phase */

static uint64_t clock_ns = 1000000000;

/* A preloaded allocator calls this function instead of the C library's. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *time) {
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_REALTIME) {
        *time = (struct timespec){(time_t)(clock_ns / 1000000000), (long)(clock_ns % 1000000000)};
        return 0;
    }
    return (int)syscall(SYS_clock_gettime, clock, time);
}

/* Return the resident pages without allocating. */
static double resident_pages(void) {
    char text[128] = {0};
    int file = open("/proc/self/statm", O_RDONLY);
    if (file < 0 || read(file, text, sizeof text - 1) <= 0) pattern_fail("/proc/self/statm");
    close(file);
    char *second = strchr(text, ' ');
    if (second == NULL) pattern_fail("/proc/self/statm");
    return strtod(second, NULL);
}

/* The sizes of each phase, and the number of its live objects. */
static const struct {
    uint32_t smallest, largest, live;
} phases[PHASES] = {
    {8, 128, LIVE}, {64, 1000, LIVE / 2},  {1000, 8000, LIVE / 16},
    {16, 64, LIVE}, {8, 32768, LIVE / 64},
};

struct load {
    void *held[LIVE];
    struct pattern_random random;
    uint64_t check;
};

static void replace(struct load *load, uint32_t phase, uint32_t place) {
    if (load->held[place] != NULL) load->check += pattern_drop(load->held[place]);
    load->held[place] = NULL;
    if (place >= phases[phase].live) return;
    uint32_t bytes = pattern_between(&load->random, phases[phase].smallest, phases[phase].largest);
    load->held[place] = pattern_new(bytes, bytes);
    memset((char *)load->held[place] + 8, 1, bytes - 8);
}

/* Replace the objects of the previous phase in order, then objects at random. */
static void run_phase(struct load *load, uint32_t phase) {
    uint64_t step = (uint64_t)PHASE_S * 1000000000 / (LIVE + REPLACEMENTS);
    for (uint32_t i = 0; i < LIVE; i++, clock_ns += step) replace(load, phase, i);
    for (uint32_t i = 0; i < REPLACEMENTS; i++, clock_ns += step) {
        replace(load, phase, pattern_below(&load->random, phases[phase].live));
    }
}

/* Student's t of 95 %, one-sided, for a line through all cycles but the first. */
static double student_of(uint32_t cycles) {
    return cycles == SHORT ? 6.314 : cycles == HOUR ? 1.833 : 1.679;
}

/* Return the growth from the first to the last value, over the mean, by a least-squares line whose
 * slope is reduced by `student` standard errors; at least 0. */
static double growth_of(const double *values, uint32_t count, double student) {
    double middle = (count - 1) / 2.0, over = 0, under = 0, mean = 0, missed = 0;
    for (uint32_t i = 0; i < count; i++) mean += values[i] / count;
    for (uint32_t i = 0; i < count; i++) {
        over += (i - middle) * values[i];
        under += (i - middle) * (i - middle);
    }
    double slope = over / under;
    for (uint32_t i = 0; i < count; i++) {
        double off = values[i] - mean - slope * (i - middle);
        missed += off * off;
    }
    slope -= student * sqrt(missed / (count - 2) / under);
    return slope > 0 ? slope * (count - 1) / mean : 0;
}

int main(int count, char **words) {
    static struct load load = {.random = {47}};
    double pages[LONG];
    int percent = count > 1 ? atoi(words[1]) : 100;
    uint32_t cycles = percent < 100 ? SHORT : percent < 400 ? HOUR : LONG;
    for (uint32_t cycle = 0; cycle < cycles; cycle++) {
        for (uint32_t phase = 0; phase < PHASES; phase++) run_phase(&load, phase);
        pages[cycle] = resident_pages();
    }
    for (uint32_t i = 0; i < LIVE; i++) load.check += load.held[i] ? pattern_drop(load.held[i]) : 0;
    printf("rss_growth %.6f\n", 1 + growth_of(pages + 1, cycles - 1, student_of(cycles)));
    printf("ops %u\ncheck %llu\n", cycles * PHASES * (LIVE + REPLACEMENTS),
           (unsigned long long)load.check);
    return 0;
}
