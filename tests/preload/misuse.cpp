// SPDX-License-Identifier: Apache-2.0
// Commits one mistake with an object of a size, in a heap that has been used, and prints "survived"
// if nothing stopped it: misuse MISTAKE SIZE.
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <thread>

static volatile uint8_t sink;

static size_t size;

// 96 objects of many sizes, of which every third is freed.
static void use_the_heap() {
    static void *objects[96];
    for (int i = 0; i < 96; i++) {
        size_t bytes = 1 + (size_t)i * 37 % 3000;
        objects[i] = memset(malloc(bytes), 0x5a, bytes);
    }
    for (int i = 0; i < 96; i += 3) free(objects[i]);
}

static volatile uint8_t *object() {
    auto *p = (volatile uint8_t *)malloc(size);
    for (size_t i = 0; i < size; i++) p[i] = 1;
    return p;
}

static void release(volatile uint8_t *p) { free((void *)p); }

// Enough allocations that freed objects of the size are reused.
static void go_on() {
    for (int i = 0; i < 20000; i++) free(malloc(size));
}

static void overflow(size_t bytes, uint8_t value) {
    volatile uint8_t *p = object();
    for (size_t i = 0; i < bytes; i++) p[size + i] = value;
    release(p);
}

// Writes before an object, of two that are as near as any of 200, and frees the lower one first.
static void underflow(size_t bytes) {
    static volatile uint8_t *all[200];
    size_t lower = 0, upper = 1;
    for (auto &one : all) one = object();
    std::sort(std::begin(all), std::end(all));
    for (size_t i = 1; i < 200; i++)
        if (all[i] - all[i - 1] < all[upper] - all[lower]) lower = i - 1, upper = i;
    for (size_t i = 1; i <= bytes; i++) *(all[upper] - i) = 7;
    release(all[lower]);
    release(all[upper]);
}

// The compiler, which warns of a mismatch, does not see through these.
static void *(*volatile allocate)(size_t) = ::operator new;
static void *(*volatile allocate_array)(size_t) = ::operator new[];

// The size reaches operator delete as the program states it.
static void (*volatile release_sized)(void *, size_t) = ::operator delete;
static void (*volatile release_array_sized)(void *, size_t) = ::operator delete[];

static const struct {
    const char *name;
    void (*commit)();
} mistakes[] = {
    {"nothing", [] { release(object()); }},
    {"write_to_slack",
     [] {
         volatile uint8_t *p = object();
         p[malloc_usable_size((void *)p) - 1] = 7; // glibc permits it
         release(p);
     }},
    {"overflow_0", [] { overflow(1, 0); }},
    {"overflow_1", [] { overflow(1, 7); }},
    {"overflow_8", [] { overflow(8, 7); }},
    {"overflow_32", [] { overflow(32, 7); }},
    {"overflow_found_by_realloc",
     [] {
         volatile uint8_t *p = object();
         p[size] = 7;
         release((volatile uint8_t *)realloc((void *)p, size + 100));
     }},
    {"underflow_1", [] { underflow(1); }},
    {"underflow_8", [] { underflow(8); }},
    {"overread",
     [] {
         volatile uint8_t *p = object();
         sink = p[size];
         release(p);
     }},
    {"write_after_free",
     [] {
         volatile uint8_t *p = object();
         release(p);
         p[size / 2] = 3;
         go_on();
     }},
    {"read_after_free",
     [] {
         volatile uint8_t *p = object();
         release(p);
         sink = p[size / 2];
     }},
    {"double_free",
     [] {
         volatile uint8_t *p = object();
         release(p);
         release(p);
     }},
    {"double_free_later",
     [] {
         volatile uint8_t *p = object();
         release(p);
         for (int i = 0; i < 8; i++) release(object());
         release(p);
     }},
    {"double_free_by_thread",
     [] {
         volatile uint8_t *p = object();
         std::thread(release, p).join();
         release(p);
     }},
    {"free_inside", [] { release(object() + 16); }},
    {"free_odd", [] { release(object() + 1); }},
    {"free_of_stack",
     [] {
         uint8_t local[64];
         release(local);
     }},
    {"free_after_realloc",
     [] {
         volatile uint8_t *p = object();
         sink = (uint8_t)(uintptr_t)realloc((void *)p, size * 3 + 4096);
         release(p);
     }},
    {"realloc_after_free",
     [] {
         volatile uint8_t *p = object();
         release(p);
         sink = (uint8_t)(uintptr_t)realloc((void *)p, size + 1);
     }},
    {"usable_after_free",
     [] {
         volatile uint8_t *p = object();
         release(p);
         sink = (uint8_t)malloc_usable_size((void *)p);
     }},
    {"write_to_size_0", [] { *(volatile uint8_t *)malloc(0) = 1; }},
    {"read_of_size_0", [] { sink = *(volatile uint8_t *)malloc(0); }},
    {"double_free_of_size_0",
     [] {
         void *volatile p = malloc(0);
         free(p);
         free(p);
     }},
    {"delete_of_malloc", [] { ::operator delete((void *)object()); }},
    {"delete_array_of_malloc", [] { ::operator delete[]((void *)object()); }},
    {"free_of_new", [] { free(allocate(size)); }},
    {"free_of_new_array", [] { free(allocate_array(size)); }},
    {"delete_of_new_array", [] { ::operator delete(allocate_array(size)); }},
    {"delete_array_of_new", [] { ::operator delete[](allocate(size)); }},
    {"delete_of_right_size",
     [] {
         release_sized(allocate(size), size);
         release_array_sized(allocate_array(size), size);
     }},
    {"delete_of_larger_size", [] { release_sized(allocate(size), size + 1); }},
    {"delete_of_smaller_size", [] { release_sized(allocate(size), size - 1); }},
    {"delete_array_of_wrong_size", [] { release_array_sized(allocate_array(size), size / 2); }},
    {"delete_of_array_of_wrong_size", [] { release_sized(allocate_array(size), size / 2); }},
    {"double_delete_as_array",
     [] {
         void *volatile p = allocate(size);
         ::operator delete(p);
         ::operator delete[](p);
     }},
    {"free_after_delete",
     [] {
         void *volatile p = allocate(size);
         ::operator delete(p);
         free(p);
     }},
};

int main(int, char **arguments) {
    size = strtoul(arguments[2], nullptr, 10);
    use_the_heap();
    for (const auto &mistake : mistakes)
        if (strcmp(mistake.name, arguments[1]) == 0) mistake.commit();
    puts("survived");
}
